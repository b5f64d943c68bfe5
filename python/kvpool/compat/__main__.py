"""``python -m kvpool.compat script.py [argument …]``: run a script with the switch on."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

USAGE = "usage: python -m kvpool.compat SCRIPT.py [ARGUMENT ...]"


def main() -> None:
    """Run the script as ``__main__``, as Python itself would."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if len(sys.argv) > 1 else sys.stderr)
        sys.exit(0 if len(sys.argv) > 1 else 2)
    script = Path(sys.argv[1])
    if not script.is_file():
        sys.exit(f"python -m kvpool.compat: no such script: {script}")

    from kvpool.compat import veloxquant

    veloxquant.install()
    del sys.argv[0]
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")


main()
