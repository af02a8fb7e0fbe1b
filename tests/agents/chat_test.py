from hypothesis import given
from hypothesis import strategies as st

from crbc_jax.agents.chat import (
  END,
  PAD,
  ByteTokenizer,
  Message,
  chatml,
  plain,
)


@given(st.text())
def test_bytes_come_back(text):
  tokenizer = ByteTokenizer()
  ids = tokenizer.encode(text)
  assert tokenizer.decode([PAD, *ids, END]) == text
  assert all(1 < i < tokenizer.vocabulary for i in ids)


def test_half_a_character_is_replaced():
  ids = ByteTokenizer().encode("é")
  assert ByteTokenizer().decode(ids[:1]) == "�"


def test_chatml_goes_on_after_a_sampled_end():
  first = chatml([Message("system", "s"), Message("user", "u")], True)
  assert first == (
    "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
    "<|im_start|>assistant\n"
  )
  # The response ends with a sampled <|im_end|>; its newline is ours.
  later = chatml([Message("user", "v")], False)
  assert later == "\n<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\n"


def test_plain():
  assert plain([Message("user", "a"), Message("user", "b")], True) == "a\nb"
  assert plain([Message("user", "a")], False) == "\na"
