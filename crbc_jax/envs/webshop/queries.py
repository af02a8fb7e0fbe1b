"""Queries offered on the search page, made from the instruction alone.

Upstream leaves queries to a language model. A policy that picks among commands
needs a few to pick from; these use nothing but the words the agent can read.
"""

import re

_PRICE = re.compile(r",? and price lower than [\d.]+ dollars$")
_OPENING = re.compile(
  r"(?:(?:hello|hi|please|find|show|get|give|buy|order|place|purchase|me|us"
  r"|i'm|i'd|i|we|am|are|looking|searching|shopping|need|needs|want|would|like"
  r"|to|for|a|an|the|some|one|pair|pack|set|of)\b[\s,]*)+"
)
_OPTION_NAME = r"(?:(?!with\b)[a-z]+ )*(?!with\b)[a-z]+: "
_OPTIONS = re.compile(rf" with (?={_OPTION_NAME})")
_NEXT_OPTION = re.compile(rf"(?:^|, and ){_OPTION_NAME}")
_QUALIFIER = re.compile(r"[.?!](?!\d)|,? (?:with|for|that|which|and has|in)\b")


def candidate_queries(instruction: str) -> tuple[str, ...]:
  """Up to five different queries, longest first.

  "Find me dry, light tents for rain with color: red, and price lower than 50.00
  dollars" gives "dry, light tents for rain red", "dry, light tents for rain",
  "dry, light tents", "light tents red" and "light tents".
  """
  text = _PRICE.sub("", instruction.lower().strip())
  wish, *options = _OPTIONS.split(text, maxsplit=1)
  values = " ".join(
    part for part in _NEXT_OPTION.split("".join(options)) if part
  )
  wish = _OPENING.sub("", wish, count=1) or wish
  thing = _QUALIFIER.split(wish, maxsplit=1)[0] or wish
  last = thing.rsplit(", ", 1)[-1]
  queries = (f"{wish} {values}", wish, thing, f"{last} {values}", last)
  return tuple(dict.fromkeys(query.strip() for query in queries))
