// The overview: shares of all groups, and how large the step groups are.

function total(name) {
  return overview.groups.reduce((sum, group) => sum + group[name], 0);
}

/** Mean over groups of a share of steps, each step counting once. */
function shareOfSteps(shareOf) {
  return overview.groups.reduce(
    (sum, group) => sum + group.steps * shareOf(group), 0) / total("steps");
}

/** Whether all rollouts of a group ended alike: nothing to compare. */
const isDead = (group) =>
  group.success === group.rollouts || group.success === 0;

function drawOverview() {
  const groups = overview.groups.length;
  const solved = overview.groups.filter(
    (group) => group.success === group.rollouts).length;
  const alone = overview.groups.filter((group) => group.rollouts === 1).length;
  const uniform = overview.groups.filter(isDead).length;
  byId("title").textContent = overview.title;
  byId("notes").replaceChildren(
    ...overview.notes.map((note) => make("p", note)));
  const tiles = [
    ["Groups", groups.toLocaleString("en")],
    ["Rollouts", total("rollouts").toLocaleString("en")],
    ["Steps", total("steps").toLocaleString("en")],
    ["Success", percent(total("success") / total("rollouts")),
      `${total("failure")} failed, ${total("truncated")} truncated`],
    ["Dead groups", percent(uniform / groups),
      `${solved} all success, ${uniform - solved} no success` +
      (alone ? `; ${alone} of one rollout` : "")],
    ["Singleton steps", percent(shareOfSteps((g) => g.singletons)),
      "alone at their state"],
  ];
  byId("tiles").replaceChildren(...tiles.map(([name, value, more]) => make(
    "div", [make("dt", name), make("dd", value),
      ...(more ? [make("dd", more, { class: "more" })] : [])])));
  const { bins } = overview;
  drawBars("sizes", "Visits of a state, share of steps", bins.map((low, i) => {
    const high = bins[i + 1] - 1;
    const name = i + 1 === bins.length ? `${low}+`
      : high > low ? `${low}–${high}` : `${low}`;
    return [name, shareOfSteps((group) => group.sizes[i])];
  }));
  drawBars("live", "Live step credit, share of steps", overview.views.map(
    (view, i) => [view.name, shareOfSteps((group) => group.live[i])]));
  byId("charts").append(...overview.curves.map(drawCurve));
}

/** Horizontal bars with their numbers; `bars` holds [name, share]. */
function drawBars(id, title, bars) {
  byId(id).replaceChildren(make("figcaption", title), make("table", make(
    "tbody", bars.map(([name, share]) => make("tr", [
      make("th", name, { scope: "row" }),
      make("td", percent(share)),
      make("td", draw("svg", {
        viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": true,
      }, draw("rect", { class: "bar-fill", width: 100 * share, height: 10 })),
      { class: "bar-cell" }),
    ])))));
}

/** Held-out success of a run against environment steps. */
function drawCurve({ name, points }) {
  const [width, height, left, bottom] = [420, 150, 34, 18];
  const last = points.at(-1);
  const x = (steps) => left + (width - left - 8) * steps /
    Math.max(last.env_steps, 1);
  const y = (success) => 6 + (height - bottom - 6) * (1 - success);
  const line = (kind) => draw("polyline", { class: kind, points: points.map(
    (point) => `${x(point.env_steps)},${y(point[kind])}`).join(" ") });
  const scale = [0, 0.5, 1].flatMap((level) => [
    draw("line", { x1: left, x2: width - 8, y1: y(level), y2: y(level) }),
    draw("text", { x: left - 6, y: y(level) + 4, "text-anchor": "end" },
      String(level)),
  ]);
  const steps = `${last.env_steps.toLocaleString("en")} environment steps`;
  const words = `held-out success ${percent(last.success_sampled)} sampled ` +
    `(solid), ${percent(last.success_greedy)} greedy (dashed)`;
  return make("figure", [
    make("figcaption", `${name}: ${words}`),
    draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `Learning curve of ${name}: ${words} after ${steps}` }, [
      ...scale, line("success_sampled"), line("success_greedy"),
      draw("text", { x: width - 8, y: height - 4, "text-anchor": "end" },
        steps)]),
  ], { class: "curve" });
}
