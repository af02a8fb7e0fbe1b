import pytest

from crbc_jax.agents.parsing import INVALID, parse_response

COMMANDS = ("go to desk 1", "look")
SHOP = ("search[red shoes]", "click[buy now]")


@pytest.mark.parametrize(
  "text, command, thought",
  [
    ("<think>hm</think><action>look</action>", "look", "hm"),
    ("<action> Go  to\nDESK 1 </action>", "go to desk 1", ""),
    # A command that is only thought about is not the action.
    (
      "<think>maybe <action>go to desk 1</action></think><action>look</action>",
      "look",
      "maybe <action>go to desk 1</action>",
    ),
    ("noise <action>look</action> noise", "look", ""),
  ],
)
def test_valid(text, command, thought):
  parsed = parse_response(text, COMMANDS)
  assert parsed == (command, True, thought)


@pytest.mark.parametrize(
  "text",
  [
    "",
    "look",
    "<action></action>",
    "<action>fly</action>",
    "<action>look</action><action>look</action>",
    "<action>look",
    "!!!!",
    "<think>look</think>",
  ],
)
def test_everything_invalid_is_one_command(text):
  parsed = parse_response(text, COMMANDS)
  assert (parsed.command, parsed.valid) == (INVALID, False)


def test_a_thought_can_be_required():
  bare = "<action>look</action>"
  assert parse_response(bare, COMMANDS).valid
  assert not parse_response(bare, COMMANDS, need_thought=True).valid
  assert not parse_response(
    "<think> </think>" + bare, COMMANDS, need_thought=True
  ).valid
  assert parse_response(
    "<think>so</think>" + bare, COMMANDS, need_thought=True
  ).valid


def test_only_a_search_takes_words_of_ones_own():
  def command(text):
    return parse_response(f"<action>{text}</action>", SHOP).command

  assert command("search[blue hat]") == "search[blue hat]"
  assert command("click[Buy Now]") == "click[buy now]"
  assert command("click[blue hat]") == INVALID
  assert command("search[ ]") == INVALID
  assert parse_response("<action>search[x]</action>", COMMANDS).command == (
    INVALID
  )


def test_bare_form():
  assert parse_response("look", COMMANDS, form="bare").command == "look"
  assert not parse_response("look up", COMMANDS, form="bare").valid


def test_unknown_form():
  with pytest.raises(ValueError, match="form"):
    parse_response("look", COMMANDS, form="json")
