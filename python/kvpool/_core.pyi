"""The C++ core of kvpool; its public names are in kvpool.memory."""

from collections.abc import Hashable, Iterable, Iterator
from typing import ClassVar, NoReturn, SupportsIndex, overload


__version__: str

class BlockPoolExhaustedError(RuntimeError):
    """
    Too few free blocks, and the pool may not grow far enough; nothing was handed out.
    """

class OwnerAlreadyActiveError(ValueError):
    """The owner is registered already, or still holds blocks."""

DEFAULT_BLOCK_SIZE: int = 16

class PoolConfig:
    """
    Sizes and behaviour of a pool. Immutable.

    Parameters
    ----------
    block_size : int
        Token slots a block, 1 to 2**31 - 1.
    n_blocks : int
        Blocks managed at first, over all streams, 1 to 2**32. With `separate_kv` they are split in
        halves; an odd block goes to "k".
    separate_kv : bool
        Whether keys and values draw on free lists of their own, or on one.
    grow_on_exhaustion : bool
        Whether to add blocks rather than refuse a request.
    max_blocks : int or None
        The most blocks, over all streams, that growth may reach. Retired blocks do not count.
        None: no cap.

    Raises
    ------
    ValueError
        For a value outside its range; the text shows it.
    TypeError
        For a size that is no integer.
    """

    def __init__(self, block_size: int = 16, n_blocks: int = 1024, separate_kv: bool = True, grow_on_exhaustion: bool = False, max_blocks: int | None = None) -> None: ...

    @property
    def block_size(self) -> int: ...

    @property
    def n_blocks(self) -> int: ...

    @property
    def separate_kv(self) -> bool: ...

    @property
    def grow_on_exhaustion(self) -> bool: ...

    @property
    def max_blocks(self) -> int | None: ...

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

    def __reduce__(self) -> tuple[object, ...]: ...

class Block:
    """
    One check-out of one block of `block_size` token slots.

    Blocks that a pool hands out are live views of its books. Once freed they read
    ``owner=None, n_used=0``, and stay so when the block goes to its next owner: a handle
    belongs to one check-out. Compared by value; not hashable. Only `n_used` can be set.
    """

    def __repr__(self) -> str: ...

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, block_id: int, stream: str = 'kv', format: str = 'fp16', n_used: int = 0, owner: Hashable | None = None, ever_allocated: bool = False) -> None: ...

    def __eq__(self, other: object, /) -> bool: ...

    @property
    def block_id(self) -> int:
        """int: index into the pool's storage; never moves."""

    @property
    def stream(self) -> str:
        """str: 'k', 'v' or 'kv'."""

    @property
    def format(self) -> str:
        """str: the format the block was checked out for."""

    @property
    def n_used(self) -> int:
        """
        int: token slots in use, 0 to block_size; 0 once the check-out has ended.

        Setting it does what BlockPoolAllocator.mark_used does.
        """

    @n_used.setter
    def n_used(self, value: int, /) -> None: ...

    @property
    def owner(self) -> Hashable | None:
        """
        Hashable or None: who the block is checked out to; None once that has ended.
        """

    @property
    def ever_allocated(self) -> bool:
        """bool: whether it was ever handed out."""

    @property
    def generation(self) -> int:
        """
        int: unique to this check-out within the pool; 0 for a Block made by hand.
        """

class AllocationStats:
    """
    Counters of a pool, in blocks.

    ``pool.stats`` is a live view that can't be assigned to; it stays readable when the pool is gone.
    Those made by hand, by `snapshot` or kept in ``pool.history`` are values of their own.
    `n_exhausted` counts calls, everything else counts blocks. Compared by value.
    """

    def __init__(self, n_blocks: int, n_allocations: int = 0, n_frees: int = 0, n_reused: int = 0, n_exhausted: int = 0, n_grown: int = 0, n_retired: int = 0, peak_blocks_in_use: int = 0, _fragmented_count: int = 0) -> None: ...

    @property
    def n_blocks(self) -> int:
        """Blocks managed now."""

    @n_blocks.setter
    def n_blocks(self, value: int, /) -> None: ...

    @property
    def n_allocations(self) -> int:
        """Blocks checked out so far."""

    @n_allocations.setter
    def n_allocations(self, value: int, /) -> None: ...

    @property
    def n_frees(self) -> int:
        """Blocks given back so far."""

    @n_frees.setter
    def n_frees(self, value: int, /) -> None: ...

    @property
    def n_reused(self) -> int:
        """Blocks checked out again after an earlier check-out."""

    @n_reused.setter
    def n_reused(self, value: int, /) -> None: ...

    @property
    def n_exhausted(self) -> int:
        """Calls refused for want of free blocks."""

    @n_exhausted.setter
    def n_exhausted(self, value: int, /) -> None: ...

    @property
    def n_grown(self) -> int:
        """Blocks added by growth."""

    @n_grown.setter
    def n_grown(self, value: int, /) -> None: ...

    @property
    def n_retired(self) -> int:
        """Blocks taken out by shrink."""

    @n_retired.setter
    def n_retired(self, value: int, /) -> None: ...

    @property
    def peak_blocks_in_use(self) -> int:
        """Most blocks ever checked out at once."""

    @peak_blocks_in_use.setter
    def peak_blocks_in_use(self, value: int, /) -> None: ...

    def blocks_in_use(self) -> int:
        """Blocks checked out now: allocations minus frees."""

    def fragmentation(self) -> float:
        """
        Owned blocks with a free slot over blocks managed; 0.0 for a pool of none.
        """

    def snapshot(self) -> AllocationStats:
        """An independent copy."""

    def to_prometheus(self, prefix: str = 'veloxquant_block_pool') -> str:
        """
        Prometheus text exposition format, newline-terminated.

        Parameters
        ----------
        prefix : str
            Begins every metric's name; must match ``[a-zA-Z_:][a-zA-Z0-9_:]*``.

        Raises
        ------
        ValueError
            For a prefix that is no valid metric name.
        """

    def __eq__(self, other: object, /) -> bool: ...

    def __repr__(self) -> str: ...

    def __reduce__(self) -> tuple[object, ...]: ...

    __hash__: ClassVar[None]  # type: ignore[assignment]

DEFAULT_HISTORY_SIZE: int = 256

class History:
    """
    The last 256 snapshots of a pool's counters, oldest first.

    A live, read-only sequence, safe to read while other threads allocate: each access works on a copy
    taken under the pool's lock. One entry per allocate, reserve, take, cancel, free and free_all call,
    refused ones and those that change nothing included, and per shrink that retires.
    """

    @property
    def maxlen(self) -> int:
        """The most snapshots kept."""

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> AllocationStats: ...

    @overload
    def __getitem__(self, index: slice, /) -> list[AllocationStats]: ...

    def __iter__(self) -> Iterator[AllocationStats]: ...

    def __repr__(self) -> str: ...

class Reservation:
    """
    Blocks of several streams and layers set aside, whole or not at all.

    Made by BlockPoolAllocator.reserve. Reserved blocks are neither free nor in use. Each item becomes
    blocks once, when it is taken; what was not taken goes back on `cancel`, at the end of a ``with``
    block, and when the reservation is garbage-collected.
    """

    @property
    def n_reserved(self) -> int:
        """int: blocks not taken yet."""

    def take(self, index: int) -> list[Block]:
        """
        Make one item blocks of the owner, as BlockPoolAllocator.allocate would.

        Parameters
        ----------
        index : int
            Which of the items given to `reserve`, from 0.

        Raises
        ------
        ValueError
            For an item that does not exist, was taken, or was given back.
        """

    def commit(self) -> list[list[Block]]:
        """Take every item that is left, in order."""

    def cancel(self) -> None:
        """Give back what was not taken. May be called again."""

    def __enter__(self) -> Reservation: ...

    def __exit__(self, *args: object) -> None: ...

    def __repr__(self) -> str: ...

class PoolCounts:
    """
    Where the blocks of a pool are.

    ``free + live + reserved + cached == managed`` at every moment.
    """

    @property
    def managed(self) -> int:
        """Blocks the pool has."""

    @property
    def free(self) -> int:
        """Blocks that can be handed out."""

    @property
    def live(self) -> int:
        """Blocks checked out to an owner."""

    @property
    def reserved(self) -> int:
        """Blocks set aside by reservations."""

    @property
    def cached(self) -> int:
        """Blocks that a prefix index owns; 0 while a pool has none."""

    def __eq__(self, other: object, /) -> bool: ...

    def __repr__(self) -> str: ...

class BlockPoolAllocator:
    """
    Who owns which block of a pool of fixed-size blocks.

    Keeps books only and knows nothing of bytes. All methods may be called from any thread. After
    ``os.fork`` the child's calls work, or raise RuntimeError; they never hang. Can't be copied or
    pickled.

    Parameters
    ----------
    config : PoolConfig, optional
        Sizes and behaviour; ``PoolConfig()`` by default.

    Examples
    --------
    >>> from kvpool.memory import BlockPoolAllocator, PoolConfig
    >>> pool = BlockPoolAllocator(PoolConfig(block_size=16, n_blocks=512))
    >>> blocks = pool.allocate("k", 40, owner="request-1")
    >>> [(block.block_id, block.n_used) for block in blocks]
    [(255, 16), (254, 16), (253, 8)]
    >>> pool.free_all("request-1")
    >>> pool.stats.blocks_in_use()
    0
    """

    def __init__(self, config: PoolConfig | None = None) -> None: ...

    def allocate(self, stream: str, n_tokens: SupportsIndex, owner: Hashable, format: str = 'fp16') -> list[Block]:
        """
        Check out ceil(n_tokens / block_size) blocks, all or none.

        Parameters
        ----------
        stream : str
            'k' or 'v'; ignored by a pool with one free list.
        n_tokens : int
            Token slots wanted, at least 1.
        owner : Hashable
            Who they go to; anything but None. Becomes active.
        format : str
            Label of what the blocks will hold.

        Returns
        -------
        list of Block
            In order, all full (`n_used`) but perhaps the last.

        Raises
        ------
        BlockPoolExhaustedError
            If too few are free and the pool may not grow far enough.
        ValueError, TypeError
            For bad arguments; nothing changes.
        """

    def free(self, blocks: Iterable[Block]) -> None:
        """
        Give blocks back, in the order given.

        Blocks that are free already, and stale handles, are skipped. An owner that loses its last
        block is no longer active.

        Parameters
        ----------
        blocks : sequence of Block

        Raises
        ------
        ValueError
            If one is no check-out of this pool; nothing is freed.
        """

    def mark_used(self, block: Block, n_used: SupportsIndex) -> None:
        """
        Set how many token slots of a block are in use.

        Parameters
        ----------
        block : Block
            A free or stale one changes nothing.
        n_used : int
            0 to block_size.

        Raises
        ------
        ValueError
            For an `n_used` outside that range.
        """

    @property
    def config(self) -> PoolConfig:
        """PoolConfig: what the pool was made with."""

    @property
    def stats(self) -> AllocationStats:
        """AllocationStats: a live, read-only view."""

    @property
    def history(self) -> History:
        """History: the last 256 snapshots of the counters, live."""

    def register_owner(self, owner: Hashable) -> None:
        """
        Make an owner active, so that a second user of its id is noticed.

        Raises
        ------
        OwnerAlreadyActiveError
            While it is registered, holds blocks, or has some reserved.
        """

    def release_owner(self, owner: Hashable) -> None:
        """Clear an owner's registration without freeing its blocks."""

    def claim(self, owner: Hashable, holder: object) -> object:
        """
        Make `holder` the one live cache of an owner; return the live one there is.
        """

    def disclaim(self, owner: Hashable, holder: object) -> None:
        """End the claim that `holder` has on an owner, if it has it."""

    def claimant(self, owner: Hashable) -> object | None:
        """The live cache of an owner, if there is one."""

    def free_all(self, owner: Hashable) -> None:
        """
        Give back all of an owner's blocks, in allocation order. An unknown owner has none.
        """

    def blocks_for(self, owner: Hashable) -> list[Block]:
        """The blocks an owner holds, in allocation order."""

    def reserve(self, items: Iterable[tuple[str, int] | tuple[str, int, str]], owner: Hashable) -> Reservation:
        """
        Set blocks aside for several streams and layers, whole or not at all.

        Parameters
        ----------
        items : iterable of (stream, n_tokens) or (stream, n_tokens, format)
            As the arguments of `allocate`.
        owner : Hashable
            Who the blocks will go to.

        Raises
        ------
        BlockPoolExhaustedError
            If too few are free for all items together; nothing is set aside.
        """

    def n_free(self, stream: str = 'k') -> int:
        """Free blocks of a stream."""

    def shrink(self, stream: str, target_free: int) -> int:
        """
        Retire free blocks of a stream until `target_free` are left; those in use stay.

        Retired ids are not used again. Growth may later add as many new blocks, up to `max_blocks`.

        Returns
        -------
        int
            How many were retired.
        """

    def is_managed(self, block_id: int) -> bool:
        """Whether the pool has a block of this id: False once it is retired."""

    def holds(self, block: Block) -> bool:
        """Whether a block is a check-out of this pool that goes on."""

    def counts(self) -> PoolCounts:
        """Where the blocks are, at one moment."""

    def check_invariants(self) -> None:
        """
        Recount the books from the blocks themselves; RuntimeError with what is wrong.
        """

    def __repr__(self) -> str: ...

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn: ...
