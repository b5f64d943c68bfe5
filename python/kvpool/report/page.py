"""The frame around every report, and the pieces of HTML that reports are put together from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any


def page(title: str, body: Iterable[str]) -> str:
    """Return a whole HTML document.

    Parameters
    ----------
    title : str
        Plain text.
    body : iterable of str
        Pieces of HTML.
    """
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{_resource('style.css')}</style>",
            "</head>",
            "<body>",
            "<main>",
            *body,
            "</main>",
            f"<script>\n{_resource('hover.js')}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def section(title: str, *content: str) -> str:
    """Return a section under a heading; `content` is HTML."""
    return "\n".join(["<section>", f"<h2>{escape(title)}</h2>", *content, "</section>"])


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph of plain text, of a class of style.css."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{escape(text)}</p>"


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str = "",
    n_text: int = 1,
    kind: str = "",
) -> str:
    """Return a table of plain text that scrolls sideways where it does not fit.

    Parameters
    ----------
    header : sequence of str
        Names of the columns.
    rows : iterable of sequence of str
        The first cell of each is its heading.
    caption : str
        Above the table.
    n_text : int
        That many columns are aligned left, the others right.
    kind : str
        A class of style.css.
    """

    def alignment(column: int) -> str:
        return "" if column < n_text else ' class="number"'

    head = "".join(
        f'<th scope="col"{alignment(column)}>{escape(name)}</th>'
        for column, name in enumerate(header)
    )
    lines = ['<div class="scroll">', f'<table class="{kind}">' if kind else "<table>"]
    if caption:
        lines.append(f"<caption>{escape(caption)}</caption>")
    lines += [f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    for first, *others in rows:
        cells = "".join(
            f"<td{alignment(column)}>{escape(cell)}</td>" for column, cell in enumerate(others, 1)
        )
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody>", "</table>", "</div>"])


def data(name: str, value: Any) -> str:
    """Return an element that holds a value as JSON, for the script and for other programs."""
    # "</" would end the element, wherever it stands.
    text = json.dumps(value, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    return f'<script type="application/json" id="{escape(name)}">{text}</script>'


def _resource(name: str) -> str:
    return (resources.files("kvpool.report") / name).read_text("utf-8")
