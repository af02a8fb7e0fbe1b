"""Shell text -> simple commands. Nothing is expanded, nothing is run."""

import re
import shlex
from typing import NamedTuple

_HEREDOC = re.compile(
  r"<<-?[ \t]*(['\"]?)(\w+)\1([^\n]*)\n(.*?)(?:(?:\n|(?<=\n))[ \t]*\2[ \t]*"
  r"(?=\n|$)|$)",
  re.DOTALL,
)
_OPERATORS = "();<>|&\n"


class Command(NamedTuple):
  """A command and what it reads and writes."""

  words: tuple[str, ...]
  output: str = ""  # file that > or >> writes; "" = none
  append: bool = False
  body: str = ""  # its here-document


def split(text: str) -> list[Command]:
  """The simple commands of a script, in order; of a pipeline the first.

  Quotes, here-documents and redirections are understood; `&&`, `||`, `;` and
  line ends separate alike. Text with an open quote is split at white space.
  """
  bodies: list[str] = []

  def take_body(found: re.Match) -> str:
    bodies.append(found[4])
    return f"<<{len(bodies) - 1} {found[3]}"

  commands: list[Command] = []
  current: list[str] = []
  piped = False
  for token in [*_tokens(_HEREDOC.sub(take_body, text)), "\n"]:
    operator = not token.strip(_OPERATORS)
    if not operator or token[0] in "<>" or token in ("&>", "&>>"):
      current.append(token)
    else:
      if current and not piped:
        commands.append(_command(current, bodies))
      piped = token.strip("\n") in ("|", "|&")
      current = []
  return [c for c in commands if c.words]


def _tokens(text: str) -> list[str]:
  lexer = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
  lexer.whitespace = " \t\r"
  lexer.whitespace_split = True
  lexer.commenters = ""
  try:
    return [token for token in lexer if token]
  except ValueError:  # an open quote
    return text.split()


def _command(tokens: list[str], bodies: list[str]) -> Command:
  words: list[str] = []
  output, append, body = "", False, ""
  i = 0
  while i < len(tokens):
    token, following = tokens[i], (tokens[i + 1 : i + 2] or [""])[0]
    if token == "<<" and following.isdecimal() and int(following) < len(bodies):
      body = bodies[int(following)]
      i += 1
    elif token in (">", ">>", "&>", "&>>"):
      to_error = words[-1:] == ["2"]
      if to_error:
        words.pop()
      elif following != "/dev/null":
        output, append = following, token.endswith(">>")
      i += 1
    elif token[0] in "<>":  # "2>&1", "<file"
      if words[-1:] == ["2"] and token == ">&":
        words.pop()
      i += 1
    else:
      words.append(token)
    i += 1
  return Command(tuple(words), output, append, body)
