"""How contiguous arrays of tokens grow and shrink: by whole steps, in mlx_lm's own cadence.

When an append of ``n`` tokens does not fit, mlx_lm adds the least number of whole steps that holds
``n``. Before, it cuts the array to what is stored, unless that is a whole number of steps::

    step 4, stored 6 of 8, append 3:    [0 1 2 3 4 5] + [. . . .]         room 10
    step 4, stored 8 of 8, append 3:    [0 1 2 3 4 5 6 7] + [. . . .]     room 12

So the room is not always a multiple of the step, and is charged for as it is.
"""

from __future__ import annotations

import mlx.core as mx

DEFAULT_STEP = 256
"""mlx_lm's own step, in tokens."""

REWIND_PART = 4
"""A trim of less than one in this many parts of a step is a rewind; see `room_after_trim`."""


def check_step(step: int | None) -> None:
    """Check the step that a caller asks for.

    Raises
    ------
    TypeError
        If it is neither an integer nor None.
    ValueError
        If it is less than 1.
    """
    if step is None:
        return
    if isinstance(step, bool) or not isinstance(step, int):
        raise TypeError(f"step must be an integer of at least 1, or None; got {step!r}")
    if step < 1:
        raise ValueError(f"step must be at least 1, got {step}")


def growth(room: int, start: int, n_new: int, step: int, even: bool = True) -> tuple[int, int]:
    """Return how many rows are kept, and how many there are room for, after an append.

    Parameters
    ----------
    room : int
        Rows that the array has.
    start : int
        Rows in use.
    n_new : int
        Rows to append.
    step : int
        Rows that are added at a time.
    even : bool
        Whether every array that grows along has `room` rows; if not, what is unused is cut.
    """
    if start + n_new <= room:
        return room, room
    kept = room if even and start % step == 0 else start
    return kept, kept + -(-n_new // step) * step


def grown(array: mx.array | None, new: mx.array, kept: int, room: int) -> mx.array:
    """Return an array with its first `kept` rows and room for `room`, shaped as `new`."""
    n_rows, n_heads, _, head_dim = new.shape
    added = mx.zeros((n_rows, n_heads, room - kept, head_dim), new.dtype)
    if array is None:
        return added
    if array.shape[2] != kept:
        array = array[..., :kept, :]
    return mx.concatenate([array, added], axis=2)


def room_after_trim(room: int, stored: int, n_trimmed: int, step: int) -> int:
    """Return how many rows stay after a trim: whole steps that fell free go.

    A rewind (of less than a quarter of a step, as speculative decoding does at every turn) leaves
    one free step in place: else one that crosses a step's border back and forth would copy the
    whole array every time, which mlx_lm's own cache does not. Nothing stays of an empty array.

    Parameters
    ----------
    room : int
        Rows that the array has.
    stored : int
        Rows in use after the trim.
    n_trimmed : int
        Rows that the trim took out of use.
    step : int
        Rows that are given back at a time.
    """
    if stored == 0:
        return 0
    n_free_steps = (room - stored) // step
    if n_trimmed * REWIND_PART < step:
        n_free_steps -= 1
    return room - max(n_free_steps, 0) * step


def shortened(array: mx.array, room: int) -> mx.array:
    """Return the first `room` rows as an array of their own, not as a view of the longer one.

    It is evaluated, so that the longer one's memory is free before its blocks are.
    """
    shorter = mx.contiguous(array[..., :room, :])
    mx.eval(shorter)
    return shorter


def same_layout(a: mx.array | None, b: mx.array | None) -> bool:
    """Whether two arrays have the same shape and dtype, or are both None."""
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and a.dtype == b.dtype
