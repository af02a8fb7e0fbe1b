"""The report in a real browser: Chromium, driven by Playwright.

Skipped where either is missing: `pip install -e .[browser]`, and a Chromium
(Debian: `apt-get install chromium`), or its path in $CRBC_CHROMIUM.
"""

import functools
import operator
import os
import re
import shutil

import jax
import numpy as np
import pytest

from crbc_jax import StepTable, crbc_depths, credit_table, make_batch
from crbc_jax.report import html
from crbc_jax.report.report_data import DEPTHS, ReportGroup
from tests.report import logs

sync_api = pytest.importorskip(
  "playwright.sync_api", reason="pip install playwright for the browser tests"
)

CHROMIUM = os.environ.get("CRBC_CHROMIUM") or next(
  filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))),
  None,
)
ESTIMATORS = ("crbc", "gigpo", "grpo", "crbc(depth=2)")


@pytest.fixture(scope="module")
def browser():
  if CHROMIUM is None:
    pytest.skip("no Chromium found; name it in CRBC_CHROMIUM")
  with sync_api.sync_playwright() as playwright:
    launched = playwright.chromium.launch(
      executable_path=CHROMIUM,
      args=["--no-sandbox"],  # containers run as root
    )
    yield launched
    launched.close()


@pytest.fixture(scope="module")
def tables():
  dead = logs.walk(5, "dead", states=50)
  return [dead, logs.walk(1, "task 1"), logs.walk(2, "task 2")]


@pytest.fixture(scope="module")
def report(tables, tmp_path_factory):
  path = tmp_path_factory.mktemp("report") / "report.html"
  curve = [
    {"env_steps": s, "success_sampled": 0.5, "success_greedy": 0.25}
    for s in (0, 1000)
  ]
  html.write_report(
    map(ReportGroup, tables),
    path,
    estimators=ESTIMATORS,
    title="A report",
    curves={"runs/a": curve},
  )
  return path


@pytest.fixture
def open_page(browser):
  """Opens a file from disk, without a network; fails on any complaint."""
  complaints, contexts = [], []

  def go(path, scheme="light", width=1280):
    context = browser.new_context(
      color_scheme=scheme,
      viewport={"width": width, "height": 900},
      offline=True,
    )
    contexts.append(context)
    page = context.new_page()
    page.set_default_timeout(10_000)
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
      "request",
      lambda request: (
        request.url == path.as_uri() or complaints.append(request.url)
      ),
    )
    page.goto(path.as_uri())
    page.wait_for_selector("#steps-table tbody tr")
    return page

  yield go
  for context in contexts:
    context.close()
  assert complaints == []


@pytest.fixture
def page(open_page, report):
  return open_page(report)


def pane(page, side):
  return page.get_by_role("region", name=f"{side} estimator")


def graph(page, side, expression):
  """Evaluates an expression of `cy`, the drawn graph of a side."""
  return (
    pane(page, side)
    .locator(".graph")
    .evaluate(
      f"element => {{ const cy = element._cyreg.cy; return {expression}; }}"
    )
  )


def number(text):
  return float(text.replace("−", "-"))


def shown_steps(page):
  """Steps of the chosen trajectory: action, then three numbers per side."""
  rows = page.locator("#steps-table tbody tr").evaluate_all(
    "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
  )
  return [row[1] for row in rows], np.array(
    [[number(cell) for cell in row[2:]] for row in rows]
  )


def chosen_traj(page):
  """Id of the trajectory whose steps are shown."""
  header = page.locator(".strip:has([aria-selected]) [role=rowheader]")
  return header.get_attribute("title")


def check_numbers(page, table, side, credit):
  """The chosen trajectory is shown with this credit [S] of the table."""
  rows = np.flatnonzero(table.traj_id == chosen_traj(page))
  actions, numbers = shown_steps(page)
  assert actions == list(table.action_key[rows])
  wanted = np.stack([credit.v, credit.q, credit.advantage], axis=1)[rows]
  shown = numbers[:, :3] if side == "Left" else numbers[:, 3:]
  np.testing.assert_allclose(shown, wanted, rtol=5.1e-4, atol=1e-6)


@functools.cache
def credit_of(table, text):
  """Credit by the library, once for each table and estimator."""
  return credit_table(table, text)


def test_graph_has_the_states_and_transitions_of_the_group(page, tables):
  table = tables[1]  # the first group with both outcomes is shown first
  assert page.locator("#group").input_value() == "1"
  names = {1: "success", 2: "failure", 3: "truncated"}
  target = [
    names.get(b, after)
    for b, after in zip(table.boundary, table.next_state_key, strict=True)
  ]
  ends = set(target) & set(names.values())
  edges = set(zip(table.state_key, table.action_key, target, strict=True))
  for side in ("Left", "Right"):
    assert graph(page, side, "cy.nodes().length") == len(
      set(table.state_key)
    ) + len(ends)
    assert graph(page, side, "cy.edges().length") == len(edges)
  v = credit_of(table, "crbc").v
  at_start = table.state_key == "room 0"
  label = graph(page, "Left", "cy.getElementById('n0').data('label')")
  assert label == f"{v[at_start][0]:.2g}\n×{at_start.sum()}"
  pane(page, "Left").get_by_text("The graph as a table").click()
  body = pane(page, "Left").locator("details tbody tr")
  sync_api.expect(body).to_have_count(len(edges))


def test_slider_shows_the_numbers_of_each_depth(page, tables):
  table = tables[1]
  batch = make_batch(table)
  group = jax.tree.map(lambda x: x[0], batch.arrays)
  deep = crbc_depths(group, depths=DEPTHS)  # rows are in order already
  slider = page.get_by_label("Left depth of the closure")
  label = graph(page, "Left", "cy.getElementById('n1').data('label')")
  for d in range(len(DEPTHS)):
    slider.fill(str(d))
    at_depth = jax.tree.map(operator.itemgetter(d), deep)
    check_numbers(page, table, "Left", at_depth)
    check_numbers(page, table, "Right", credit_of(table, "gigpo"))
  slider.fill("0")
  assert label != graph(page, "Left", "cy.getElementById('n1').data('label')")


def test_estimators_are_chosen_on_either_side(page, tables):
  page.get_by_label("Left estimator").get_by_role("combobox").select_option(
    "grpo"
  )
  page.get_by_label("Right estimator").get_by_role("combobox").select_option(
    "crbc(depth=2)"
  )
  check_numbers(page, tables[1], "Left", credit_of(tables[1], "grpo"))
  check_numbers(page, tables[1], "Right", credit_of(tables[1], "crbc(depth=2)"))
  assert not page.get_by_label("Left depth of the closure").is_visible()
  assert page.get_by_label("Right depth of the closure").input_value() == "2"
  legend = pane(page, "Left").locator(".ticks li").all_text_contents()
  most = np.abs(credit_of(tables[1], "grpo").advantage).max()
  assert number(legend[-1]) == pytest.approx(most, rel=5e-3)
  assert number(legend[0]) == -number(legend[-1])


def test_groups_are_chosen(page, tables):
  page.get_by_role("button", name="Next group").click()
  sync_api.expect(page.locator(".traj").first).to_have_attribute(
    "title", "task 2/0"
  )
  check_numbers(page, tables[2], "Left", credit_of(tables[2], "crbc"))
  assert page.get_by_role("button", name="Next group").is_disabled()
  page.locator("#group").select_option("0")
  sync_api.expect(page.locator(".traj").first).to_have_attribute(
    "title", "dead/0"
  )
  check_numbers(page, tables[0], "Left", credit_of(tables[0], "crbc"))


def test_clicks_on_the_graph_and_the_strips_choose_a_step(page, tables):
  cells = page.locator("#strips .cell")
  assert cells.count() == len(tables[1])
  cells.nth(len(tables[1]) - 1).click()
  assert chosen_traj(page) == tables[1].traj_id[-1]
  assert cells.nth(len(tables[1]) - 1).get_attribute("aria-selected")
  path = graph(page, "Right", "cy.edges('.path').length")
  last = tables[1].traj_id == tables[1].traj_id[-1]
  moves = zip(
    tables[1].state_key[last], tables[1].action_key[last], strict=True
  )
  assert path >= len(set(moves))
  at = graph(page, "Left", "cy.getElementById('n2').renderedPosition()")
  canvas = pane(page, "Left").locator(".graph")
  canvas.hover(position=at)  # scrolls; a click of the same instant would miss
  page.evaluate("new Promise(done => setTimeout(done, 200))")
  canvas.click(position=at)
  sync_api.expect(page.locator("#state-heading")).to_have_text("State 3")
  text = page.text_content("#state-text")
  visits = (tables[1].state_key == text).sum()
  assert page.text_content("#state-summary").startswith(f"{visits} visit")


def test_keyboard_alone(page, tables):
  reached = []
  for _ in range(40):
    page.keyboard.press("Tab")
    focus = page.evaluate(
      """() => {
        const at = document.activeElement;
        const style = getComputedStyle(at);
        return [at.id || at.classList[0] || at.tagName, style.outlineStyle,
          at.getAttribute("aria-label") ?? at.textContent];
      }"""
    )
    if focus[0] == "BODY" or (reached and focus == reached[0]):
      break
    reached.append(focus)
  names = [name for name, _, _ in reached]
  for name in ("group", "next", "estimator", "graph", "fit", "cell"):
    assert name in names, names
  assert names.count("graph") == 2 and names.count("cell") == 1
  assert names.count("INPUT") == 1  # gigpo has no depth
  assert all(outline != "none" for _, outline, _ in reached)
  assert all(label.strip() for _, _, label in reached)

  page.locator("#strips [tabindex='0']").focus()
  first = chosen_traj(page)
  for _ in range(2):
    page.keyboard.press("ArrowRight")
  current = page.locator("#steps-table tr[aria-current] th")
  assert current.text_content() == "2"
  page.keyboard.press("ArrowDown")
  second = chosen_traj(page)
  assert second != first
  length = (tables[1].traj_id == second).sum()
  assert current.text_content() == str(min(2, length - 1))
  page.keyboard.press("ArrowUp")
  assert chosen_traj(page) == first
  page.keyboard.press("Home")
  assert current.text_content() == "0"
  page.keyboard.press("End")
  steps = (tables[1].traj_id == first).sum()
  assert current.text_content() == str(steps - 1)

  page.get_by_label("Left depth of the closure").focus()
  page.keyboard.press("ArrowLeft")
  assert pane(page, "Left").locator("output").text_content() == "16"
  check_numbers(page, tables[1], "Left", credit_of(tables[1], "crbc(depth=16)"))

  pane(page, "Left").locator(".graph").focus()
  zoom, pan = graph(page, "Left", "cy.zoom()"), graph(page, "Left", "cy.pan()")
  page.keyboard.press("ArrowLeft")
  assert graph(page, "Left", "cy.pan().x") > pan["x"]
  page.keyboard.press("+")
  assert graph(page, "Left", "cy.zoom()") > zoom
  page.keyboard.press("0")
  assert graph(page, "Left", "cy.zoom()") == pytest.approx(zoom)


def test_screen_readers_get_names_and_landmarks(page):
  assert page.locator("html").get_attribute("lang") == "en"
  assert page.title() == "A report"
  for role in ("banner", "main", "contentinfo", "complementary"):
    assert page.get_by_role(role).count() == 1
  assert page.get_by_role("heading", level=1).text_content() == "A report"
  label = pane(page, "Left").locator(".graph").get_attribute("aria-label")
  assert re.match(r"Left graph, crbc, depth ∞: \d+ states, \d+ edges\.", label)
  cell = page.locator("#strips [tabindex='0']").get_attribute("aria-label")
  assert re.match(r"Step 0, walk [+-]\d; advantage crbc, depth ∞ [+−]", cell)
  curve = page.get_by_role("img", name="Learning curve of runs/a")
  assert "50 % sampled" in curve.get_attribute("aria-label")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_scheme_and_the_sign(open_page, report, scheme):
  page = open_page(report, scheme=scheme)
  background = page.locator("body").evaluate(
    "e => getComputedStyle(e).backgroundColor.match(/\\d+/g).map(Number)"
  )
  assert (np.mean(background) < 80) == (scheme == "dark")
  edges = graph(
    page, "Left", "cy.edges().map(e => [e.data('credit'), e.data('colour')])"
  )
  for credit, colour in edges:
    red, _, blue = map(int, re.findall(r"\d+", colour))
    if abs(credit) > 0.5:
      assert (blue > red) == (credit > 0)
  assert {credit > 0 for credit, _ in edges} == {True, False}


def test_colours_change_with_the_scheme(page):
  """While the page is open: at dusk, say."""
  colours = "cy.edges().map(e => e.data('colour')).join()"
  light = graph(page, "Left", colours)
  page.emulate_media(color_scheme="dark")
  for _ in range(100):  # the page hears of it when the browser gets to it
    if graph(page, "Left", colours) != light:
      break
    page.wait_for_timeout(100)
  else:
    pytest.fail("the colours are still those of the light scheme")


def test_a_narrow_window_does_not_scroll_sideways(open_page, report):
  page = open_page(report, width=420)
  assert page.evaluate("document.documentElement.scrollWidth") <= 420


def test_logs_run_nothing(open_page, tmp_path):
  path = tmp_path / "report.html"
  html.write_report(
    [logs.nasty_group()], path, title=logs.NASTY[0], notes=logs.NASTY[:3]
  )
  page = open_page(path)
  assert page.evaluate("window.pwned") is None
  assert page.locator("main img, main script").count() == 0
  assert page.text_content("#state-text") == logs.NASTY[0]
  assert page.text_content("h1") == logs.NASTY[0]
  assert page.locator("#notes p").all_text_contents() == list(logs.NASTY[:3])
  assert logs.NASTY[1] in page.locator("#steps-table").text_content()


def test_large_groups(open_page, tmp_path):
  path = tmp_path / "report.html"
  table = logs.walk(rollouts=16, steps=60, states=300, falls=0)
  texts = [f"state {i}" for i in range(len(table))]
  keys = np.array([*map(str, range(len(table)))], object)  # nothing recurs
  rows = {"state_key": keys, "boundary": table.boundary}
  rows |= {
    name: getattr(table, name)
    for name in ("group_id", "traj_id", "step_idx", "action_key")
  }
  html.write_report([ReportGroup(StepTable.from_columns(**rows), texts)], path)
  page = open_page(path)
  assert graph(page, "Left", "cy.nodes().length") == 16 * 60 + 1
  assert graph(page, "Left", "cy.extent().w") > 1000  # all of it is in view
