"""A faster matrix product for MLX on the CPU: OpenBLAS in place of the BLAS in MLX's wheel.

MLX's CPU wheel for Linux brings a reference BLAS that runs in one thread. A library preloaded by
the dynamic linker takes its place, and that can only be asked for before a process starts: so the
command starts itself once more, with ``LD_PRELOAD`` set, in the same process.
"""

from __future__ import annotations

import ctypes.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

MARK = "KVPOOL_BLAS_PRELOADED"
"""Set for the second start, so that there is no third."""


def start_again_with_openblas(arguments: Sequence[str]) -> None:
    """Replace this process by the same command with OpenBLAS preloaded, where that can help.

    Returns if there is nothing to gain: not on Linux, no OpenBLAS, or preloaded already.

    Parameters
    ----------
    arguments : sequence of str
        The command's arguments, without the program's name.
    """
    environment = environment_with_openblas(os.environ)
    if environment is None:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-m", "kvpool.cli", *arguments]
    os.execve(sys.executable, command, environment)


def environment_with_openblas(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Return the environment to start again with, or None where that gains nothing."""
    if not sys.platform.startswith("linux") or MARK in environment:
        return None
    preloaded = environment.get("LD_PRELOAD", "")
    if "openblas" in preloaded:
        return None
    library = ctypes.util.find_library("openblas")
    if library is None:
        return None
    return {
        **environment,
        "LD_PRELOAD": f"{library} {preloaded}".strip(),
        MARK: library,
    }


def preloaded_openblas() -> str | None:
    """Return the name of the OpenBLAS that this process was started with, if any."""
    try:
        maps = Path("/proc/self/maps").read_text("utf-8")
    except OSError:
        return None
    preloaded = os.environ.get("LD_PRELOAD", "")
    if "openblas" not in preloaded:
        return None
    names = {line.rpartition("/")[2] for line in maps.splitlines() if "/libopenblas" in line}
    return min(names, default=None)
