"""What importing the allocator brings along."""

from __future__ import annotations

import subprocess
import sys

import pytest

USE = """
import sys
import kvpool
import kvpool.memory
pool = kvpool.memory.BlockPoolAllocator(kvpool.memory.PoolConfig(n_blocks=8))
pool.free(pool.allocate("k", 20, owner=1))
pool.stats.to_prometheus()
list(pool.history)
heavy = {"mlx", "mlx_lm", "numpy", "transformers", "dataclasses", "inspect"}
print(sorted(heavy & {name.split(".")[0] for name in sys.modules}))
"""

WITHOUT_MLX = """
import sys
sys.modules["mlx"] = sys.modules["mlx_lm"] = None
import kvpool.memory as memory
from kvpool.memory import *
for name in ("MLXBlockStorage", "PoolBackedKVCache", "build_pooled_caches"):
    assert name in dir(memory)
    try:
        getattr(memory, name)
    except ImportError as error:
        assert "pip install 'kvpool[mlx]'" in str(error), error
    else:
        raise AssertionError(name)
try:
    memory.no_such_name
except AttributeError as error:
    print(error)
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_using_the_allocator_loads_nothing_heavy() -> None:
    assert run(USE) == "[]"


def test_names_that_need_mlx_say_what_to_install() -> None:
    assert run(WITHOUT_MLX) == "module 'kvpool.memory' has no attribute 'no_such_name'"


@pytest.mark.parametrize(
    "name",
    [
        "AllocationStats",
        "Block",
        "BlockPoolAllocator",
        "BlockPoolExhaustedError",
        "DEFAULT_BLOCK_SIZE",
        "DEFAULT_HISTORY_SIZE",
        "MLXBlockStorage",
        "OwnerAlreadyActiveError",
        "PoolBackedKVCache",
        "PoolConfig",
        "PooledKVCache",
        "build_pooled_caches",
    ],
)
def test_memory_has_every_name(name: str) -> None:
    pytest.importorskip("mlx_lm", reason="mlx_lm is not installed")
    import kvpool.memory

    assert getattr(kvpool.memory, name) is not None
