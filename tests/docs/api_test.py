"""The API page: equations keep their lines, links lead somewhere."""

import textwrap

import pytest

pytest.importorskip("pdoc")
api = pytest.importorskip("tests.docs.api")


def test_equations_keep_their_lines():
  text = textwrap.dedent("""\
    Values.

      V = T V
      Q = B V

    Prose that is
    two lines.

    Args:
      beta: discount,
        in (0, 1].

    Returns:
      Values.
    """)
  fenced = text.replace("  V = T V", "```text\n  V = T V")
  fenced = fenced.replace("  Q = B V\n", "  Q = B V\n```\n").rstrip("\n")
  assert api.keep_equations(text).rstrip("\n") == fenced


def test_an_equation_may_end_a_docstring():
  assert api.keep_equations("V.\n\n  a = b").splitlines()[-2:] == [
    "  a = b",
    "```",
  ]


def test_lists_and_plain_text_stay():
  text = "One.\n\n* a point that\n  goes on\n* another"
  assert api.keep_equations(text) == text


def test_broken_links_are_found(tmp_path):
  (tmp_path / "deep").mkdir()
  (tmp_path / "index.html").write_text(
    '<a href="deep/page.html#here">a</a><a href="#top">b</a>'
    '<h1 id="top"></h1><a href="https://x.org/no">c</a>'
  )
  page = tmp_path / "deep" / "page.html"
  page.write_text('<p id="here"></p><a class="m" href="../index.html">d</a>')
  assert api.broken_links(tmp_path) == []
  page.write_text('<p id="there"></p><a href="../none.html">d</a>')
  assert api.broken_links(tmp_path) == [
    "deep/page.html: broken link ../none.html",
    "index.html: broken link deep/page.html#here",
  ]


def test_pages_are_those_of_all_modules():
  references = pytest.importorskip("tests.docs.references")
  names = api._specifications()
  assert len(set(names)) == len(names)
  for module in references.modules():
    parents = [n for n in names if f"{module}.".startswith(f"{n}.")]
    assert parents
