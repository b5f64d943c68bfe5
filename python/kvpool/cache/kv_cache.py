"""The interface of a single-head KV cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class KVCache(ABC):
    """Keys and values of one attention head, appended a token at a time.

    Vectors have shape (d,), d being the head's dimension. Subclass it to bring a cache of your own
    to `kvpool.memory.PooledKVCache` (which takes any object that has these methods).
    """

    @abstractmethod
    def append_key(self, k: Any) -> None:
        """Append one key, shape (d,)."""

    @abstractmethod
    def append_value(self, v: Any) -> None:
        """Append one value, shape (d,)."""

    def append(self, k: Any, v: Any) -> None:
        """Append one token's key and value, each of shape (d,)."""
        self.append_key(k)
        self.append_value(v)

    @abstractmethod
    def attend(self, q: Any) -> Any:
        """Return softmax(q · K / √d) · V, shape (d,); zeros while the cache is empty."""

    @abstractmethod
    def memory_bytes(self) -> int:
        """Return the bytes held."""

    @abstractmethod
    def reset(self) -> None:
        """Drop all tokens."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of values held."""
