"""Plain-text tables, and numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], n_left: int = 1) -> list[str]:
    """Lay out a table.

    Parameters
    ----------
    header : sequence of str
        Names of the columns.
    rows : sequence of sequence of str
        Cells, as many a row as there are columns.
    n_left : int
        That many columns are aligned left, the others right.

    Returns
    -------
    list of str
        Lines: the header, a rule, the rows.
    """
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if column < n_left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(padded).rstrip()

    return [line(header), "  ".join("-" * width for width in widths), *map(line, cells[1:])]


def bytes_text(n_bytes: float) -> str:
    """Return a size in the unit that leaves one to three digits before the point."""
    for unit in ("B", "KiB", "MiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.1f} GiB"


def seconds_text(seconds: float) -> str:
    """Return a duration in ns, µs, ms or s, with three significant digits."""
    for factor, unit in ((1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{_three_digits(seconds)} s"


def ratio_text(ratio: float) -> str:
    """Return a ratio with as many digits as mean something."""
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{_three_digits(ratio)}x"


def _three_digits(value: float) -> str:
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f}"
