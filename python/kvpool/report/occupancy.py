"""Who held how many blocks of the pool when: a stacked area drawing.

Occupancy is constant from one sample to the next, so the areas have steps, not slopes::

    blocks
      |- - - - - - - - - - - - - - - - - - - - - - -   the pool's size
      |            +-----------------+
      |     +------+   request 2     +---+
      |  +--+------+-----------------+   |             areas: blocks held
      |  |       request 1           |   |
      +--+---------------------------+---+---------- seconds

A line in front of the areas tells the tokens stored, in the same unit: what is between it and the
top of the areas is held but not used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

from kvpool.report.page import data

N_COLOURS = 8
"""Colours of style.css, named s0 and so on; they come again after the last."""


class Drawing(NamedTuple):
    """Sizes of a drawing, in units of its view box, and what its axes span."""

    kind: str
    width: int
    height: int
    last_second: float
    top_block: int
    n_ticks: int

    left: int = 56
    right_margin: int = 14
    top: int = 30
    bottom_margin: int = 40

    @property
    def right(self) -> int:
        """Where the axis of seconds ends."""
        return self.width - self.right_margin

    @property
    def bottom(self) -> int:
        """Where no block is."""
        return self.height - self.bottom_margin

    def x(self, second: float) -> float:
        """Return where a moment is."""
        return self.left + (self.right - self.left) * second / self.last_second

    def y(self, blocks: float) -> float:
        """Return where a number of blocks is."""
        return self.bottom - (self.bottom - self.top) * blocks / self.top_block


def occupancy_chart(
    occupancy: dict[str, Any],
    block_size: int,
    event: tuple[float, str] | None = None,
    name: str = "occupancy",
) -> str:
    """Return the drawing, once for wide and once for narrow pages, with its legend and data.

    Parameters
    ----------
    occupancy : dict
        ``seconds``, ``blocks_managed``, ``blocks_live``: a number a sample. ``requests``: dicts of
        ``name``, and of ``blocks`` and ``slots_used``, a number a sample.
    block_size : int
        Token slots a block.
    event : tuple of float and str, optional
        A moment to mark, in seconds, and what to write there.
    name : str
        Id of the element that holds `occupancy` as JSON.
    """
    last_second = max(occupancy["seconds"][-1], 1e-9)
    highest = max(max(occupancy["blocks_live"]), 1)
    managed = max(occupancy["blocks_managed"])
    # A pool that is much larger than what is used would press the areas flat.
    top = managed if managed <= 3 * highest else math.ceil(highest * 1.15)
    kinds = (
        Drawing("wide", 960, 400, last_second, top, 8),
        Drawing("narrow", 400, 340, last_second, top, 4),
    )
    return "\n".join(
        [
            f'<div class="card chart" data-books="{escape(name)}">',
            *(_svg(drawing, occupancy, block_size, managed, event) for drawing in kinds),
            *_legend(occupancy),
            '<p class="readout">Point at the drawing for the figures at a moment.</p>',
            data(name, occupancy),
            "</div>",
        ]
    )


def stacked(series: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the running sums of the series: the zeros below the first, then the top of each."""
    levels = [[0] * len(series[0])] if series else []
    for values in series:
        levels.append([below + value for below, value in zip(levels[-1], values, strict=True)])
    return levels


def steps(
    drawing: Drawing, seconds: Sequence[float], values: Sequence[float]
) -> list[tuple[float, float]]:
    """Return the corners of a line that keeps each value until the next sample."""
    corners = [(drawing.x(seconds[0]), drawing.y(values[0]))]
    for (_, before), (second, value) in pairwise(zip(seconds, values, strict=True)):
        if value != before:
            x = drawing.x(second)
            corners += [(x, drawing.y(before)), (x, drawing.y(value))]
    corners.append((drawing.x(seconds[-1]), drawing.y(values[-1])))
    return corners


def _svg(
    drawing: Drawing,
    occupancy: dict[str, Any],
    block_size: int,
    managed: int,
    event: tuple[float, str] | None,
) -> str:
    return "\n".join(
        [
            f'<svg class="{drawing.kind}" viewBox="0 0 {drawing.width} {drawing.height}" '
            f'data-left="{drawing.left}" data-right="{drawing.right}" '
            f'data-last="{drawing.last_second!r}" role="img" '
            'aria-label="Blocks of the pool in use over time, by request">',
            *_axes(drawing),
            *_areas(drawing, occupancy),
            *_stored(drawing, occupancy, block_size),
            *_limit(drawing, managed),
            *_event(drawing, event),
            f'<line class="cursor" x1="0" x2="0" y1="{drawing.top}" y2="{drawing.bottom}"/>',
            "</svg>",
        ]
    )


def _axes(drawing: Drawing) -> Iterator[str]:
    for blocks in _ticks(drawing.top_block, 5):
        y = drawing.y(blocks)
        yield (
            f'<line class="axis" x1="{drawing.left}" x2="{drawing.right}" '
            f'y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        yield (
            f'<text x="{drawing.left - 8}" y="{y + 4:.1f}" text-anchor="end">{blocks:,.0f}</text>'
        )
    for second in _ticks(drawing.last_second, drawing.n_ticks):
        x = drawing.x(second)
        yield (
            f'<text x="{x:.1f}" y="{drawing.bottom + 18}" text-anchor="middle">{second:g}</text>'
        )
    yield f'<text x="{drawing.left - 8}" y="14" text-anchor="end">blocks</text>'
    yield (f'<text x="{drawing.right}" y="{drawing.height - 4}" text-anchor="end">seconds</text>')


def _areas(drawing: Drawing, occupancy: dict[str, Any]) -> Iterator[str]:
    requests, seconds = occupancy["requests"], occupancy["seconds"]
    levels = stacked([request["blocks"] for request in requests])
    for index, request in enumerate(requests):
        below = steps(drawing, seconds, levels[index])
        above = steps(drawing, seconds, levels[index + 1])
        outline = _points([*above, *reversed(below)])
        yield (
            f'<polygon class="area s{index % N_COLOURS}" points="{outline}">'
            f"<title>{escape(request['name'])}: up to {max(request['blocks']):,} blocks</title>"
            "</polygon>"
        )


def _stored(drawing: Drawing, occupancy: dict[str, Any], block_size: int) -> Iterator[str]:
    slots = (sum(used) for used in zip(*_columns(occupancy, "slots_used"), strict=True))
    blocks = [n_slots / block_size for n_slots in slots]
    if blocks:
        points = _points(steps(drawing, occupancy["seconds"], blocks))
        yield f'<polyline class="stored" points="{points}"><title>tokens stored</title></polyline>'


def _limit(drawing: Drawing, managed: int) -> Iterator[str]:
    if managed > drawing.top_block:
        return
    y = drawing.y(managed)
    yield (
        f'<line class="limit" x1="{drawing.left}" x2="{drawing.right}" y1="{y:.1f}" y2="{y:.1f}"/>'
    )
    yield (
        f'<text x="{drawing.right}" y="{y - 6:.1f}" text-anchor="end">'
        f"the pool: {managed:,} blocks</text>"
    )


def _event(drawing: Drawing, event: tuple[float, str] | None) -> Iterator[str]:
    if event is None:
        return
    second, text = event
    x = drawing.x(second)
    beyond_middle = x > (drawing.left + drawing.right) / 2
    anchor, shift = ("end", -6) if beyond_middle else ("start", 6)
    yield (
        f'<line class="event" x1="{x:.1f}" x2="{x:.1f}" y1="{drawing.top}" y2="{drawing.bottom}"/>'
    )
    yield (
        f'<text class="event-text" x="{x + shift:.1f}" y="{drawing.top + 18}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


def _legend(occupancy: dict[str, Any]) -> Iterator[str]:
    yield '<ul class="legend">'
    for index, request in enumerate(occupancy["requests"]):
        yield f'<li><i class="s{index % N_COLOURS}"></i>{escape(request["name"])}</li>'
    yield '<li><i class="stroke"></i>tokens stored; above it: held, not used</li>'
    yield "</ul>"


def _columns(occupancy: dict[str, Any], key: str) -> list[list[int]]:
    return [request[key] for request in occupancy["requests"]]


def _points(corners: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)


def _ticks(end: float, at_most: int) -> list[float]:
    """Return round numbers from 0 to `end`, no more than one more than `at_most`."""
    rough = end / at_most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * (1 - 1e-9))
    return [round(index * step, 10) for index in range(int(end / step + 1e-9) + 1)]
