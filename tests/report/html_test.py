import base64
import dataclasses
import gzip
import hashlib
import importlib.resources
import json
import re
from html.parser import HTMLParser

import pytest

from crbc_jax import RolloutError, StepTable
from crbc_jax.report import html
from crbc_jax.report.report_data import ReportGroup
from tests.report import logs

CURVE = [
  {
    "kind": "eval",
    "update": update,
    "env_steps": 100 * update,
    "success_sampled": 0.1 * update,
    "success_greedy": 0.05 * update,
  }
  for update in range(3)
]


class Page(HTMLParser):
  """What a browser would make of a page."""

  def __init__(self, text):
    super().__init__()
    self.tags, self.data, self.comments = [("", {})], [""], []
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    self.tags.append((tag, dict(attrs)))
    self.data.append("")

  def handle_endtag(self, tag):
    self.tags.append(("", {}))  # what follows is not in the element
    self.data.append("")

  def handle_data(self, data):
    self.data[-1] += data

  def handle_comment(self, data):
    self.comments.append(data)

  def texts(self, tag, **attributes):
    """Texts of the elements of a kind."""
    return [
      text
      for (name, attrs), text in zip(self.tags, self.data, strict=True)
      if name == tag and attributes.items() <= attrs.items()
    ]

  @property
  def overview(self):
    (text,) = self.texts("script", id="overview")
    return json.loads(text)

  @property
  def groups(self):
    packed = self.texts("script", **{"class": "group"})
    return [json.loads(gzip.decompress(base64.b64decode(p))) for p in packed]


def write(tmp_path, groups, **options):
  out = tmp_path / "report.html"
  found = html.write_report(groups, out, **options)
  text = out.read_text(encoding="utf-8")
  assert found["bytes"] == len(text.encode())
  return found, Page(text), text


def test_page_holds_its_groups(tmp_path):
  tables = [logs.walk(seed, f"task {seed}") for seed in range(3)]
  found, page, _ = write(
    tmp_path,
    map(ReportGroup, tables),
    estimators=("grpo", "crbc", "grpo"),
    title="A title",
    notes=["A note."],
    curves={"runs/a": CURVE, "runs/without": []},
  )
  assert (found["groups"], found["rollouts"]) == (3, 18)
  assert found["steps"] == sum(map(len, tables))
  assert found["text_length"] == 300
  overview = page.overview
  assert overview["title"] == "A title" and overview["notes"] == ["A note."]
  assert page.texts("title") == ["A title"]
  assert [v["name"] for v in overview["views"]] == ["grpo", "crbc"]
  assert [g["id"] for g in overview["groups"]] == ["task 0", "task 1", "task 2"]
  assert [len(g["state"]) for g in page.groups] == [len(t) for t in tables]
  (curve,) = overview["curves"]
  assert curve["name"] == "runs/a"
  assert curve["points"][2] == {
    "env_steps": 200,
    "success_sampled": 0.2,
    "success_greedy": 0.1,
  }


def test_texts_of_a_log_are_data_only(tmp_path):
  _, plain, _ = write(tmp_path, [ReportGroup(logs.walk())])
  nasty = logs.NASTY
  _, page, text = write(
    tmp_path,
    [logs.nasty_group()],
    title=nasty[1],
    notes=list(nasty),
    curves={nasty[0]: CURVE},
  )
  assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
  assert {n for _, attrs in page.tags for n in attrs} == {
    n for _, attrs in plain.tags for n in attrs
  }
  assert page.comments == plain.comments
  assert "pwned = 1</script>" not in text and "<img" not in text
  assert page.texts("title") == [nasty[1]]
  assert page.overview["notes"][:3] == list(nasty[:3])
  assert page.overview["groups"][0]["id"] == nasty[1]
  assert set(page.groups[0]["states"]) == set(nasty)


def test_only_the_scripts_of_the_page_may_run(tmp_path):
  _, page, _ = write(tmp_path, [logs.nasty_group()])
  (policy,) = [
    attrs["content"]
    for tag, attrs in page.tags
    if attrs.get("http-equiv") == "Content-Security-Policy"
  ]
  rules = dict(rule.split(" ", 1) for rule in policy.split("; "))

  def digest(text):
    raw = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(raw).decode()}'"

  programs = [
    text
    for (tag, attrs), text in zip(page.tags, page.data, strict=True)
    if tag == "script" and "type" not in attrs
  ]
  assert len(programs) == 3
  assert rules["default-src"] == "'none'"
  assert rules["script-src"].split() == [digest(text) for text in programs]
  assert [rules["style-src"]] == [digest(t) for t in page.texts("style")]


def test_nothing_is_fetched(tmp_path):
  _, page, _ = write(tmp_path, [ReportGroup(logs.walk())])
  links = [
    attrs[name]
    for _, attrs in page.tags
    for name in ("src", "href", "action", "data", "srcset")
    if name in attrs
  ]
  assert links == ["#explore"]
  assert "@import" not in page.texts("style")[0]
  assert "url(" not in page.texts("style")[0]


def test_long_texts_are_cut_to_fit(tmp_path, monkeypatch):
  table = logs.walk()
  texts = [f"{i}: " + "x" * 1000 for i in range(len(table))]
  group = ReportGroup(table, texts, texts)
  found, page, _ = write(tmp_path, [group])
  assert found["text_length"] == 300
  assert {len(t) for t in page.groups[0]["actions"]} == {300}
  assert all(t.endswith("x…") for t in page.groups[0]["states"])
  monkeypatch.setattr(html, "MAX_BYTES", found["bytes"] - 1)
  found, page, _ = write(tmp_path, [group])
  assert found["text_length"] == 120
  assert {len(t) for t in page.groups[0]["actions"]} == {120}


def test_same_bytes_each_time(tmp_path):
  _, _, first = write(tmp_path, [ReportGroup(logs.walk())])
  _, _, again = write(tmp_path, [ReportGroup(logs.walk())])
  assert first == again


def test_nothing_is_written_when_a_group_fails(tmp_path):
  out = tmp_path / "report.html"
  whole = logs.walk(0, "a")
  broken = StepTable.from_rows(logs.walk_rows(0, "b")[:-1])

  def groups():
    yield ReportGroup(whole)
    yield ReportGroup(broken)

  with pytest.raises(RolloutError):
    html.write_report(groups(), out)
  with pytest.raises(RolloutError, match="no groups"):
    html.write_report([], out)
  with pytest.raises(ValueError, match="at least one estimator"):
    html.write_report([ReportGroup(whole)], out, estimators=())
  assert not list(tmp_path.iterdir())
  out.write_text("old")
  with pytest.raises(RolloutError):
    html.write_report(groups(), out)
  assert out.read_text() == "old"


def test_values_that_miss_their_equation_are_reported(tmp_path):
  views = [html.make_view("crbc")]
  (group,) = html.report_groups([ReportGroup(logs.walk())], views)
  assert html._warnings([group], views) == []
  inexact = dataclasses.replace(
    group, summary=group.summary | {"inexact": True, "id": "g7"}
  )
  (note,) = html._warnings([group, inexact], views)
  assert note.startswith("The values of 1 group(s)") and "g7" in note


def test_a_key_that_hides_state_is_reported(tmp_path):
  ways = [("a", "success"), ("b", "failure")] * 3
  tables = [
    StepTable.from_rows(
      {
        "group_id": group,
        "traj_id": f"{group}{i}",
        "step_idx": t,
        "state_key": state,
        "action_key": "go",
        "boundary": end,
      }
      for i, (way, last) in enumerate(ways)
      for t, (state, end) in enumerate([(way, "none"), ("door", last)])
    )
    for group in "pqrstuvw"
  ]
  path = tmp_path / "report.html"
  for estimator, told in (("crbc", True), ("grpo", False)):
    html.write_report(map(ReportGroup, tables), path, estimators=[estimator])
    notes = Page(path.read_text()).overview["notes"]
    assert any("'door' of group p" in note for note in notes) == told


def test_vendored_files_are_those_that_are_named():
  folder = importlib.resources.files("crbc_jax.report") / "assets"
  rows = re.findall(
    r"^\| (\S+\.js) \|.*\| ([0-9a-f]{64}) \|$",
    (folder / "VENDORED.md").read_text(),
    re.MULTILINE,
  )
  assert [name for name, _ in rows] == ["cytoscape.min.js", "dagre.min.js"]
  for name, digest in rows:
    content = (folder / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == digest
    licence = folder / f"LICENSE.{name.split('.')[0]}"
    assert "free of charge" in licence.read_text()


@pytest.mark.slow
def test_a_hundred_groups_fit_in_five_megabytes(tmp_path):
  groups = [
    ReportGroup(logs.walk(i, i, rollouts=8, steps=50, states=26, falls=0.002))
    for i in range(100)
  ]
  found, _, _ = write(tmp_path, groups)
  assert found["steps"] > 30_000
  assert found["bytes"] < 5_000_000 and found["text_length"] == 300
