"""One pool of fixed-size blocks for the KV cache of every LLM request in a process.

The allocator is in `kvpool.memory`, the caches for mlx_lm in `kvpool.mlx`. Importing this package
loads neither MLX nor NumPy: names that need them load them on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvpool._core import __version__
from kvpool._lazy import load_name

if TYPE_CHECKING:
    from kvpool.cache import KVCache

__all__ = ["KVCache", "__version__"]

_LAZY = {"KVCache": "kvpool.cache"}


def __getattr__(name: str) -> Any:
    return load_name(__name__, name, _LAZY)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
