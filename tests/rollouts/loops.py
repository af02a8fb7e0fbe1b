"""Groups whose merged graphs have circles, loops and chains of every kind."""

from tests.groups import Group, rollout
from tests.oracle import Rollout, Step

SIZES = (2, 3, 4, 8)


def path(*states: str, end: str, final_state=None) -> Rollout:
  steps = tuple(Step(s, f"from {s}") for s in states)
  return Rollout(steps, end, final_state)


def circle(size: int, name: str = "c") -> list[str]:
  return [f"{name}{i}" for i in range(size)]


def leaving_a_circle(size: int) -> Group:
  """Nothing but hops in a circle that only absorbing states end."""
  ring = circle(size)
  return [
    path(*ring, *ring, ring[0], end="success"),
    path(*ring[1:], *ring, end="failure"),
    path(*ring[-1:], *ring, end="truncated"),
  ]


def into_a_circle(size: int) -> Group:
  """A chain of hops that runs into a circle of hops, and one beside it."""
  ring, chain = circle(size), [f"p{i}" for i in range(5)]
  return [
    path(*chain, *ring, *ring[:-1], end="success"),
    path("q0", "q1", *ring[1:], *ring, end="failure"),
    path("alone", end="success"),
  ]


def two_circles(size: int) -> Group:
  return [
    *leaving_a_circle(size),
    path(*circle(3, "d"), *circle(3, "d"), "d0", end="success"),
    path(*circle(3, "d"), "d0", end="failure"),
  ]


def through_a_branch(size: int) -> Group:
  """A circle with one state that also leads elsewhere."""
  ring = circle(size)
  return [
    path(*ring, *ring, "x", "y", end="success"),
    path(*ring, ring[0], end="failure"),
    path(*ring, "y", "y", "x", end="failure"),
  ]


def self_loops() -> Group:
  return [
    rollout("s a s a s a s b", "success"),
    rollout("s a m c m c", "failure"),
    rollout("m c m c m d", "success"),
  ]


def long_chain(length: int = 60) -> Group:
  chain = [f"k{i}" for i in range(length)]
  return [
    path(*chain, end="success"),
    path(*chain[7:], end="failure"),
    path("start", *chain[30:], end="success"),
  ]


def truncated_at_an_anchor() -> Group:
  """The last step of a truncated rollout shows a state of the group."""
  return [
    path("s", "m", end="truncated", final_state="k"),
    path("s", "m", "t", end="success"),
    path("k", "s", end="truncated", final_state="never"),
    path("k", end="failure", final_state="s"),
  ]


def every_kind() -> list[Group]:
  return [
    *(leaving_a_circle(n) for n in SIZES),
    *(into_a_circle(n) for n in SIZES),
    *(two_circles(n) for n in SIZES),
    *(through_a_branch(n) for n in SIZES),
    self_loops(),
    long_chain(),
    truncated_at_an_anchor(),
  ]
