"""What the pool-tracked caches of every kind have in common."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, ClassVar

import mlx.core as mx

from kvpool.memory import BlockPoolAllocator
from kvpool.mlx.attaching import AttachedLater, without_placeholders
from kvpool.mlx.ledger import Group
from kvpool.mlx.lines import Demand, Line, blocks_for_rows, settle

if TYPE_CHECKING:
    from typing_extensions import Self

_FORMATS = {mx.float16: "fp16", mx.bfloat16: "bf16", mx.float32: "fp32"}

# What a copy of a cache has of its own.
_BOOKS = frozenset({"_group", "_slot", "_lines", "_limit"})


def format_of(dtype: mx.Dtype) -> str:
    """Return the format of blocks for arrays of a dtype, such as ``"fp16"`` or ``"bf16"``."""
    return _FORMATS.get(dtype) or str(dtype).rpartition(".")[2]


def non_negative(n: int) -> int:
    """Return `n`, or 0 for a negative number: mlx_lm may ask to rewind by one after an error."""
    return max(n, 0)


class TrackedCache(AttachedLater):
    """A cache entry whose arrays are accounted for by a pool.

    Each kind says what its arrays hold now and after a step; this class keeps the blocks in line
    with that. A kind calls ``_group.secure`` before it changes for a step, and `_settle` after it
    changed in any other way.

    Dropping the last reference to a cache gives its blocks back. `release` does so for all caches
    of the request at once.

    Attributes
    ----------
    _group : Group
        The caches of the same request or batch.
    _slot : int
        What this one is called there.
    _lines : list of Line
        What is checked out, one line for each batch row.
    _limit : int
        Position up to which single tokens may be appended without asking the group.
    """

    _group: Group
    _slot: int
    _lines: list[Line]
    _limit: int

    # Shapes and dtypes of single tokens that fit what is stored.
    _k_token: tuple[int, ...] | None = None
    _v_token: tuple[int, ...] | None = None
    _k_dtype: mx.Dtype | None = None
    _v_dtype: mx.Dtype | None = None

    _clock: ClassVar[str | None] = "tokens of a request"
    """What `_position` counts; None for a cache that is not told of tokens."""

    # -- What a kind says about itself ---------------------------------------------------------

    def _position(self) -> int:
        """Tokens seen, by which caches of one clock tell whether they are in lockstep."""
        raise NotImplementedError

    def _n_rows(self) -> int:
        """Batch rows of the arrays; 0 while there are none."""
        raise NotImplementedError

    def _room(self) -> tuple[int, int]:
        """Tokens that the key and value arrays have room for."""
        raise NotImplementedError

    def _room_after(self, n_new: int) -> tuple[int, int]:
        """As `_room`, after `n_new` tokens more."""
        raise NotImplementedError

    def _changes_room(self, n_new: int) -> bool:
        """Whether the arrays grow or shrink with `n_new` tokens more."""
        return self._room_after(n_new) != self._room()

    def _blocks(self) -> tuple[int, int]:
        """Blocks, by stream, that a row's arrays account for."""
        keys, values = self._room()
        return self._to_blocks(keys), self._to_blocks(values)

    def _blocks_after(self, n_new: int) -> tuple[int, int]:
        """As `_blocks`, after `n_new` tokens more."""
        keys, values = self._room_after(n_new)
        return self._to_blocks(keys), self._to_blocks(values)

    def _slack_after(self, n_new: int) -> int:
        """Tokens that fit one at a time, without blocks, after `n_new` tokens more."""
        return non_negative(min(self._room_after(n_new)) - self._position() - n_new)

    def _label(self) -> str:
        """Format of the blocks; empty while nothing is held."""
        raise NotImplementedError

    def _mark(self, n_new: int) -> None:
        """Write to the books what slots are in use after `n_new` tokens more."""
        used = self._position() + n_new
        for line in self._lines:
            line.mark(used)

    def _forget(self) -> None:
        """Drop the arrays and start anew. The blocks have been given back."""
        raise NotImplementedError

    def _extension(self, other: Any) -> Demand:
        """Blocks that this cache's rows, with those of `other`, need to be one batch."""
        raise NotImplementedError

    def _load(self, state: Any, meta_state: Any) -> None:
        """Take over what `state` (and, before mlx_lm 0.32, `meta_state`) of a cache was."""
        raise NotImplementedError

    # -- Single tokens, which most steps are -----------------------------------------------------

    def _remember_token(self, keys: mx.array, values: mx.array) -> None:
        """Note what single tokens look like, from keys and values that were checked."""
        self._k_token = (*keys.shape[:2], 1, keys.shape[3])
        self._v_token = (*values.shape[:2], 1, values.shape[3])
        self._k_dtype, self._v_dtype = keys.dtype, values.dtype

    def _is_token(self, keys: mx.array, values: mx.array) -> bool:
        """Whether this is a single token like those that were remembered."""
        return (
            keys.shape == self._k_token
            and values.shape == self._v_token
            and keys.dtype == self._k_dtype
            and values.dtype == self._v_dtype
        )

    # -- Books ---------------------------------------------------------------------------------

    def _join(self, group: Group) -> None:
        """Become a cache of a group, one that holds nothing."""
        self._group = group
        self._slot = group.join(self)
        self._lines = []
        self._limit = -1

    def _rows_as_loaded(self, n_rows: int) -> None:
        """Have a line for each row of a batch that was loaded, under an owner of its own."""
        accounts = self._group.accounts
        while len(accounts) < n_rows:
            accounts.append(accounts[0].copy())
        lines = self._lines[:n_rows]
        self._lines = lines + [Line(account) for account in accounts[len(lines) : n_rows]]

    def _to_blocks(self, n_tokens: int) -> int:
        return blocks_for_rows(n_tokens, self._group.pool.config.block_size)

    def _in_step_with(self, other: TrackedCache) -> bool:
        """Whether both append the same tokens at the same time.

        Two caches of one clock do where they are at one position.
        """
        return self._clock != other._clock or self._position() == other._position()

    def _settle(self) -> None:
        """Make the blocks held agree with the arrays held.

        Raises
        ------
        BlockPoolExhaustedError
            If the pool can't give what is lacking; then the blocks are as before.
        """
        self._group.cancel()
        self._balance()

    def _balance(self) -> None:
        """As `_settle`, in the middle of what was planned for the whole group."""
        self._limit = -1
        n_rows, label = self._n_rows(), self._label()
        lines = self._lines[:n_rows]
        if any(line.label not in ("", label) for line in lines):
            lines = [Line(line.account) for line in lines]
        lines += [Line(self._group.accounts[0]) for _ in range(n_rows - len(lines))]
        settle(lines, self._blocks(), label)
        self._lines = lines
        self._mark(0)

    def _charge_new(self) -> None:
        """As `_settle`, for a cache just made; if that fails, its whole group is released."""
        try:
            self._settle()
        except BaseException:
            self._group.release()
            raise

    @property
    def pool(self) -> BlockPoolAllocator:
        """The pool that the blocks come from."""
        return self._group.pool

    @property
    def owner(self) -> Hashable:
        """The owner that the blocks are checked out to; of a batch, that of the first row."""
        account = self._lines[0].account if self._lines else self._group.accounts[0]
        return account.owner

    @property
    def owners(self) -> list[Hashable]:
        """The owner of each batch row that is known; of a batch, that is every row."""
        return [line.account.owner for line in self._lines]

    def release(self) -> None:
        """Give back every block of the request, whichever of its caches is asked.

        Every cache of the request is empty afterwards. Releasing again changes nothing.
        """
        self._group.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return an independent cache under a fresh owner.

        The caches of a list that is copied as a whole share one fresh owner, and are charged to the
        pool all or none.

        Raises
        ------
        BlockPoolExhaustedError
            If the pool can't hold the copies.
        """
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        new._join(copy.deepcopy(self._group, memo))
        for name, value in self.__dict__.items():
            if name not in _BOOKS:
                shared = isinstance(value, mx.Dtype)
                new.__dict__[name] = value if shared else copy.deepcopy(value, memo)
        new._lines = [Line(copy.deepcopy(line.account, memo)) for line in self._lines]
        new._charge_new()
        return new

    def _change(self, change: Callable[[], None]) -> None:
        """Change the arrays and make the blocks agree with them; whole or not at all."""
        before = dict(self.__dict__)
        accounts = list(self._group.accounts)
        try:
            change()
            self._settle()
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            self._group.accounts[:] = accounts
            raise

    def _take_over(self, group: Group, state: Any, meta_state: Any) -> None:
        self._join(group)
        try:
            self._load(state, meta_state)
            self._settle()
        except BaseException:
            group.leave(self)
            raise

    def __repr__(self) -> str:
        held = sum(len(blocks) for line in self._lines for blocks in line.blocks)
        return f"<{type(self).__name__}, owner {self.owner!r}, {held} blocks>"


class TrackedStockCache(TrackedCache):
    """A tracked cache that is a subclass of mlx_lm's own of its kind.

    mlx_lm's code does the work; the kind charges around it. `_stock` is mlx_lm's class. Its
    ``keys`` and ``values`` are plain attributes: what others assign to them is charged at the next
    call.
    """

    _stock: ClassVar[type]
    keys: Any
    values: Any

    def __init__(self) -> None:
        raise TypeError(
            f"[{type(self).__name__}] caches of this kind come from build_pooled_caches, which "
            "gives them their pool"
        )

    def _n_rows(self) -> int:
        return 0 if self.keys is None else int(self.keys.shape[0])

    def _room(self) -> tuple[int, int]:
        if self.keys is None:
            return 0, 0
        return self.keys.shape[2], self.values.shape[2]

    def _label(self) -> str:
        return "" if self.keys is None else format_of(self.keys.dtype)

    def _load(self, state: Any, meta_state: Any) -> None:
        self._stock_state(without_placeholders(state))
        if meta_state:
            self._stock.meta_state.fset(self, meta_state)  # type: ignore[attr-defined]
        self._check_sound()

    def _check_sound(self) -> None:
        """Check that numbers and arrays that come from elsewhere do not contradict each other."""

    def _stock_state(self, state: Any) -> None:
        self._stock.state.fset(self, state)  # type: ignore[attr-defined]

    @property
    def state(self) -> Any:
        """What mlx_lm's cache of this kind has as its state."""
        return self._stock.state.fget(self)  # type: ignore[attr-defined]

    @state.setter
    def state(self, state: Any) -> None:
        self._change(lambda: self._stock_state(state))

    def _held(self, n_tokens: int) -> tuple[mx.array, mx.array]:
        stored = (slice(None), slice(None), slice(0, min(n_tokens, self._room()[0])))
        return self.keys[stored], self.values[stored]

    def _check(self, keys: mx.array, values: mx.array) -> None:
        shape, v_shape = keys.shape, values.shape
        fits = shape[:3] == v_shape[:3]
        if fits and self.keys is not None:
            stored = self.keys.shape
            fits = (*shape[:2], shape[3], v_shape[3]) == (
                *stored[:2],
                stored[3],
                self.values.shape[3],
            ) and (keys.dtype, values.dtype) == (self.keys.dtype, self.values.dtype)
        if not fits:
            raise ValueError(
                f"[{type(self).__name__}.update_and_fetch] keys {shape} and values {v_shape} of "
                f"{keys.dtype} do not go with each other or with what is stored"
            )
        self._remember_token(keys, values)

    def _adopt(self, other: Any) -> None:
        """Take over the arrays and numbers of one of mlx_lm's own caches of this kind."""
        self.__dict__.update(other.__dict__)
        self._check_sound()
        self._charge_new()

    def _begin_step(self, keys: mx.array) -> None:
        """Secure the blocks for a step."""
        n_rows, _, n_new = keys.shape[:3]
        self._group.secure(self, n_new, n_rows, format_of(keys.dtype))
