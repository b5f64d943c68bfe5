"""The books of the caches: what each holds, and how a step is secured for all layers at once.

A :class:`Line` is what one batch row of one cache has checked out. Caches of one request (one layer
each) form a :class:`Group`; a :class:`Plan` is the group's next forward step.

::

    cache of layer 0 ─┐                        ┌─ Line (row 0) ── Account (owner, pool)
    cache of layer 1 ─┼── Group ── Plan        │
    cache of layer 2 ─┘            └ shares, ──┴─ Line (row 1) ── Account
                                     one a cache, of one Reservation an account

The first layer of a step to come plans the step of every layer that is in lockstep with it and
reserves all their blocks; each layer takes its own share when its turn comes. If the reservation
fails, no layer has moved. What a layer never came for is given back when the next step is planned:
while a layer is due, every layer's *limit* (see below) ends with the step in progress, so
the next step can't pass unseen.

To keep planning out of the path of single tokens, a plan also tells each layer its limit: how far
it may append one token at a time before the group has to be asked again. That is the nearest of

- the position at which any layer of the group needs blocks, and
- the end of the block being filled, where the slots in use (``n_used``) of all layers are written
  to the pool's books. So full blocks are always booked as full, and ``n_used`` of the block being
  filled is up to ``block_size - 1`` behind.

Nothing here knows MLX. A cache may die in any thread at any moment: all that happens then is one
call of ``pool.free``, outside any lock of ours.
"""

from __future__ import annotations

import copy
import itertools
import weakref
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from kvpool.memory import BlockPoolAllocator, Reservation
from kvpool.memory.ownership import Account
from kvpool.mlx.lines import UNBOUNDED, Demand, Line, Share, reserve

if TYPE_CHECKING:
    from kvpool.mlx.tracked import TrackedCache


class Plan:
    """A step of all caches of a group that are in lockstep, and what is reserved for it.

    Attributes
    ----------
    step : int
        What the step is: the number of tokens appended, or a negative number for an extension.
    limits : dict of int to int
        The limit of each cache, by slot, once the step has been taken by all.
    """

    __slots__ = ("_due", "_expected", "_reservations", "limits", "step")

    def __init__(self, step: int, reservations: list[Reservation]) -> None:
        self.step = step
        self.limits: dict[int, int] = {}
        self._reservations = reservations
        self._expected: dict[int, tuple[int, Share | None]] = {}
        self._due: set[int] = set()

    @property
    def complete(self) -> bool:
        """Whether every cache that was due has come."""
        return not self._due

    def expect(
        self, slot: int, position: int, share: Share | None, changes_room: bool = False
    ) -> None:
        """Note that the cache of `slot` is to come once, at `position`.

        It is due if it has to come before the next step: to take its share, or because its arrays
        will grow or shrink, be it without a change of blocks.
        """
        self._expected[slot] = (position, share)
        if share is not None or changes_room:
            self._due.add(slot)

    def is_due(self, slot: int) -> bool:
        """Whether the cache of `slot` has to come before the next step."""
        return slot in self._due

    def covers(self, slot: int, position: int, step: int) -> bool:
        """Whether the cache of `slot` still has to come, and comes as it was expected to."""
        entry = self._expected.get(slot)
        return entry is not None and entry[0] == position and step == self.step

    def take(self, slot: int) -> Share | None:
        """Hand the cache of `slot` its share; it is not expected again."""
        share = self._expected.pop(slot)[1]
        self._due.discard(slot)
        if share is not None:
            share.take()
        return share

    def cancel(self) -> None:
        """Give back what was not taken."""
        for reservation in self._reservations:
            reservation.cancel()


_numbers = itertools.count(1)


class Group:
    """The caches of one request, or of one batch: one a layer.

    Parameters
    ----------
    pool : BlockPoolAllocator
        The pool of all of them.
    accounts : list of Account
        One for each row of a batch; for a request, the one account of all its rows.

    Attributes
    ----------
    announced : int
        Tokens of the step that a mask was made for, until the step is planned; 0 when unknown.
    """

    __slots__ = (
        "__weakref__",
        "_announced_at",
        "_derived",
        "_members",
        "_n_slots",
        "_plan",
        "accounts",
        "announced",
        "number",
        "pool",
    )

    def __init__(self, pool: BlockPoolAllocator, accounts: list[Account]) -> None:
        self.pool = pool
        self.accounts = accounts
        self.announced = 0
        self._announced_at = 0  # where the step begins; past that, it has begun
        self.number = next(_numbers)
        self._members: list[weakref.ref[TrackedCache]] = []
        self._n_slots = 0
        self._plan: Plan | None = None
        self._derived: dict[Hashable, tuple[weakref.ref[Group], set[int]]] = {}

    @classmethod
    def of(cls, pool: BlockPoolAllocator, owner: Hashable) -> Group:
        """Return a group for one request; see Account for the errors."""
        return cls(pool, [Account(pool, owner)])

    def __deepcopy__(self, memo: dict[int, Any]) -> Group:
        """Copies made in one go share one fresh group, by way of `memo`."""
        return Group(self.pool, [copy.deepcopy(account, memo) for account in self.accounts])

    def derived(self, key: Hashable, slot: int, accounts: Sequence[Account | None]) -> Group:
        """Return the group that copies of this one's caches share.

        mlx_lm merges a request into a batch, and extracts it again, one layer at a time. Layers
        that come under the same `key`, each once, get one group; a layer that comes a second time
        begins the next one.

        Parameters
        ----------
        key : hashable
            What is done.
        slot : int
            The layer that comes.
        accounts : sequence of Account or None
            The accounts that the rows come from; the new group has fresh ones.
        """
        group_ref, taken = self._derived.get(key, (None, set()))
        group = None if group_ref is None else group_ref()
        if group is None or slot in taken:
            fresh = [Account(self.pool) if a is None else a.copy() for a in accounts]
            group, taken = Group(self.pool, fresh), set()
            self._derived = {k: v for k, v in self._derived.items() if v[0]() is not None}
            self._derived[key] = (weakref.ref(group), taken)
        taken.add(slot)
        return group

    def join(self, cache: TrackedCache) -> int:
        """Add a cache; returns the slot that it is known by.

        Raises
        ------
        ValueError
            If it is one of the group already: it would be charged twice.
        """
        if any(ref() is cache for ref in self._members):
            raise ValueError("[Group.join] the cache is one of the group already")
        self._members.append(weakref.ref(cache))
        self._n_slots += 1
        return self._n_slots - 1

    def leave(self, cache: TrackedCache) -> None:
        """Forget a cache that could not be filled."""
        self._members = [ref for ref in self._members if ref() is not cache]

    def members(self) -> list[TrackedCache]:
        """Return the caches that are alive, in the order in which they joined."""
        return [cache for ref in self._members if (cache := ref()) is not None]

    def release(self) -> None:
        """Give back every block of every cache, and empty the caches.

        The owner may then be used by others. A released cache can be filled again, unless another
        one took its owner.
        """
        self.cancel()
        for cache in self.members():
            for line in cache._lines:
                line.clear()
                line.account.disclaim()
            cache._forget()
        for account in self.accounts:
            account.disclaim()

    def cancel(self) -> None:
        """Give back what is reserved for a step and was not taken."""
        if self._plan is not None:
            self._plan.cancel()
            self._plan = None

    def secure(self, cache: TrackedCache, n_new: int, n_rows: int, label: str) -> None:
        """See that `cache` holds the blocks it needs to append `n_new` tokens.

        Parameters
        ----------
        cache : TrackedCache
            The cache whose turn it is; at the first of a step, the step is planned for all.
        n_new : int
            Tokens appended to each row.
        n_rows : int
            Batch rows, for caches that hold nothing yet.
        label : str
            Format of the blocks of caches that hold nothing yet.

        Raises
        ------
        BlockPoolExhaustedError
            If the pool can't give the blocks of the whole step. Nothing has changed then.
        """
        plan = self._plan
        if plan is None or not plan.covers(cache._slot, cache._position(), n_new):
            plan = self._plan_step(cache, n_new, n_rows, label)
        due = plan.is_due(cache._slot)
        share = plan.take(cache._slot)
        if share is not None:
            cache._lines = share.lines
            cache._mark(n_new)
        if due:
            cache._limit = cache._position() + n_new
            if plan.complete:
                for member in self.members():
                    member._limit = plan.limits.get(member._slot, member._limit)

    def secure_states(self, cache: TrackedCache, announced: int, n_rows: int, label: str) -> None:
        """Like `secure`, for a cache of states, which is not told how many tokens are appended.

        They are those of the step in progress if the cache is part of it, or as `announced`.
        """
        plan = self._plan
        n_new = max(announced, 1)
        if plan is not None and plan.covers(cache._slot, cache._position(), plan.step):
            n_new = max(plan.step, n_new)
        self.secure(cache, n_new, n_rows, label)

    def announce(self, n_new: int) -> None:
        """Note that a mask is made for a step of `n_new` tokens."""
        self.announced = n_new
        cache = self._counting_member()
        self._announced_at = 0 if cache is None else cache._position()

    def _counting_member(self) -> TrackedCache | None:
        """Return the first cache that is told of tokens."""
        for ref in self._members:
            cache = ref()
            if cache is not None and cache._clock is not None:
                return cache
        return None

    def begin_announced_step(self, n_rows: int, label: str) -> None:
        """Plan the step that a mask was made for, if blocks may be needed.

        A cache of states calls this, being told nothing of the tokens of the layers to come.
        """
        n_new, self.announced = self.announced, 0
        cache = self._counting_member()
        if cache is None or cache._position() != self._announced_at:
            return
        if n_new > 1 or cache._position() + n_new > cache._limit:
            self._plan_step(cache, n_new, n_rows, label)

    def _plan_step(self, cache: TrackedCache, n_new: int, n_rows: int, label: str) -> Plan:
        self.cancel()
        self.announced = 0
        peers = [peer for peer in self.members() if peer._in_step_with(cache)]
        demands = []
        slack = UNBOUNDED
        for peer in peers:
            lines = peer._lines or [Line(self.accounts[0]) for _ in range(n_rows)]
            demands.append(Demand(lines, peer._blocks_after(n_new), peer._label() or label))
            slack = min(slack, peer._slack_after(n_new))
        reservations, shares = reserve(demands)
        self._plan = plan = Plan(n_new, reservations)
        block_size = self.pool.config.block_size
        for peer, share in zip(peers, shares, strict=True):
            plan.expect(peer._slot, peer._position(), share, peer._changes_room(n_new))
        for peer, share in zip(peers, shares, strict=True):
            position = peer._position()
            end = position + n_new
            plan.limits[peer._slot] = limit = end + min(slack, block_size - 1 - end % block_size)
            if share is None:
                peer._mark(n_new)
            if plan.is_due(peer._slot):
                peer._limit = position
            elif plan.complete:
                peer._limit = limit
            else:
                peer._limit = end
        return plan

    def secure_extension(self, cache: TrackedCache, other: TrackedCache) -> None:
        """See that the rows of `cache`, and of `other` joined to it, hold the blocks they need.

        As with a step, the first layer to come secures all: layers are paired in the order in
        which they joined their groups.

        Raises
        ------
        BlockPoolExhaustedError
            If the pool can't give all of it. Nothing has changed then.
        """
        step = -other._group.number
        plan = self._plan
        if plan is None or not plan.covers(cache._slot, cache._position(), step):
            self.cancel()
            pairs = list(zip(self.members(), other._group.members(), strict=False))
            if (cache, other) not in pairs or any(type(a) is not type(b) for a, b in pairs):
                pairs = [(cache, other)]
            reservations, shares = reserve([a._extension(b) for a, b in pairs])
            self._plan = plan = Plan(step, reservations)
            for (member, _), share in zip(pairs, shares, strict=True):
                plan.expect(member._slot, member._position(), share)
        plan.take(cache._slot)
