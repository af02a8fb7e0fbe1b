"""The 1,000-product set; skipped where it is absent."""

import pytest

from crbc_jax.envs.webshop import (
  WebshopEnv,
  candidate_queries,
  expert_command,
  load_shop,
  panel_hash,
)

pytestmark = pytest.mark.real_data


@pytest.fixture(scope="module")
def shop(real_data):
  path = real_data / "webshop" / "webshop_1000.json.gz"
  if not path.exists():
    pytest.skip(f"no WebShop products at {path}")
  return load_shop(path)


def test_counts(shop):
  assert len(shop.products) == 1_000
  assert sum(p.synthetic is not None for p in shop.products) == 415
  assert len(shop.goals) == 6_910
  sizes = [len(shop.split(name)) for name in ("test", "eval", "train", "human")]
  assert sizes == [500, 1_000, 5_410, 13]
  assert panel_hash(shop.split("test")) == "b40bdf28a12147f5"
  assert panel_hash(shop.split("human")) == "7df85ae97edc0422"


@pytest.mark.parametrize("panel", ["test", "human"])
def test_the_expert_buys_all(shop, panel):
  goals = shop.split(panel)[:300]
  rewards = []
  for goal in goals:
    env = WebshopEnv(shop, goal)
    step = env.reset()
    for _ in range(15):
      step = env.step(expert_command(env))
      if step.boundary:
        break
    rewards.append(step.reward)
  assert sum(reward == 1 for reward in rewards) >= 0.95 * len(goals)
  if panel == "human":
    assert rewards == [1.0] * 13


def test_the_queries_offered_find_the_product(shop):
  """Among the first ten by the best of the queries: 96 % of the goals."""
  goals = shop.goals[:500]
  found = 0
  for goal in goals:
    found += any(
      goal.asin in [product.asin for product in shop.search(query)[:10]]
      for query in candidate_queries(goal.instruction)
    )
  assert found / len(goals) > 0.9
