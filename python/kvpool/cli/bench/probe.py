"""What a large pool costs, measured in a process that has nothing else to do.

``python -m kvpool.cli.bench.probe MODULE N_BLOCKS`` prints one JSON object: the seconds that
construction takes, and the resident bytes a block, right after it and once every block is handed
out (without the handles that were returned; None where the system does not tell).
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

_CHUNK = 4096  # blocks whose handles are alive at one time
_BLOCK_SIZE = 16


def measure(module: str, n_blocks: int) -> dict[str, Any]:
    """Construct a pool by the API in `module`, hand all of it out, and say what that cost."""
    api = importlib.import_module(module)
    api.BlockPoolAllocator(api.PoolConfig(n_blocks=64)).allocate("k", 64, "warm-up")
    config = api.PoolConfig(block_size=_BLOCK_SIZE, n_blocks=n_blocks)
    before = resident_bytes()
    start = time.perf_counter()
    pool = api.BlockPoolAllocator(config)
    seconds = time.perf_counter() - start
    constructed = resident_bytes()
    for stream in ("k", "v"):
        while n_free := pool.n_free(stream):
            pool.allocate(stream, min(n_free, _CHUNK) * _BLOCK_SIZE, "owner")
    handed_out = resident_bytes()
    return {
        "construct_seconds": seconds,
        "bytes_a_block": _per_block(before, constructed, n_blocks),
        "bytes_a_block_handed_out": _per_block(before, handed_out, n_blocks),
    }


def resident_bytes() -> int | None:
    """Return the resident bytes of this process; None where /proc does not tell."""
    gc.collect()
    try:
        n_pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return None
    return n_pages * os.sysconf("SC_PAGE_SIZE")


def _per_block(before: int | None, after: int | None, n_blocks: int) -> float | None:
    return None if before is None or after is None else (after - before) / n_blocks


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
