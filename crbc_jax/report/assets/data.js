// The data of the page: an overview, and one compressed record per group.

const ENDS = ["success", "failure", "truncated"];
const END_MARK = { success: "✓", failure: "✗", truncated: "…" };

const byId = (id) => document.getElementById(id);
const overview = JSON.parse(byId("overview").textContent);
const packedGroups = document.querySelectorAll("script.group");
const loadedGroups = new Map();

/** The group with number `index`, unpacked once. */
function loadGroup(index) {
  if (!loadedGroups.has(index)) {
    loadedGroups.set(index, unpack(packedGroups[index]).then(
      (numbers) => indexed({ ...overview.groups[index], ...numbers })));
  }
  return loadedGroups.get(index);
}

async function unpack(element) {
  const bytes = Uint8Array.from(
    atob(element.textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream()
    .pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** Adds what follows from the record: who visits what. */
function indexed(group) {
  const rows = group.state.length;
  group.rowsAt = group.states.map(() => []);
  group.rowsOn = group.edges.source.map(() => []);
  for (let row = 0; row < rows; row++) {
    group.rowsAt[group.state[row]].push(row);
    group.rowsOn[group.edge[row]].push(row);
  }
  group.trajOf = [];
  group.trajs.forEach((traj, number) => {
    traj.end = group.trajs[number + 1]?.start ?? rows;
    traj.steps = traj.end - traj.start;
    group.trajOf.push(...Array(traj.steps).fill(number));
  });
  withoutCommonStart(group.trajs.map((traj) => traj.id)).forEach(
    (name, number) => { group.trajs[number].name = name; });
  group.endings = ENDS.map((_, end) => group.edges.target.reduce(
    (sum, target, edge) => sum + (target === group.states.length + end
      ? group.edges.count[edge] : 0), 0));
  return group;
}

const mean = (rows, values) =>
  rows.reduce((sum, row) => sum + values[row], 0) / rows.length;

/** Position of a row in its trajectory, from 0. */
const stepOf = (group, row) => row - group.trajs[group.trajOf[row]].start;

/** Ids without the words that all of them start with. */
function withoutCommonStart(ids) {
  let shared = ids[0].length;
  for (const id of ids) {
    while (!id.startsWith(ids[0].slice(0, shared))) shared--;
  }
  const start = ids[0].slice(0, shared).search(/[^/#:]*$/);
  return ids.map((id) => id.slice(start));
}

/** A short piece of a text, on one line. */
function brief(text, length) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length <= length ? line : line.slice(0, length - 1) + "…";
}

/** A number as the record has it: four significant digits. */
const exact = (x) => String(x).replace("-", "−");

/** The same with its sign. */
const signed = (x) => (x > 0 ? "+" : "") + exact(x);

/** A number short enough for a node. */
const short = (x) => exact(Number(x.toFixed(2)));

const percent = (x) => `${(100 * x).toFixed(x > 0 && x < 0.1 ? 1 : 0)} %`;

/** An element with text and attributes; children may be elements. */
function make(tag, content = "", attributes = {}) {
  const element = document.createElement(tag);
  element.append(...[content].flat());
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  return element;
}

/** An element of a drawing. */
function draw(tag, attributes, content = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  element.append(...[content].flat());
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  return element;
}

/** Rows of a table: cells are texts, or [text, class]. */
function bodyOf(rows) {
  return make("tbody", rows.map((cells) => make("tr", cells.map((cell, i) => {
    const [text, kind] = [cell].flat();
    return make(i ? "td" : "th", text ?? "", {
      ...(kind && { class: kind }), ...(!i && { scope: "row" }) });
  }))));
}

/** A head with one or more rows of [text, colspan, class]. */
function headOf(...rows) {
  return make("thead", rows.map((cells) => make("tr", cells.map(
    ([text, span = 1, kind = ""]) => text === null ? make("td") : make(
      "th", text, { class: kind, colspan: span,
        scope: span > 1 ? "colgroup" : "col" })))));
}
