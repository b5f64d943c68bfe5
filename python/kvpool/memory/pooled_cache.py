"""PooledKVCache: a single-head cache whose tokens are accounted for in a pool's blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, NoReturn, SupportsIndex

from kvpool._core import Block, BlockPoolAllocator, Reservation
from kvpool.cache import KVCache
from kvpool.memory.ownership import PRIVATE, Account

_METHODS = ("append_key", "append_value", "attend", "memory_bytes", "reset")


class _Stream:
    """The blocks of one stream, and which tokens they hold."""

    def __init__(self, name: str, account: Account) -> None:
        self.name = name
        self.account = account
        self.blocks: list[Block] = []
        self.pending: deque[tuple[Reservation, int]] = deque()  # blocks secured for tokens to come
        self.n_tokens = 0  # appended since the last reset
        self.n_dropped_blocks = 0  # given back at the front, their tokens being gone

    def needs_block(self) -> bool:
        """Whether the next token begins a block."""
        held = self.n_dropped_blocks + len(self.blocks)
        return self.n_tokens == held * self.account.pool.config.block_size

    def n_secured(self) -> int:
        """Blocks that this stream has had, has, or is sure to get."""
        return self.n_dropped_blocks + len(self.blocks) + len(self.pending)

    def count_token(self) -> None:
        """Book one more token, in a pending block where it begins one."""
        pool = self.account.pool
        if self.needs_block():
            reservation, item = self.pending.popleft()
            self.blocks += reservation.take(item)
        self.n_tokens += 1
        pool.mark_used(self.blocks[-1], (self.n_tokens - 1) % pool.config.block_size + 1)

    def drop(self, n_tokens: int) -> None:
        """Give back the blocks that hold nothing but the first `n_tokens` tokens."""
        pool = self.account.pool
        n = n_tokens // pool.config.block_size - self.n_dropped_blocks
        if n > 0:
            pool.free(self.blocks[:n])
            del self.blocks[:n]
            self.n_dropped_blocks += n

    def clear(self) -> None:
        """Give every block back."""
        self.account.pool.free(self.blocks)
        for reservation, _ in self.pending:
            reservation.cancel()
        self.blocks = []
        self.pending.clear()
        self.n_tokens = self.n_dropped_blocks = 0


class PooledKVCache(KVCache):
    """Any single-head cache, with its tokens accounted for in a pool's blocks.

    A K and a V block are checked out when the last ones are full, both before the inner cache is
    touched; nothing is allocated for other tokens. An inner cache that drops its oldest tokens (its
    ``len`` stays behind) gives back the blocks that held them. The blocks go back on `release`,
    `reset`, and when the cache is garbage-collected.

    Parameters
    ----------
    inner : object
        Has the methods of `kvpool.KVCache`; need not be a subclass.
    pool : BlockPoolAllocator
        Where the blocks come from.
    owner : Hashable
        Who they are checked out to; -1 takes a fresh private owner. Best an id: the pool keeps an
        owner alive while it holds blocks, so an object that holds this cache would keep both.
    format : str
        Label of the blocks, whatever the inner cache does.

    Raises
    ------
    TypeError
        If `inner` lacks a method; the text names it.
    OwnerAlreadyActiveError
        If another live cache of this pool has this owner.
    """

    def __init__(
        self,
        inner: Any,
        pool: BlockPoolAllocator,
        owner: Hashable = PRIVATE,
        format: str = "fp16",
    ) -> None:
        missing = [name for name in _METHODS if not callable(getattr(inner, name, None))]
        if missing:
            raise TypeError(
                f"[PooledKVCache] inner must have the methods of kvpool.KVCache; "
                f"{type(inner).__name__} lacks {', '.join(missing)}"
            )
        if not isinstance(format, str):
            raise TypeError(f"[PooledKVCache] format must be a str, got {format!r}")
        self.inner = inner
        self.format = format
        self._account = Account(pool, owner)
        self._keys = _Stream("k", self._account)
        self._values = _Stream("v", self._account)
        self._released = False

    @property
    def pool(self) -> BlockPoolAllocator:
        """Where the blocks come from."""
        return self._account.pool

    @property
    def owner(self) -> Hashable:
        """Who the blocks are checked out to."""
        return self._account.owner

    def append_key(self, k: Any) -> None:
        """Append one key, shape (d,).

        Raises
        ------
        BlockPoolExhaustedError
            If the token needs blocks, in either stream, and they are short; nothing changes.
        RuntimeError
            After `release`, until `reset`.
        """
        self._append((self._keys,), lambda: self.inner.append_key(k))

    def append_value(self, v: Any) -> None:
        """Append one value, shape (d,). Raises as `append_key` does."""
        self._append((self._values,), lambda: self.inner.append_value(v))

    def append(self, k: Any, v: Any) -> None:
        """Append one token's key and value, each of shape (d,). Raises as `append_key` does."""

        def into_inner() -> None:
            if callable(getattr(self.inner, "append", None)):
                self.inner.append(k, v)
            else:
                self.inner.append_key(k)
                self.inner.append_value(v)

        self._append((self._keys, self._values), into_inner)

    def _append(self, streams: tuple[_Stream, ...], into_inner: Callable[[], None]) -> None:
        if self._released:
            raise RuntimeError(
                "[PooledKVCache] the cache was released and holds no blocks; reset() it first"
            )
        secured = self._secure(streams)
        try:
            into_inner()
        except BaseException:
            self._abandon(secured)
            raise
        for stream in streams:
            stream.count_token()
        self._follow_inner()

    def _secure(self, streams: tuple[_Stream, ...]) -> Reservation | None:
        """Reserve the blocks that a token needs, in both streams even if it is half appended."""
        n_needed = max(
            (s.n_secured() + 1 for s in streams if s.needs_block() and not s.pending), default=0
        )
        wanting = [s for s in (self._keys, self._values) if s.n_secured() < n_needed]
        if not wanting:
            return None
        reservation = self.pool.reserve([(s.name, 1, self.format) for s in wanting], self.owner)
        for item, stream in enumerate(wanting):
            stream.pending.append((reservation, item))
        return reservation

    def _abandon(self, reservation: Reservation | None) -> None:
        """Undo `_secure`."""
        if reservation is None:
            return
        for stream in (self._keys, self._values):
            if stream.pending and stream.pending[-1][0] is reservation:
                stream.pending.pop()
        reservation.cancel()

    def _follow_inner(self) -> None:
        """Give back the blocks of tokens that the inner cache has dropped."""
        if self._keys.n_tokens != self._values.n_tokens or not hasattr(self.inner, "__len__"):
            return
        n_dropped = self._values.n_tokens - len(self.inner)
        for stream in (self._keys, self._values):
            stream.drop(n_dropped)

    def attend(self, q: Any) -> Any:
        """Return what the inner cache's `attend` does, shape (d,)."""
        return self.inner.attend(q)

    def memory_bytes(self) -> int:
        """Return the bytes that the inner cache says it holds."""
        return int(self.inner.memory_bytes())

    def __len__(self) -> int:
        """Return the number of values held."""
        if hasattr(self.inner, "__len__"):
            return len(self.inner)
        return self._values.n_tokens

    def n_blocks_held(self) -> int:
        """Return the number of blocks checked out, of both streams."""
        return len(self._keys.blocks) + len(self._values.blocks)

    def release(self) -> None:
        """Give every block back. The inner cache stays as it is; `reset` makes this one usable."""
        self._give_back()
        self._released = True
        self._account.disclaim()

    def reset(self) -> None:
        """Give every block back and drop all tokens of the inner cache.

        Raises
        ------
        OwnerAlreadyActiveError
            If the cache was released and another one has taken its owner.
        """
        self._account.claim()
        self._released = False
        self._give_back()
        self.inner.reset()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be copied or pickled: the blocks belong to this cache."""
        raise TypeError(
            "[PooledKVCache] can't be copied or pickled: its blocks belong to it. "
            "Copy the inner cache, and give that a PooledKVCache of its own"
        )

    def _give_back(self) -> None:
        self._keys.clear()
        self._values.clear()

    def __del__(self) -> None:
        """Give back what is still held."""
        if hasattr(self, "_released"):
            self._give_back()

    def __repr__(self) -> str:
        return (
            f"PooledKVCache({type(self.inner).__name__}, owner={self.owner!r}, "
            f"tokens={len(self)}, blocks={self.n_blocks_held()})"
        )
