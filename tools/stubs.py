#!/usr/bin/env python3
"""Write python/kvpool/_core.pyi from the installed extension, or check that it is up to date.

Usage: tools/stubs.py [--check]
"""

from __future__ import annotations

import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
STUB = ROOT / "python" / "kvpool" / "_core.pyi"
# What nanobind cannot see by itself, such as the types of slots written by hand.
PATTERNS = ROOT / "src" / "python" / "stub_patterns.txt"


def generate() -> str:
    """Return the stub of the installed ``kvpool._core``."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "_core.pyi"
        command = [sys.executable, "-m", "nanobind.stubgen", "--quiet", "-m", "kvpool._core"]
        command += ["-o", str(output)]
        if PATTERNS.is_file():
            command += ["-p", str(PATTERNS)]
        # Elsewhere than in the root, so that only the installed package is found.
        subprocess.run(command, check=True, cwd=folder)
        return output.read_text("utf-8")


def main(argv: list[str]) -> int:
    """Write the stub; with ``--check`` print how the committed one differs and return 1."""
    generated = generate()
    if argv[1:] != ["--check"]:
        STUB.write_text(generated, encoding="utf-8")
        return 0
    committed = STUB.read_text("utf-8") if STUB.is_file() else ""
    if committed == generated:
        return 0
    difference = difflib.unified_diff(
        committed.splitlines(),
        generated.splitlines(),
        str(STUB.relative_to(ROOT)),
        "what the extension says",
        lineterm="",
    )
    print(*difference, sep="\n")
    print("Run `make stubs`.")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
