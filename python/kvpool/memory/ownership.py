"""Who a cache's blocks belong to: private owners, and one live account an owner and pool.

An :class:`Account` is the claim of one request on one pool. It lives as long as a cache of the
request does, and its blocks are checked out under its owner. Two live accounts with one owner would
give back each other's blocks, so the second is refused; that is a matter between caches, and a
caller is free to have called ``pool.register_owner`` first.

Who holds which claim is kept by the pool's binding: that is settled between looking an owner up,
which may run code of the owner's, and the next line of Python. So no lock is needed, neither one
that a fork could leave locked nor one that is held while an owner is hashed.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from kvpool._core import BlockPoolAllocator, OwnerAlreadyActiveError

if TYPE_CHECKING:
    from kvpool.mlx.ledger import Group

PRIVATE = -1
"""The owner that asks for a fresh private one."""

_numbers = itertools.count(1)


class PrivateOwner:
    """An owner that is equal to nothing but itself.

    Attributes
    ----------
    number : int
        Counts up over the process.
    parent : object or None
        The owner of the cache this one was copied from, so that a report can tell the request.
    """

    __slots__ = ("number", "parent")

    def __init__(self, parent: Hashable | None = None) -> None:
        self.number = next(_numbers)
        self.parent = parent

    def __repr__(self) -> str:
        parent = "" if self.parent is None else f", copied from {self.parent!r}"
        return f"<private owner {self.number}{parent}>"


class Account:
    """One request's claim on one pool.

    Parameters
    ----------
    pool : BlockPoolAllocator
        The pool that blocks come from.
    owner : hashable
        The owner they are checked out to; -1 takes a fresh private one.
    parent : hashable, optional
        What a private owner tells as its origin.

    Raises
    ------
    ValueError
        If the owner is None.
    TypeError
        If the owner is not hashable, or `pool` is no pool.
    OwnerAlreadyActiveError
        If another live account of this pool has this owner.
    """

    __slots__ = ("__weakref__", "_claimed", "group", "owner", "pool")

    def __init__(
        self, pool: BlockPoolAllocator, owner: Hashable = PRIVATE, parent: Hashable | None = None
    ) -> None:
        if not isinstance(pool, BlockPoolAllocator):
            raise TypeError(f"[Account] pool must be a BlockPoolAllocator, got {pool!r}")
        if owner is None:
            raise ValueError("[Account] owner must not be None; -1 takes a private owner")
        if isinstance(owner, int) and owner == PRIVATE:
            owner = PrivateOwner(parent)
        self.pool = pool
        self.owner: Hashable = owner
        # The group that a later attach() with the same owner joins; see TrackedCache.attach.
        self.group: weakref.ref[Group] | None = None
        self._claimed = False
        self.claim()

    def claim(self) -> None:
        """Make this the live account of its owner; nothing changes if it is."""
        if isinstance(self.owner, PrivateOwner):
            return
        if self.pool.claim(self.owner, self) is not self:
            raise OwnerAlreadyActiveError(
                f"[Account] owner {self.owner!r} has a live cache on this pool; release it first, "
                "or use another owner (-1 takes a private one)"
            )
        self._claimed = True

    def disclaim(self) -> None:
        """Let another account have the owner. `claim` takes it back."""
        if self._claimed:
            self._claimed = False
            self.pool.disclaim(self.owner, self)

    def __del__(self) -> None:
        """Let another account have the owner."""
        if hasattr(self, "_claimed"):
            self.disclaim()

    def copy(self) -> Account:
        """Return an account on the same pool under a fresh private owner."""
        parent = self.owner.parent if isinstance(self.owner, PrivateOwner) else self.owner
        return Account(self.pool, PRIVATE, parent)

    def __deepcopy__(self, memo: dict[int, Any]) -> Account:
        """Copies made in one go share one fresh owner, by way of `memo`."""
        return self.copy()


def live_account(pool: BlockPoolAllocator, owner: Hashable) -> Account | None:
    """Return the live account of an owner on a pool, if there is one."""
    account = pool.claimant(owner)
    return account if isinstance(account, Account) else None
