// One side: an estimator, its depth, the graph and the graph as a table.

class Pane {
  constructor(side, start, app) {
    const root = byId("pane").content.cloneNode(true).firstElementChild;
    const find = (selector) => root.querySelector(selector);
    Object.assign(this, {
      root, side, app, viewIndex: start, depth: overview.views[start].start,
      estimator: find(".estimator"), slider: find("input"),
      output: find("output"), container: find(".graph"),
    });
    root.setAttribute("aria-label", `${side} estimator`);
    this.estimator.append(...overview.views.map(
      (view, i) => make("option", view.name, { value: i })));
    this.estimator.value = start;
    this.estimator.setAttribute("aria-label", `${side} estimator`);
    this.slider.setAttribute("aria-label", `${side} depth of the closure`);
    find(".scroll").setAttribute("aria-label", `${side} graph as a table`);
    this.estimator.addEventListener("change", () => {
      this.viewIndex = Number(this.estimator.value);
      this.depth = this.meta.start;
      app.refresh();
    });
    this.slider.addEventListener("input", () => {
      this.depth = Number(this.slider.value);
      app.refresh();
    });
    find(".in").addEventListener("click", () => this.graph.zoom(1.3));
    find(".out").addEventListener("click", () => this.graph.zoom(1 / 1.3));
    find(".fit").addEventListener("click", () => this.graph.fit());
    find("details").addEventListener("toggle", () => this.fillTable());
    this.container.addEventListener("keydown", (event) => this.onKey(event));
    byId("panes").append(root);
  }

  get meta() { return overview.views[this.viewIndex]; }

  get view() { return this.app.group.views[this.viewIndex]; }

  /** V, Q and credit of a row. */
  numbersOf(row) {
    const { v, q, credit } = this.view;
    return [v[this.depth][this.app.group.state[row]], q[this.depth][row],
      credit[this.depth][row]];
  }

  colourOf(row) {
    return advantageColour(this.view.credit[this.depth][row], this.reach);
  }

  get title() {
    const depth = this.meta.depths[this.depth];
    return depth === undefined ? this.meta.name
      : `${this.meta.name}, depth ${depth}`;
  }

  showGroup() {
    this.graph?.cy.destroy();
    this.graph = makeGraph(
      this.container, this.app.group, (rows) => this.app.chooseAmong(rows));
  }

  refresh() {
    const { meta, view, slider } = this;
    const group = this.app.group;
    this.reach = reachOf(view);
    slider.max = Math.max(meta.depths.length - 1, 0);
    slider.value = this.depth;
    slider.closest("label").hidden = !meta.depths.length;
    this.output.textContent = meta.depths[this.depth] ?? "";
    slider.setAttribute("aria-valuetext", this.output.textContent);
    this.root.querySelector(".caption").textContent =
      `Live on ${percent(view.live[this.depth])} of the steps`;
    updateGraph(this.graph.cy, group, view, this.depth);
    drawLegend(this.root.querySelector(".legend"), this.reach);
    this.container.setAttribute("aria-label",
      `${this.side} graph, ${this.title}: ${group.states.length} states, ` +
      `${group.edges.source.length} edges. Arrow keys move it, plus and ` +
      "minus zoom, zero fits. The table below says the same.");
    this.fillTable();
  }

  recolour() {
    this.graph.cy.style(graphStyle());
    this.refresh();
  }

  onKey(event) {
    const pan = { ArrowLeft: [60, 0], ArrowRight: [-60, 0],
      ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    const zoom = { "+": 1.3, "=": 1.3, "-": 1 / 1.3 }[event.key];
    if (pan) this.graph.cy.panBy({ x: pan[0], y: pan[1] });
    else if (zoom) this.graph.zoom(zoom);
    else if (event.key === "0") this.graph.fit();
    else return;
    event.preventDefault();
  }

  /** The graph in words, for screen readers and for search; once opened. */
  fillTable() {
    if (!this.root.querySelector("details").open) return;
    const group = this.app.group;
    const { source, target, action, count } = group.edges;
    const place = (state) => state < group.states.length
      ? `${state + 1}: ${brief(group.states[state], 60)}`
      : ENDS[state - group.states.length];
    const rows = source.map((from, edge) => [
      place(from), [short(this.view.v[this.depth][from]), "number"],
      brief(group.actions[action[edge]], 60), place(target[edge]),
      [String(count[edge]), "number"],
      [signed(Number(mean(group.rowsOn[edge], this.view.credit[this.depth])
        .toPrecision(4))), "number"],
    ]);
    this.root.querySelector("details table").replaceChildren(
      make("caption", `${this.title}: every edge of the merged graph`,
        { class: "sr" }),
      headOf([["State"], ["V", 1, "number"], ["Action"], ["Leads to"],
        ["Taken", 1, "number"], ["Advantage", 1, "number"]]),
      bodyOf(rows));
  }
}
