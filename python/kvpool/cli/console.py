"""Words for a person: lines that stay, and one status line that the next one replaces."""

from __future__ import annotations

import textwrap
from typing import TextIO

WIDTH = 100
"""Columns that all text for a person fits in."""


class Console:
    """Plain text on a stream, without colours.

    On a terminal, `status` shows one line that the next output replaces. Elsewhere only lines that
    stay are written, so that a log has no control characters.

    Parameters
    ----------
    out : text file
        Where the words go.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._in_place = out.isatty()
        self._has_status = False

    def line(self, text: str = "") -> None:
        """Write a line that stays."""
        self._clear_status()
        self._out.write(text.rstrip() + "\n")
        self._out.flush()

    def paragraph(self, text: str, indent: str = "", first: str | None = None) -> None:
        """Write text wrapped to the width, `first` in front of it and `indent` below that."""
        wrapped = textwrap.wrap(
            text,
            WIDTH,
            initial_indent=indent if first is None else first,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )
        for line in wrapped or [""]:
            self.line(line)

    def status(self, text: str) -> None:
        """Show what is going on until the next output; nothing where lines can't be replaced."""
        if self._in_place:
            self._clear_status()
            self._out.write(text[: WIDTH - 1])
            self._out.flush()
            self._has_status = True

    def _clear_status(self) -> None:
        if self._has_status:
            self._out.write("\r\x1b[K")
            self._has_status = False


class StreamedText:
    """Text that arrives in pieces, written line by line behind a label.

    Several of these share one console, so whole lines are what keeps them readable.

    Parameters
    ----------
    console : Console
        Where the lines go.
    label : str
        In front of every line.
    """

    def __init__(self, console: Console, label: str) -> None:
        self._console = console
        self._label = label
        self._pending = ""

    def add(self, piece: str) -> None:
        """Take in a piece; write the lines that it completes."""
        self._pending += piece
        room = WIDTH - len(self._label)
        while True:
            head, newline, rest = self._pending.partition("\n")
            if len(head) > room:
                cut = head.rfind(" ", 1, room + 1)
                cut = room if cut < 0 else cut
                self._write(head[:cut])
                self._pending = self._pending[cut:].lstrip(" ")
            elif newline:
                if head.strip():
                    self._write(head)
                self._pending = rest
            else:
                return

    def finish(self, remark: str) -> None:
        """Write what is left, and a remark behind it."""
        room = WIDTH - len(self._label)
        if len(self._pending) + len(remark) + 1 > room:
            self._write(self._pending)
            self._pending = ""
        self._write(f"{self._pending} {remark}".strip())
        self._pending = ""

    def _write(self, text: str) -> None:
        self._console.line(self._label + text)
