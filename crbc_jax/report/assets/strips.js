// Trajectories as strips of cells, and the steps of the chosen one.

function drawStrips(app) {
  const { group } = app;
  byId("strips").replaceChildren(...group.trajs.map((traj) => make("div", [
    make("span", [
      make("span", END_MARK[traj.outcome], { class: `mark ${traj.outcome}`,
        "aria-hidden": true }),
      brief(traj.name, 18), make("span", `, ${traj.outcome}`, { class: "sr" }),
    ], { role: "rowheader", class: "traj", title: traj.id }),
    ...Array.from({ length: traj.steps }, (_, step) => make("span", "", {
      role: "gridcell", class: "cell", tabindex: -1,
      "data-row": traj.start + step })),
  ], { role: "row", class: "strip" })));
  byId("strips").setAttribute("aria-rowcount", group.trajs.length);
}

function cellOf(row) {
  return byId("strips").querySelector(`[data-row="${row}"]`);
}

/** Colours and labels of the cells under both panes. */
function updateStrips(app) {
  const { group, panes } = app;
  for (const cell of byId("strips").querySelectorAll(".cell")) {
    const row = Number(cell.dataset.row);
    panes.forEach((pane, i) => cell.style.setProperty(
      `--${i ? "below" : "above"}`, pane.colourOf(row)));
    const credit = panes.map(
      (pane) => `${pane.title} ${signed(pane.numbersOf(row)[2])}`);
    const action = brief(group.actions[group.action[row]], 60);
    cell.setAttribute("aria-label",
      `Step ${stepOf(group, row)}, ${action}; advantage ${credit.join("; ")}`);
    cell.title = `step ${stepOf(group, row)}: ${action}`;
  }
}

/** The chosen cell is the one that the tab key reaches. */
function markCell(row) {
  byId("strips").querySelector("[tabindex='0']")?.setAttribute("tabindex", -1);
  byId("strips").querySelector("[aria-selected]")
    ?.removeAttribute("aria-selected");
  const cell = cellOf(row);
  cell.setAttribute("tabindex", 0);
  cell.setAttribute("aria-selected", true);
}

/** The steps of the chosen trajectory, with the numbers of both panes. */
function drawSteps(app) {
  const { group, panes, row: chosen } = app;
  const number = group.trajOf[chosen];
  const traj = group.trajs[number];
  byId("steps-heading").textContent =
    `Steps of ${brief(traj.name, 60)} (${traj.outcome})`;
  const rows = Array.from({ length: traj.steps }, (_, step) => {
    const row = traj.start + step;
    return [String(step), brief(group.actions[group.action[row]], 160),
      ...panes.flatMap((pane) => {
        const [v, q, credit] = pane.numbersOf(row);
        return [[exact(v), "number first"], [exact(q), "number"],
          [signed(credit), "number credit"]];
      })];
  });
  const body = bodyOf(rows);
  [...body.rows].forEach((line, step) => {
    line.dataset.row = traj.start + step;
    if (traj.start + step === chosen) line.setAttribute("aria-current", "true");
    line.querySelectorAll(".credit").forEach((cell, i) =>
      cell.style.setProperty(
        "--credit", panes[i].colourOf(traj.start + step)));
  });
  const shown = byId("steps").scrollTop;
  byId("steps-table").replaceChildren(
    headOf(
      [[null], [null], ...panes.map((pane) => [pane.title, 3, "first"])],
      [["Step"], ["Action"], ...panes.flatMap(() => [
        ["V", 1, "number first"], ["Q", 1, "number"],
        ["Advantage", 1, "number"]])]),
    body);
  byId("steps").scrollTop = shown;
  scrollTo(body.querySelector("[aria-current]"));
}

/** Brings a line of the steps into view, without moving the page. */
function scrollTo(line) {
  const box = byId("steps");
  const head = byId("steps-table").tHead.offsetHeight;
  const top = line.offsetTop - head - byId("steps-heading").offsetHeight;
  const bottom = line.offsetTop + line.offsetHeight - box.clientHeight;
  box.scrollTop = Math.max(Math.min(box.scrollTop, top), bottom);
}

function listenToStrips(app) {
  const pick = (event) => {
    const target = event.target.closest("[data-row]");
    if (target) app.choose(Number(target.dataset.row));
  };
  byId("strips").addEventListener("click", pick);
  byId("strips").addEventListener("focusin", pick);
  byId("steps-table").addEventListener("click", pick);
  byId("strips").addEventListener("keydown", (event) => {
    const to = rowAfterKey(app, event);
    if (to === undefined) return;
    event.preventDefault();
    cellOf(to).focus();
  });
}

/** The row that a key leads to: along a trajectory, or to another. */
function rowAfterKey({ group, row }, event) {
  const number = group.trajOf[row];
  const { start, end } = group.trajs[number];
  const inTraj = (n) => {
    const other = group.trajs[Math.min(Math.max(n, 0), group.trajs.length - 1)];
    return Math.min(other.start + row - start, other.end - 1);
  };
  switch (event.key) {
    case "ArrowLeft": return Math.max(row - 1, start);
    case "ArrowRight": return Math.min(row + 1, end - 1);
    case "ArrowUp": return inTraj(number - 1);
    case "ArrowDown": return inTraj(number + 1);
    case "Home": return start;
    case "End": return end - 1;
    default: return undefined;
  }
}
