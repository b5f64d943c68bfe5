"""The command ``kvpool``: a demo and benchmarks.

Nothing heavy is imported until a command is chosen; ``kvpool --help`` needs neither MLX nor NumPy.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kvpool.cli.errors import CommandError

if TYPE_CHECKING:
    from kvpool.cli.arguments import Command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; by default those that this process was started with. Only in
        that case may a command start the process again with a faster BLAS.

    Returns
    -------
    int
        0 if all is well, 1 if not, 2 for a command line that asks for what can't be, 130 if
        interrupted.
    """
    from kvpool.cli import arguments as command_line

    given = list(sys.argv[1:] if arguments is None else arguments)
    command = command_line.parse(given)
    try:
        if arguments is None and command.wants_openblas:
            from kvpool.cli import blas

            blas.start_again_with_openblas(given)
        result = _run(command)
        if command.json:
            print(json.dumps(result, allow_nan=False))
        sys.stdout.flush()
    except CommandError as error:
        print(f"kvpool: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("kvpool: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        # Our output may have nowhere to go; the interpreter must not flush to it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # then whoever read it has simply gone
            print(f"kvpool: {error}", file=sys.stderr)
        return 1
    return 0 if result["ok"] else 1


def _run(command: Command) -> dict[str, Any]:
    """Run a command; with ``--json``, what it tells people goes to standard error."""
    from kvpool.cli.console import Console

    if not command.json:
        return command.run(Console(sys.stdout))
    with contextlib.redirect_stdout(sys.stderr):
        return command.run(Console(sys.stderr))
