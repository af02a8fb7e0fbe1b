"""What an agent is shown: the goal, a few steps of history, the state.

One template for each environment, and short ones for models of a few hundred
thousand parameters that read bytes.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from crbc_jax.envs.text import TextStep


class Past(NamedTuple):
  """One step that was played."""

  text: str  # the observation before it
  command: str


@dataclasses.dataclass(frozen=True)
class PromptTemplate:
  """Words around goal, history, observation and admissible commands.

  Attributes:
    role: says what the environment is; may name {goal}.
    history: steps that are shown, the last ones; the papers' is 2.
    past: of one step of the history: {number}, {text}, {command}.
    now: the present: {number}, {text}.
    admissible: {commands}; empty: they are not listed.
    ask: how to answer; may name {goal}.
    form: of the answer, see `parsing.FORMATS`.
    separator: between listed commands.
  """

  role: str
  history: int = 2
  past: str = ""
  now: str = "{text}"
  admissible: str = ""
  ask: str = ""
  form: str = "tags"
  separator: str = ", "

  def render(
    self,
    goal: str,
    now: TextStep,
    past: Sequence[Past],
    *,
    heading: bool = True,
  ) -> str:
    """The prompt of a step.

    Args:
      goal: the instruction.
      now: what is seen, and what can be done.
      past: every step so far, the first one first.
      heading: with role and history; without, a further turn of one
        conversation that holds them already.
    """
    parts = []
    if heading:
      parts.append(self.role.format(goal=goal))
      if self.past and self.history:
        first = max(len(past) - self.history, 0)
        parts += [
          self.past.format(number=n + 1, text=p.text, command=p.command)
          for n, p in enumerate(past[first:], first)
        ]
    parts.append(self.now.format(number=len(past) + 1, text=now.text))
    if self.admissible:
      listed = self.separator.join(now.commands)
      parts.append(self.admissible.format(commands=listed))
    parts.append(self.ask.format(goal=goal))
    return "\n".join(part for part in parts if part)


_ASK = (
  "Think first, inside <think> and </think>. Then write exactly one of these"
  " commands inside <action> and </action>."
)
_PAST = "Step {number}, you saw: {text}\nYou did: {command}"
_NOW = "Step {number}, now you see: {text}"

TEMPLATES: Mapping[str, PromptTemplate] = {
  "alfworld": PromptTemplate(
    role="You act in a household, by text commands.\nYour task: {goal}",
    past=_PAST,
    now=_NOW,
    admissible="Commands you can give now: {commands}",
    ask=_ASK,
  ),
  "webshop": PromptTemplate(
    role="You shop in an online store, by text commands.\nYour task: {goal}",
    past=_PAST,
    now=_NOW,
    admissible="Commands you can give now: {commands}",
    ask=_ASK.replace(
      "commands inside", "commands (a search in words of your own) inside"
    ),
  ),
  "sokoban": PromptTemplate(
    role="You solve a Sokoban level: {goal}\n# is wall, . a target, $ a box,"
    " * a box on a target, @ you, + you on a target. You push a box by walking"
    " into it; boxes cannot be pulled.",
    past=_PAST.replace("saw: ", "saw:\n"),
    now=_NOW.replace("see: ", "see:\n"),
    admissible="Commands: {commands}",
    ask=_ASK,
  ),
  # No words around what changes: every byte costs a tiny model. The goal is
  # last, for of a prompt that is too long the end is kept.
  "short": PromptTemplate(
    role="",
    history=4,
    past="> {command}",
    now="{text}",
    ask="{goal}\n>",
    form="bare",
  ),
  "board": PromptTemplate(role="", history=0, ask=">", form="bare"),
}
"""By name; `template_for` picks that of an environment."""


def template_for(task: str) -> PromptTemplate:
  """The template of a task by its name; another task gets ALFWorld's words."""
  name = task.removesuffix("_text")
  if name in TEMPLATES:
    return TEMPLATES[name]
  return dataclasses.replace(
    TEMPLATES["alfworld"],
    role="You act in an environment, by text commands.\nYour task: {goal}",
  )
