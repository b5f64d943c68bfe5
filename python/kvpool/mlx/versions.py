"""The releases of mlx_lm that the caches work with, and what differs between them.

The cache protocol of mlx_lm changed with 0.32: until then a cache's ``state`` held arrays only and
its numbers went through ``meta_state``; since then ``state`` holds both. The caches of this package
follow the release that is installed.

To run the tests against the oldest release, put it in front of the newest one::

    pip install --no-deps --target /path/to/oldest mlx-lm==0.31.3
    PYTHONPATH=/path/to/oldest python -m pytest tests/python/mlx
"""

from __future__ import annotations

import re

OLDEST = (0, 31, 3)
"""Oldest supported release. In 0.31.2 a batch of recurrent states cannot be extended."""

NEWEST = (0, 32, 2)
"""Newest release that the tests ran with."""

STATE_HOLDS_NUMBERS_SINCE = (0, 32, 0)


def parse(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, ``"0.32.2.dev0"`` being ``(0, 32, 2)``.

    Raises
    ------
    ValueError
        If the version does not start with a number.
    """
    match = re.match(r"\d+(\.\d+)*", version)
    if match is None:
        raise ValueError(f"[kvpool.mlx] not a version: {version!r}")
    return tuple(int(number) for number in match.group().split("."))


def check(version: str) -> tuple[int, ...]:
    """Return the parsed version of mlx_lm.

    Raises
    ------
    ImportError
        If the release is older than `OLDEST`. A newer one than `NEWEST` is let through: the
        protocol may well be the same.
    """
    numbers = parse(version)
    if numbers < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ImportError(
            f"kvpool.mlx needs mlx-lm {oldest} or newer, found {version}; "
            f"install it with: pip install 'mlx-lm>={oldest}'"
        )
    return numbers


def _installed() -> tuple[int, ...]:
    try:
        import mlx_lm
    except ImportError as error:
        raise ImportError(
            "kvpool.mlx needs MLX and mlx-lm; install them with: pip install 'kvpool[mlx]'"
        ) from error
    return check(mlx_lm.__version__)


INSTALLED = _installed()

STATE_HOLDS_NUMBERS = INSTALLED >= STATE_HOLDS_NUMBERS_SINCE
"""Whether a cache's ``state`` carries its numbers (offset, bits, …) beside its arrays."""
