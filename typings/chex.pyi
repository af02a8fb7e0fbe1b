"""What mypy needs to know of chex, which ships no types."""

from typing import Any, dataclass_transform

Array = Any  # jax and NumPy arrays alike

# A mappable dataclass, chex's default, takes keywords only.
@dataclass_transform(kw_only_default=True)
def dataclass(cls: Any = ..., **options: Any) -> Any: ...
def __getattr__(name: str) -> Any: ...
