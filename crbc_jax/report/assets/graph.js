// The merged graph of a group: dagre places it, cytoscape draws it.

/** Positions of states and ends, computed once for both panes. */
function positionsOf(group) {
  if (group.positions) return group.positions;
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 18,
    ranksep: group.states.length > 40 ? 24 : 52 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { data } of nodesOf(group)) {
    graph.setNode(data.id, { width: data.width, height: data.size });
  }
  const { source, target, count } = group.edges;
  source.forEach((from, edge) => {
    const [a, b] = [`n${from}`, `n${target[edge]}`];
    const known = graph.edge(a, b);
    if (known) known.weight += count[edge];
    else if (a !== b) graph.setEdge(a, b, { weight: count[edge] });
  });
  dagre.layout(graph);
  group.positions = Object.fromEntries(graph.nodes().map((id) => {
    const { x, y } = graph.node(id);
    return [id, { x, y }];
  }));
  return group.positions;
}

function nodesOf(group) {
  const starts = new Set(group.trajs.map((traj) => group.state[traj.start]));
  const states = group.rowsAt.map((rows, state) => {
    const size = 34 + Math.min(26, 6 * Math.log2(rows.length));
    return { data: { id: `n${state}`, size, width: size, label: "",
      colour: palette.node },
      classes: starts.has(state) ? "start" : "" };
  });
  const ends = ENDS.flatMap((end, i) => group.endings[i] ? [{ data: {
    id: `n${group.states.length + i}`, size: 36, width: 104,
    label: `${END_MARK[end]} ${end} ×${group.endings[i]}`,
    colour: palette.neutral,
  }, classes: `end ${end}` }] : []);
  return [...states, ...ends];
}

function edgesOf(group) {
  const { source, target, action, count } = group.edges;
  return source.map((from, edge) => ({ data: {
    id: `e${edge}`, source: `n${from}`, target: `n${target[edge]}`,
    label: brief(group.actions[action[edge]], 22),
    thickness: Math.min(1.5 + 1.3 * Math.log2(count[edge]), 7),
    width: 1, colour: palette.neutral,
  } }));
}

function graphStyle() {
  const font = "system-ui, sans-serif";
  const end = (name) => ({ selector: `.${name}`, style: {
    "background-color": palette[name], color: palette.surface } });
  return [
    { selector: "node", style: {
      width: "data(width)", height: "data(size)", label: "data(label)",
      "background-color": "data(colour)", "border-width": 1,
      "border-color": palette.muted, color: palette.text,
      "font-family": font, "font-size": 11, "text-wrap": "wrap",
      "text-valign": "center", "text-halign": "center",
      "min-zoomed-font-size": 7 } },
    { selector: ".start", style: {
      "border-width": 4, "border-style": "double" } },
    { selector: ".end", style: {
      shape: "round-rectangle", "border-width": 0, "font-weight": 600,
      "min-zoomed-font-size": 4 } },
    ...ENDS.map(end),
    { selector: "edge", style: {
      width: "data(width)", "line-color": "data(colour)",
      "target-arrow-color": "data(colour)", "target-arrow-shape": "triangle",
      "arrow-scale": 0.9, "curve-style": "bezier",
      "control-point-step-size": 34, "loop-direction": "-45deg",
      "loop-sweep": "50deg",
      label: "data(label)", "font-family": font, "font-size": 10,
      color: palette.muted, "text-background-color": palette.surface,
      "text-background-opacity": 0.85, "text-background-padding": 1,
      "text-rotation": "autorotate", "min-zoomed-font-size": 14 } },
    { selector: "edge.chosen, edge.hover", style: {
      color: palette.text, "font-size": 11, "min-zoomed-font-size": 0,
      "z-index": 9,
      "z-index-compare": "manual" } },
    { selector: "node", style: { "underlay-shape": "ellipse" } },
    { selector: ".path", style: {
      "underlay-color": palette.select, "underlay-opacity": 0.22,
      "underlay-padding": 4 } },
    { selector: ".chosen", style: {
      "underlay-color": palette.select, "underlay-opacity": 0.75,
      "underlay-padding": 5 } },
  ];
}

/** Draws a group into an element; `choose(row)` is called on clicks. */
function makeGraph(container, group, choose) {
  const positions = positionsOf(group);
  const cy = cytoscape({
    container,
    elements: { nodes: nodesOf(group), edges: edgesOf(group) },
    style: graphStyle(),
    layout: { name: "preset", positions: (node) => positions[node.id()] },
    minZoom: 0.03, maxZoom: 4,
    autoungrabify: true, autounselectify: true, boxSelectionEnabled: false,
  });
  const numberOf = (element) => Number(element.id().slice(1));
  cy.on("tap", "edge", ({ target }) => choose(group.rowsOn[numberOf(target)]));
  cy.on("mouseover mouseout", "edge", ({ target, type }) =>
    target.toggleClass("hover", type === "mouseover"));
  cy.on("tap", "node", ({ target }) => {
    const state = numberOf(target);
    choose(group.rowsAt[state] ?? group.edges.target.flatMap(
      (to, edge) => (to === state ? group.rowsOn[edge] : [])));
  });
  const fit = () => {
    cy.fit(undefined, 18);
    if (cy.zoom() > 1.3) {
      cy.zoom(1.3);
      cy.center();
    }
    // What is small on the screen still has to have a colour.
    const coarse = Math.min(Math.max(0.8 / cy.zoom(), 1), 3);
    cy.batch(() => cy.edges().forEach((edge) => {
      edge.data("width", coarse * edge.data("thickness"));
    }));
  };
  const zoom = (factor) => cy.zoom({
    level: cy.zoom() * factor,
    renderedPosition: { x: cy.width() / 2, y: cy.height() / 2 } });
  fit();
  return { cy, fit, zoom };
}

/** Numbers and colours of a view at a depth. */
function updateGraph(cy, group, view, depth) {
  const [reach, span] = [reachOf(view), spanOf(view)];
  cy.batch(() => {
    group.rowsAt.forEach((rows, state) => {
      const v = view.v[depth][state];
      cy.getElementById(`n${state}`).data({
        v, label: `${short(v)}\n×${rows.length}`, colour: valueColour(v, span),
      });
    });
    group.rowsOn.forEach((rows, edge) => {
      const credit = mean(rows, view.credit[depth]);
      cy.getElementById(`e${edge}`).data({
        credit, colour: advantageColour(credit, reach) });
    });
  });
}

/** Moves the view to a state that lies outside of it. */
function keepInView(cy, node) {
  const { x, y } = node.renderedPosition();
  if (x < 0 || y < 0 || x > cy.width() || y > cy.height()) cy.center(node);
}

/** Marks a trajectory's path, and the step that is chosen. */
function markPath(cy, group, row) {
  const { start, end } = group.trajs[group.trajOf[row]];
  cy.batch(() => {
    cy.elements().removeClass("path chosen");
    for (let step = start; step < end; step++) {
      cy.getElementById(`e${group.edge[step]}`).addClass("path");
    }
    cy.getElementById(`e${group.edge[row]}`).addClass("chosen");
    cy.getElementById(`n${group.state[row]}`).addClass("chosen");
  });
  keepInView(cy, cy.getElementById(`n${group.state[row]}`));
}
