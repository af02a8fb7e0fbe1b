import math

import pytest

from crbc_jax.envs.webshop.search import SearchIndex, analyse, document
from tests.envs.webshop.samples import sample_products


def test_analysis_by_hand():
  assert analyse("The Women's Dresses, easily washed!") == [
    "women",
    "dress",
    "easili",
    "wash",
  ]
  assert analyse("x-large 10.5 1,000 don't") == [
    "x",
    "larg",
    "10.5",
    "1,000",
    "don't",
  ]
  assert analyse("of the") == []


def test_what_is_indexed():
  mug, teapot, _ = sample_products()
  assert document(mug) == (
    "Stoneware Coffee Mug, Hand Glazed Holds a pint. Dishwasher safe "
    " color: sky blue, red | white, and size: 8 oz, 16 oz"
  )
  assert document(teapot) == "Glass Teapot  With a strainer "


def bm25(query, documents):
  """Lucene's formula, term by term."""
  parsed = [text.split() for text in documents]
  mean = sum(map(len, parsed)) / len(parsed)
  scores = []
  for words in parsed:
    total = 0.0
    for term in query.split():
      having = sum(term in other for other in parsed)
      idf = math.log(1 + (len(parsed) - having + 0.5) / (having + 0.5))
      count = words.count(term)
      length = 1 - 0.4 + 0.4 * len(words) / mean
      total += idf * count / (count + 0.9 * length) if count else 0
    scores.append(total)
  return scores


def test_ranking_equals_the_formula():
  documents = ["red cup", "red red cup plate lamp", "blue cup", "lamp red"]
  index = SearchIndex(documents)
  for query in ("red", "red cup", "lamp", "blue lamp", "cup plate"):
    scores = bm25(query, documents)
    wanted = sorted(range(4), key=lambda n: (-round(scores[n], 6), n))
    wanted = [n for n in wanted if scores[n] > 0]
    assert list(index.search(query)) == wanted, query


def test_ties_go_by_number_and_fifty_is_the_most():
  index = SearchIndex(["red cup"] * 60 + ["lamp"] * 100)
  assert index.search("cup") == tuple(range(50))


@pytest.mark.parametrize("query", ["", "of the", "zebra", "!?"])
def test_nothing_found(query):
  assert SearchIndex(["red cup", "lamp"]).search(query) == ()
