// The state of the chosen step: its text, and what was done there.

function drawState(app) {
  const { group, panes, row: chosen } = app;
  const state = group.state[chosen];
  const rows = group.rowsAt[state];
  byId("state-heading").textContent = `State ${state + 1}`;
  byId("state-text").textContent = group.states[state];
  const trajs = new Set(rows.map((row) => group.trajOf[row]));
  const values = panes.map(
    (pane) => `V ${exact(pane.view.v[pane.depth][state])} (${pane.title})`);
  byId("state-summary").textContent =
    `${count(rows.length, "visit")} in ${count(trajs.size, "trajectory")}; ` +
    `${values.join(", ")}`;
  const byPair = new Map();
  for (const row of rows) {
    const pair = group.pair[row];
    byPair.set(pair, [...(byPair.get(pair) ?? []), row]);
  }
  const actions = [...byPair].sort((a, b) => b[1].length - a[1].length);
  const body = bodyOf(actions.map(([, taken]) => [
    brief(group.actions[group.action[taken[0]]], 90),
    [String(taken.length), "number"],
    ...panes.map((pane) => [signed(Number(
      mean(taken, pane.view.credit[pane.depth]).toPrecision(4))), "number"]),
  ]));
  actions.forEach(([pair], i) => {
    if (pair === group.pair[chosen]) {
      body.rows[i].setAttribute("aria-current", "true");
    }
  });
  byId("state-table").replaceChildren(
    headOf([["Actions seen here"], ["Taken", 1, "number"],
      ...panes.map((pane) => [pane.title, 1, "number"])]), body);
}

function count(n, noun) {
  return `${n} ${n === 1 ? noun : noun.replace(/y$/, "ie") + "s"}`;
}
