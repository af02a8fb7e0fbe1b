"""Builds the API page of the package with pdoc; what is broken is an error.

  python -m tests.docs.api [--out build/docs]

Docstrings are Markdown with Google's sections. Two things are added to what
pdoc makes of them: indented equations keep their lines, and a name in
backticks links to its object, wherever in the package that is
(`references.find`). An unknown name, a warning of pdoc, a link that leads
nowhere and a page that is missing each end it with exit status 1.
"""

import argparse
import html
import pathlib
import re
import sys
import warnings

import markupsafe
import pdoc
import pdoc.render
import pdoc.render_helpers

from tests.docs import references

_SECTION = re.compile(r"[A-Z][A-Z a-z]+:")


def main(argv: list[str] | None = None) -> int:
  """Builds the pages; returns the exit status."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--out", type=pathlib.Path, default="build/docs")
  options = parser.parse_args(argv)
  problems = [str(problem) for problem in references.problems()]
  problems += build(options.out)
  for problem in problems:
    print(problem, file=sys.stderr)
  if problems:
    return 1
  pages = sum(1 for _ in options.out.rglob("*.html"))
  print(f"wrote {pages} pages, begin at {options.out}/crbc_jax.html")
  return 0


def build(out: pathlib.Path) -> list[str]:
  """Writes the pages; returns what is wrong with them."""
  pdoc.render.configure(docformat="google", show_source=False)
  pdoc.render.env.filters["to_markdown"] = _to_markdown
  pdoc.render.env.filters["linkify"] = _linkify
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    pdoc.pdoc(*_specifications(), output_directory=out)
  problems = [
    f"pdoc: {warning.message}"
    for warning in caught
    if "pdoc" in pathlib.Path(warning.filename).parts
  ]
  return problems + broken_links(out)


def _specifications() -> list[str]:
  """Modules that pdoc does not come to by itself."""
  known = references.modules()
  names = ["crbc_jax"]
  for name in known:
    parent = known.get(name.rpartition(".")[0])
    if hasattr(parent, "__all__"):  # pdoc takes no module that is not in it
      names.append(name)
  return names + [f"!{name}" for name in references.without_extra()]


def broken_links(out: pathlib.Path) -> list[str]:
  """Links between pages whose page or place on it is missing."""
  pages = {page.resolve(): page.read_text() for page in out.rglob("*.html")}
  places = {
    page: set(re.findall(r'\bid="([^"]+)"', text))
    for page, text in pages.items()
  }
  found = []
  for page, text in pages.items():
    for link in set(re.findall(r'<a [^>]*?href="([^":$]+)"', text)):
      target, _, place = html.unescape(link).partition("#")
      there = (page.parent / target).resolve() if target else page
      if there not in pages or (place and place not in places[there]):
        found.append(f"{page.relative_to(out.resolve())}: broken link {link}")
  return sorted(found)


@pdoc.render_helpers.pass_context
def _to_markdown(context, text: str) -> str:
  """The filter of pdoc, with equations kept."""
  return pdoc.render_helpers.to_markdown_with_context(
    context, keep_equations(text)
  )


@pdoc.render_helpers.pass_context
def _linkify(context, code: str, namespace: str = "", shorten: bool = True):
  """The filter of pdoc, then links from what it left."""
  module = context["module"].modulename

  def link(match: re.Match) -> str:
    found = references.target(module, html.unescape(match[1]))
    if not found:
      return match[0]
    path = pdoc.render_helpers.relative_link(module, found[0])
    place = f"#{found[1]}" if found[1] else ""
    return f'<code><a href="{path}{place}">{match[1]}</a></code>'

  text = pdoc.render_helpers.linkify(context, code, namespace, shorten)
  return markupsafe.Markup(re.sub(r"<code>([^<]+)</code>", link, text))


def keep_equations(text: str) -> str:
  """Fences indented blocks outside of sections, which Markdown would wrap."""
  lines: list[str] = []
  inside = in_section = False
  for line in [*text.splitlines(), ""]:
    indented = line.startswith("  ")
    if line and not indented:
      in_section = bool(_SECTION.fullmatch(line))
    begins = indented and not in_section and not (lines and lines[-1].strip())
    if begins and not inside:
      lines.append("```text")
      inside = True
    if inside and not indented:
      lines.append("```")
      inside = False
    lines.append(line)
  return "\n".join(lines[:-1])


if __name__ == "__main__":
  sys.exit(main())
