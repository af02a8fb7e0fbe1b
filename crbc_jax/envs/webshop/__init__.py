"""WebShop (arXiv 2207.01206) as a light text engine.

`load_shop` opens the benchmark's own files; `generate_shop` makes a small shop
for tests and first runs.
"""

from crbc_jax.envs.webshop.engine import Page, WebshopEnv
from crbc_jax.envs.webshop.expert import expert_command, noisy_command
from crbc_jax.envs.webshop.generator import generate_shop, write_shop
from crbc_jax.envs.webshop.goals import Goal, panel_hash
from crbc_jax.envs.webshop.products import Product, ShopError, read_products
from crbc_jax.envs.webshop.queries import candidate_queries
from crbc_jax.envs.webshop.reward import Score, score
from crbc_jax.envs.webshop.shop import Shop, load_shop

__all__ = [
  "Goal",
  "Page",
  "Product",
  "Score",
  "Shop",
  "ShopError",
  "WebshopEnv",
  "candidate_queries",
  "expert_command",
  "generate_shop",
  "load_shop",
  "noisy_command",
  "panel_hash",
  "read_products",
  "score",
  "write_shop",
]
