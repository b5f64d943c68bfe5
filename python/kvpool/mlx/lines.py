"""What the caches have checked out, line by line, and how lines get what they lack.

Nothing here knows MLX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvpool.memory import Block, Reservation
from kvpool.memory.ownership import Account

STREAMS = ("k", "v")

UNBOUNDED = 1 << 62
"""A number of tokens that no cache reaches."""


def blocks_for_rows(n_rows: int, block_size: int) -> int:
    """Blocks that arrays with room for `n_rows` tokens account for."""
    return -(-n_rows // block_size)


class Line:
    """The blocks one batch row of one cache holds, by stream.

    They go back when the line goes away, without waiting for the garbage collector: nothing that a
    line refers to refers to it.
    """

    __slots__ = ("_marked", "account", "blocks", "label")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.label = ""  # format of the blocks
        self.blocks: tuple[list[Block], list[Block]] = ([], [])
        self._marked = [0, 0]  # tokens that n_used of the blocks tells, by stream

    def __del__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Give every block back."""
        blocks = self.blocks[0] + self.blocks[1]
        self.blocks = ([], [])
        self._marked = [0, 0]
        if blocks:
            self.account.pool.free(blocks)

    def add(self, stream: int, blocks: list[Block], label: str) -> None:
        """Take in freshly checked out blocks, of which no slot is used yet."""
        self.label = label
        mark_used = self.account.pool.mark_used
        for block in blocks:
            mark_used(block, 0)
        self.blocks[stream].extend(blocks)

    def shrink(self, stream: int, n_blocks: int) -> None:
        """Give back the newest blocks of a stream down to `n_blocks`."""
        held = self.blocks[stream]
        if len(held) > n_blocks:
            surplus = held[n_blocks:]
            del held[n_blocks:]
            block_size = self.account.pool.config.block_size
            self._marked[stream] = min(self._marked[stream], n_blocks * block_size)
            self.account.pool.free(surplus)

    def mark(self, n_tokens: int) -> None:
        """Write to the books that the first `n_tokens` slots of each stream are used."""
        pool = self.account.pool
        block_size = pool.config.block_size
        for stream, held in enumerate(self.blocks):
            told = min(n_tokens, len(held) * block_size)
            before = self._marked[stream]
            if told == before:
                continue
            first, last = sorted((before, told))
            for index in range(first // block_size, blocks_for_rows(last, block_size)):
                used = min(max(told - index * block_size, 0), block_size)
                pool.mark_used(held[index], used)
            self._marked[stream] = told


class Share(NamedTuple):
    """What one cache's part of a plan is: lines, and the items that become their blocks."""

    lines: list[Line]
    label: str
    items: list[tuple[Reservation, int, Line, int]]

    def take(self) -> None:
        """Turn the items into blocks of the lines."""
        for reservation, item, line, stream in self.items:
            line.add(stream, reservation.take(item), self.label)


class Demand(NamedTuple):
    """Blocks that lines should have: the same for every row of one cache."""

    lines: list[Line]
    n_blocks: tuple[int, int]
    label: str


def reserve(demands: Sequence[Demand]) -> tuple[list[Reservation], list[Share | None]]:
    """Reserve what lines lack, whole or not at all, one reservation an account.

    Returns
    -------
    reservations : list of Reservation
        All that was reserved.
    shares : list of Share or None
        One for each demand; None where nothing is lacking.

    Raises
    ------
    BlockPoolExhaustedError
        If the pool can't give all of it; then nothing is reserved.
    """
    wanted: dict[int, tuple[Account, list[tuple[int, Line, int, int]]]] = {}
    for number, (lines, n_blocks, _) in enumerate(demands):
        for line in lines:
            for stream in (0, 1):
                missing = n_blocks[stream] - len(line.blocks[stream])
                if missing > 0:
                    entry = wanted.setdefault(id(line.account), (line.account, []))
                    entry[1].append((number, line, stream, missing))
    if not wanted:
        return [], [None] * len(demands)

    reservations: list[Reservation] = []
    items: list[list[tuple[Reservation, int, Line, int]]] = [[] for _ in demands]
    try:
        for account, wishes in wanted.values():
            account.claim()
            block_size = account.pool.config.block_size
            reservation = account.pool.reserve(
                [
                    (STREAMS[stream], missing * block_size, demands[number].label)
                    for number, _, stream, missing in wishes
                ],
                account.owner,
            )
            reservations.append(reservation)
            for item, (number, line, stream, _) in enumerate(wishes):
                items[number].append((reservation, item, line, stream))
    except BaseException:
        for reservation in reservations:
            reservation.cancel()
        raise
    shares = [
        Share(demand.lines, demand.label, own) if own else None
        for demand, own in zip(demands, items, strict=True)
    ]
    return reservations, shares


def settle(lines: list[Line], n_blocks: tuple[int, int], label: str) -> None:
    """Make every line hold exactly `n_blocks` a stream.

    Raises
    ------
    BlockPoolExhaustedError
        If the pool can't give what is lacking; then no line has changed.
    """
    for share in reserve([Demand(lines, n_blocks, label)])[1]:
        if share is not None:
            share.take()
    for line in lines:
        line.shrink(0, n_blocks[0])
        line.shrink(1, n_blocks[1])
