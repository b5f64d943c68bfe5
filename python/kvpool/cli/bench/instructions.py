"""Instructions a token, counted by valgrind: what noise can't hide.

A tiny model is decoded in a process of its own, once for few tokens and once for 256 more, so that
start, prompt and imports cancel out and the caches grow once in between. On a model this small
everything but the caches' own work is as little as can be, so their share is as large as can be.

``python -m kvpool.cli.bench.instructions SIDE N_TOKENS`` is that process.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys

from kvpool.cli.errors import CommandError
from kvpool.cli.streams import POOLED, SIDES, GreedyStream

FEW_TOKENS = 16
MORE_TOKENS = 256
_N_PROMPT_TOKENS = 32


def require_valgrind() -> str:
    """Return the path of valgrind.

    Raises
    ------
    CommandError
        If it is not installed.
    """
    path = shutil.which("valgrind")
    if path is None:
        raise CommandError(
            "--instructions needs valgrind, which is not installed (Debian: apt-get install "
            "valgrind)."
        )
    return path


def instructions_a_token(valgrind: str) -> dict[str, float]:
    """Return the instructions of one more token, by side."""
    counts = {}
    for side in SIDES:
        few, more = (
            _count(valgrind, side, n_tokens) for n_tokens in (FEW_TOKENS, FEW_TOKENS + MORE_TOKENS)
        )
        counts[side] = (more - few) / MORE_TOKENS
    return counts


def read_count(report: str) -> int:
    """Return the instructions that cachegrind's report tells.

    Raises
    ------
    CommandError
        If it tells none.
    """
    match = re.search(r"I\s+refs:\s+([\d,]+)", report)
    if match is None:
        raise CommandError(f"valgrind did not count instructions; it said: {report[-500:]}")
    return int(match[1].replace(",", ""))


def decode(side: str, n_tokens: int) -> list[int]:
    """Decode with a tiny model; returns the tokens."""
    from mlx_lm.models.cache import make_prompt_cache

    from kvpool.cli.bench.tiny import tiny_model
    from kvpool.memory import BlockPoolAllocator, PoolConfig
    from kvpool.mlx import build_pooled_caches

    model = tiny_model()
    pool = BlockPoolAllocator(PoolConfig(n_blocks=1024))
    caches = build_pooled_caches(model, pool, -1) if side == POOLED else make_prompt_cache(model)
    stream = GreedyStream(model, set(), tuple(range(_N_PROMPT_TOKENS)), caches, n_tokens)
    while not stream.finished:
        stream.advance()
    return stream.record.tokens


def _count(valgrind: str, side: str, n_tokens: int) -> int:
    command = [
        *(valgrind, "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"),
        *(sys.executable, "-m", "kvpool.cli.bench.instructions", side, str(n_tokens)),
    ]
    # Hashes of strings would otherwise differ from run to run, and with them the work of dicts.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise CommandError(f"valgrind failed: {done.stderr[-500:]}")
    return read_count(done.stderr)


def _keep_limits(*_: object) -> None:
    """Stand in for `resource.setrlimit`: importing mlx_lm calls it, and valgrind refuses."""


if __name__ == "__main__":
    resource.setrlimit = _keep_limits
    decode(sys.argv[1], int(sys.argv[2]))
