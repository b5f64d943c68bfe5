"""Directories that are built once, whole or not at all.

A build happens in a hidden directory beside the target. Its manifest, with the size of every
file, is written last; then one rename makes the directory appear under its name. ::

    absent --fill--> .NAME.partial --manifest, rename--> NAME, intact --damage--> rebuilt

- An exception or a killed process leaves no directory under the target's name. What a killed
  process left in the hidden one is removed by the next build.
- Builders of one target take turns by a lock file beside it, which the operating system
  releases when its holder dies; those that waited find the finished directory.
- An intact directory costs its users one small read and a ``stat`` per file: no lock, and no
  right to write.

The manifest finds missing, truncated and grown files, also after a power failure; it does not
find flipped bits, since hashing half a gigabyte would cost more than loading it.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MANIFEST = "kvpool-manifest.json"


def ensure_directory(
    target: Path,
    fill: Callable[[Path], None],
    progress: Callable[[str], None],
) -> None:
    """Make sure that `target` is an intact directory, building it if it is not.

    Parameters
    ----------
    target
        The directory to have. Anything damaged at this path is replaced.
    fill
        Called with an empty directory, in which it writes regular files. Not called when
        `target` is intact.
    progress
        Called with a sentence when another process's build is waited for.

    Raises
    ------
    OSError
        The parent folder can't be written.
    BaseException
        Whatever `fill` raises; then `target` is left as it was found.
    """
    if is_intact(target):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with _turn(target, progress):
        if is_intact(target):
            return
        partial = target.with_name(f".{target.name}.partial")
        _remove(partial)
        partial.mkdir()
        try:
            fill(partial)
            _write_manifest(partial)
            _remove(target)
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def is_intact(directory: Path) -> bool:
    """Tell whether every file of the directory's manifest is there with its size."""
    try:
        sizes = json.loads((directory / MANIFEST).read_text("utf-8"))["n_bytes"]
        found = {name: (directory / name).stat().st_size for name in sizes}
        return bool(found) and found == sizes
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write_manifest(directory: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in sorted(directory.iterdir())}
    text = json.dumps({"n_bytes": sizes}, indent=2)
    (directory / MANIFEST).write_text(text + "\n", "utf-8")


@contextmanager
def _turn(target: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Hold the target's lock file for the duration of a ``with`` block."""
    # The file stays: removing it would let a waiter hold a lock on a name that is gone.
    with target.with_name(f".{target.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another process that is building {target}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
