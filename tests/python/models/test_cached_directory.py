"""A directory is there whole or not at all: interruptions, damage, several processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvpool.models.cached_directory import MANIFEST, ensure_directory, is_intact

FILES = {"one.txt": "first\n", "two.bin": "0123456789"}

# Fills in two halves and waits for a line on standard input in between. What it prints is read
# by the test, so that the two run in a fixed order.
BUILDER = """
import sys
from pathlib import Path
from kvpool.models.cached_directory import ensure_directory

def fill(folder):
    (folder / "half").write_text("half")
    print("filling", flush=True)
    sys.stdin.readline()
    (folder / "rest").write_text("rest")

ensure_directory(Path(sys.argv[1]), fill, lambda text: print(text, flush=True))
print("done", flush=True)
"""


class Fill:
    """Writes `FILES` and counts its calls; raises `error`, if given, after the first file."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.n_calls = 0
        self.error = error

    def __call__(self, folder: Path) -> None:
        self.n_calls += 1
        for name, text in FILES.items():
            (folder / name).write_text(text)
            if self.error is not None:
                raise self.error


def refuse(text: str) -> None:
    pytest.fail(f"unexpected progress: {text}")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.name != MANIFEST}


def start_builder(target: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER, str(target)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "parent" / "target"


def test_directory_is_filled_once(target: Path) -> None:
    fill = Fill()
    ensure_directory(target, fill, refuse)
    ensure_directory(target, fill, refuse)
    assert fill.n_calls == 1
    assert contents(target) == FILES


def test_second_call_writes_nothing(target: Path) -> None:
    ensure_directory(target, Fill(), refuse)
    lock = target.with_name(f".{target.name}.lock")
    lock.unlink()
    before = {path: path.stat().st_mtime_ns for path in [target, *target.iterdir()]}
    ensure_directory(target, Fill(), refuse)
    assert {path: path.stat().st_mtime_ns for path in [target, *target.iterdir()]} == before
    assert not lock.exists()


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_failed_fill_leaves_nothing_and_can_be_repeated(target: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        ensure_directory(target, Fill(error), refuse)
    assert [path.name for path in target.parent.iterdir()] == [f".{target.name}.lock"]
    ensure_directory(target, Fill(), refuse)
    assert contents(target) == FILES


def test_failed_rebuild_leaves_the_damaged_directory_as_it_was(target: Path) -> None:
    ensure_directory(target, Fill(), refuse)
    (target / "one.txt").unlink()
    with pytest.raises(OSError, match="disk full"):
        ensure_directory(target, Fill(OSError("disk full")), refuse)
    assert contents(target) == {"two.bin": FILES["two.bin"]}


def _write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def _replace_by_file(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("a file")


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda folder: (folder / "two.bin").unlink(), id="file-missing"),
        pytest.param(_write("two.bin", "012345678"), id="file-truncated"),
        pytest.param(_write("two.bin", "0123456789+"), id="file-grown"),
        pytest.param(lambda folder: (folder / MANIFEST).unlink(), id="manifest-missing"),
        pytest.param(_write(MANIFEST, ""), id="manifest-empty"),
        pytest.param(_write(MANIFEST, "{}"), id="manifest-without-sizes"),
        pytest.param(_write(MANIFEST, "[1]"), id="manifest-is-a-list"),
        pytest.param(_write(MANIFEST, '{"n_bytes": [1]}'), id="sizes-are-a-list"),
        pytest.param(_write(MANIFEST, '{"n_bytes": {}}'), id="sizes-are-empty"),
        pytest.param(_replace_by_file, id="a-file-in-its-place"),
    ],
)
def test_damaged_directory_is_rebuilt(target: Path, damage: Callable[[Path], object]) -> None:
    ensure_directory(target, Fill(), refuse)
    damage(target)
    assert not is_intact(target)
    ensure_directory(target, Fill(), refuse)
    assert is_intact(target)
    assert contents(target) == FILES


def test_symbolic_link_in_its_place_is_replaced_and_not_followed(
    target: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("kept")
    target.parent.mkdir()
    target.symlink_to(elsewhere)
    ensure_directory(target, Fill(), refuse)
    assert not target.is_symlink()
    assert contents(target) == FILES
    assert contents(elsewhere) == {"precious": "kept"}


def test_killed_builder_leaves_no_directory_and_its_remains_are_cleared(target: Path) -> None:
    with start_builder(target) as builder:
        assert read_line(builder) == "filling"
        builder.kill()
    partial = target.with_name(f".{target.name}.partial")
    assert not target.exists()
    assert contents(partial) == {"half": "half"}
    ensure_directory(target, Fill(), refuse)
    assert contents(target) == FILES
    assert not partial.exists()


def test_second_process_waits_and_takes_what_the_first_built(target: Path) -> None:
    with start_builder(target) as first, start_builder_after(first, target) as second:
        assert read_line(second) == f"waiting for another process that is building {target}"
        assert not target.exists()
        first.communicate("\n")
        assert second.communicate()[0] == "done\n"
        assert (first.returncode, second.returncode) == (0, 0)
    assert contents(target) == {"half": "half", "rest": "rest"}


def start_builder_after(first: subprocess.Popen[str], target: Path) -> subprocess.Popen[str]:
    """Start another builder once the first one is in the middle of its work."""
    assert read_line(first) == "filling"
    return start_builder(target)


def test_waiter_takes_over_when_the_builder_is_killed(target: Path) -> None:
    with start_builder(target) as first, start_builder_after(first, target) as second:
        assert read_line(second).startswith("waiting for another process")
        first.kill()
        assert read_line(second) == "filling"
        assert second.communicate("\n")[0] == "done\n"
    assert contents(target) == {"half": "half", "rest": "rest"}


def test_folder_that_cannot_be_made_is_an_error_that_names_it(target: Path) -> None:
    target.parent.write_text("a file")
    with pytest.raises(OSError, match=str(target.parent)):
        ensure_directory(target, Fill(), refuse)
