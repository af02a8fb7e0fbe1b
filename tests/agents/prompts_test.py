import pytest

from crbc_jax.agents.prompts import TEMPLATES, Past, template_for
from crbc_jax.envs.text import TextStep

NOW = TextStep("a {brace} desk", ("look", "open drawer 1"))
PAST = [Past(f"view {i}", f"do {i}") for i in range(5)]


@pytest.mark.parametrize("name", ["alfworld", "webshop"])
def test_the_papers_prompt(name):
  prompt = TEMPLATES[name].render("find a mug", NOW, PAST)
  assert "find a mug" in prompt
  assert NOW.text in prompt
  assert "look, open drawer 1" in prompt
  assert "<think>" in prompt and "<action>" in prompt
  # History of two, numbered from 1.
  assert "Step 4, you saw: view 3" in prompt and "Step 5, you saw" in prompt
  assert "view 2" not in prompt
  assert "Step 6, now you see" in prompt


def test_the_first_step_has_no_history():
  prompt = TEMPLATES["alfworld"].render("find a mug", NOW, [])
  assert "you saw" not in prompt and "Step 1, now you see" in prompt


def test_a_later_turn_of_a_conversation_has_no_heading():
  prompt = TEMPLATES["alfworld"].render("find a mug", NOW, PAST, heading=False)
  assert "find a mug" not in prompt and "view 4" not in prompt
  assert NOW.text in prompt


def test_short_keeps_the_goal_last():
  prompt = TEMPLATES["short"].render("find a mug", NOW, PAST)
  assert prompt == (
    "> do 1\n> do 2\n> do 3\n> do 4\na {brace} desk\nfind a mug\n>"
  )
  assert TEMPLATES["board"].render("push", TextStep("##", ()), []) == "##\n>"


def test_template_of_a_task():
  assert template_for("sokoban_text") is TEMPLATES["sokoban"]
  assert "{goal}" in template_for("my_module:open_games").role
