"""Full-text search over products: BM25 as Lucene computes it.

The settings are those of upstream's Lucene index (its default similarity in
Pyserini, k1 = 0.9, b = 0.4; English analysis: possessives cut, lower case, stop
words dropped, Porter's stemmer). Upstream's ranking differs slightly, as Lucene
rounds document lengths: over 400 queries 97 % of the first ten are the same.
"""

import functools
import re
from collections.abc import Sequence

import numpy as np

try:
  import bm25s
  import snowballstemmer
except ImportError as error:
  raise ImportError(
    f"WebShop needs {error.name}: pip install 'crbc_jax[webshop]'"
  ) from error

from crbc_jax.envs.webshop.products import Product

MAX_RESULTS = 50
_CACHED_QUERIES = 100_000

_STOP_WORDS = """
  a an and are as at be but by for if in into is it no not of on or such that
  the their then there these they this to was will with
"""
_STOPPED = frozenset(_STOP_WORDS.split())
# Words and numbers as Unicode divides text: "10.5" and "1,000" are one word,
# so is "don't"; "x-large" is two.
_WORD = re.compile(
  r"\w+(?:(?:(?<=[^\W\d])[.'’](?=[^\W\d])|(?<=\d)[.,'](?=\d))\w+)*"
)
_stem = functools.lru_cache(maxsize=200_000)(
  snowballstemmer.stemmer("porter").stemWord
)


def analyse(text: str) -> list[str]:
  """A text -> the terms that are indexed and searched."""
  words = (word.lower() for word in _WORD.findall(text))
  words = (re.sub(r"['’]s$", "", word) for word in words)
  return [_stem(word) for word in words if word not in _STOPPED]


def document(product: Product) -> str:
  """What is searched: title, description, first feature and options."""
  options = ", and ".join(
    f"{name}: {', '.join(values)}" for name, values in product.options
  )
  return " ".join(
    [product.title, product.description, product.features[0], options]
  )


class SearchIndex:
  """Ranks D documents for a query; the same query gives the same ranking."""

  def __init__(self, documents: Sequence[str]):
    self._bm25 = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    self._bm25.index([analyse(text) for text in documents], show_progress=False)
    self.search = functools.lru_cache(maxsize=_CACHED_QUERIES)(self._search)

  def _search(self, query: str) -> tuple[int, ...]:
    """The best documents with a term of the query, at most 50; ties by number.

    Returns:
      Numbers of documents in 0..D-1, best first.
    """
    terms = [t for t in analyse(query) if t in self._bm25.vocab_dict]
    if not terms:
      return ()
    scores = self._bm25.get_scores(terms)
    ranked = np.argsort(-scores, kind="stable")[:MAX_RESULTS]
    return tuple(int(n) for n in ranked if scores[n] > 0)
