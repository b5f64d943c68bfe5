"""Single-head KV caches: vectors in, attention out."""

from __future__ import annotations

from kvpool.cache.kv_cache import KVCache

__all__ = ["KVCache"]
