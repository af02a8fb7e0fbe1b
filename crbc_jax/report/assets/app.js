// What is shown: a group, two panes, and one chosen step.

class App {
  constructor() {
    const views = overview.views.length;
    this.panes = [new Pane("Left", 0, this),
      new Pane("Right", Math.min(1, views - 1), this)];
    const names = withoutCommonStart(overview.groups.map((group) => group.id));
    byId("group").append(...overview.groups.map((group, i) => make(
      "option", `${brief(names[i], 40)} · ${group.success}/${group.rollouts} ` +
      `success, ${group.steps} steps`, { value: i })));
    byId("group").addEventListener(
      "change", () => this.show(Number(byId("group").value)));
    byId("previous").addEventListener("click", () => this.show(this.index - 1));
    byId("next").addEventListener("click", () => this.show(this.index + 1));
    dark.addEventListener("change", () => {
      palette = readPalette();
      for (const pane of this.panes) pane.recolour();
      this.refresh();
    });
    listenToStrips(this);
  }

  /** Shows the group with number `index`. */
  async show(index) {
    const last = overview.groups.length - 1;
    this.index = Math.min(Math.max(index, 0), last);
    byId("group").value = this.index;
    byId("previous").disabled = this.index === 0;
    byId("next").disabled = this.index === last;
    const wanted = this.index;
    const group = await loadGroup(wanted);
    if (wanted !== this.index) return; // another was chosen meanwhile
    this.group = group;
    this.row = 0;
    byId("group-summary").textContent =
      `${count(group.rollouts, "rollout")}, ${count(group.steps, "step")}, ` +
      `${count(group.anchors, "state")}: ` + ENDS.filter((end) => group[end])
        .map((end) => `${group[end]} ${end}`).join(", ");
    for (const pane of this.panes) pane.showGroup();
    drawStrips(this);
    this.refresh();
  }

  /** Redraws numbers and colours. */
  refresh() {
    for (const pane of this.panes) pane.refresh();
    updateStrips(this);
    this.choose(this.row);
  }

  /** Chooses a step. */
  choose(row) {
    this.row = row;
    markCell(row);
    for (const pane of this.panes) markPath(pane.graph.cy, this.group, row);
    drawSteps(this);
    drawState(this);
  }

  /** Chooses one of several steps, of the present trajectory if it can. */
  chooseAmong(rows) {
    const { trajOf } = this.group;
    const here = trajOf[this.row];
    this.choose(rows.find((row) => trajOf[row] === here) ?? rows[0]);
  }
}

function fail(error) {
  byId("failure").hidden = false;
  byId("failure").textContent = `This report cannot be shown: ${error.message}`;
  throw error;
}

try {
  drawOverview();
  // A group with both outcomes has more to show.
  const first = overview.groups.findIndex((group) => !isDead(group));
  new App().show(first).catch(fail);
} catch (error) {
  fail(error);
}
