"""Tokenizers and the wrapping that a chat model expects around its turns."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

PAD, END = 0, 1
_FIRST = 2


class Tokenizer(Protocol):
  """What the agent loop needs; a Hugging Face tokenizer has it too."""

  @property
  def eos_id(self) -> int:
    """The token that ends a response."""

  def encode(self, text: str) -> list[int]:
    """Tokens of a text, no special ones added."""

  def decode(self, ids: Sequence[int]) -> str:
    """The text of tokens, special ones left out."""


class ByteTokenizer:
  """UTF-8 bytes: `PAD`, `END`, then the 256 bytes."""

  vocabulary = _FIRST + 256
  pad_id, eos_id, bos_id = PAD, END, END

  def encode(self, text: str) -> list[int]:
    """Tokens of a text."""
    return [byte + _FIRST for byte in text.encode()]

  def decode(self, ids: Sequence[int]) -> str:
    """The text of tokens; what is no UTF-8 becomes U+FFFD."""
    found = bytes(int(i) - _FIRST for i in ids if i >= _FIRST)
    return found.decode(errors="replace")


class Message(NamedTuple):
  """A turn of a conversation."""

  role: str  # "system", "user", "assistant"
  text: str


ChatTemplate = Callable[[Sequence[Message], bool], str]
"""From messages to text that ends where the assistant begins to write.

The second argument says whether these are the first messages of a
conversation; later ones follow a response whose end token was sampled.
"""


def plain(messages: Sequence[Message], opening: bool) -> str:
  """The texts alone, for models that are no chat models."""
  joined = "\n".join(message.text for message in messages)
  return joined if opening else "\n" + joined


def chatml(messages: Sequence[Message], opening: bool) -> str:
  """ChatML, of Qwen2.5, Qwen3 and SmolLM2."""
  # The sampled end token closes the assistant's turn but for its newline.
  text = "" if opening else "\n"
  for message in messages:
    text += f"<|im_start|>{message.role}\n{message.text}<|im_end|>\n"
  return text + "<|im_start|>assistant\n"


CHATS: dict[str, ChatTemplate] = {"plain": plain, "chatml": chatml}
