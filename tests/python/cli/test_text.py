"""Console, streamed text and tables."""

from __future__ import annotations

import io

import pytest

from kvpool.cli.console import WIDTH, Console, StreamedText
from kvpool.cli.tables import bytes_text, ratio_text, seconds_text, table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_no_control_characters_where_lines_cannot_be_replaced() -> None:
    out = io.StringIO()
    console = Console(out)
    console.status("half way")
    console.line("done")
    assert out.getvalue() == "done\n"


def test_a_status_is_replaced_by_what_comes_next() -> None:
    out = Terminal()
    console = Console(out)
    console.status("one")
    console.status("two")
    console.line("done")
    assert out.getvalue() == "one\r\x1b[Ktwo\r\x1b[Kdone\n"


@pytest.mark.parametrize("n_letters", [1, 3, 7, 200])
def test_streamed_text_is_whole_and_fits(n_letters: int) -> None:
    text = " ".join(f"word{index}" for index in range(60)) + "\n\nnext paragraph"
    out = io.StringIO()
    streamed = StreamedText(Console(out), "[1] ")
    for start in range(0, len(text), n_letters):
        streamed.add(text[start : start + n_letters])
    streamed.finish("(end)")
    lines = out.getvalue().splitlines()
    assert all(line.startswith("[1] ") and len(line) <= WIDTH for line in lines)
    assert " ".join(line[4:] for line in lines).split() == [*text.split(), "(end)"]


def test_streamed_text_does_not_wait_for_its_end() -> None:
    out = io.StringIO()
    streamed = StreamedText(Console(out), "[1] ")
    streamed.add("word " * 30)
    assert out.getvalue().startswith("[1] word word")


def test_a_word_longer_than_a_line_is_cut() -> None:
    out = io.StringIO()
    streamed = StreamedText(Console(out), "")
    streamed.add("x" * 250)
    streamed.finish("")
    assert [len(line) for line in out.getvalue().splitlines()] == [100, 100, 50]


def test_table_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table(["", "n"], [["one", "1"], ["three", "12,345"]]) == [
        "            n",
        "-----  ------",
        "one         1",
        "three  12,345",
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (bytes_text(0), "0 B"),
        (bytes_text(1536), "1.5 KiB"),
        (bytes_text(23_592_960), "22.5 MiB"),
        (bytes_text(3 * 2**40), "3072.0 GiB"),
        (seconds_text(4.4e-7), "440 ns"),
        (seconds_text(9.996e-6), "10.0 µs"),
        (seconds_text(0.0026), "2.60 ms"),
        (seconds_text(2.9), "2.90 s"),
        (seconds_text(0.9999), "1.00 s"),
        (ratio_text(16.55), "16.6x"),
        (ratio_text(11008.4), "11,008x"),
    ],
)
def test_numbers_are_readable(text: str, wanted: str) -> None:
    assert text == wanted
