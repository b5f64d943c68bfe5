"""The compatibility switch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SUBMODULES = """
import kvpool.compat.veloxquant
import kvpool.memory
from veloxquant_mlx.memory import BlockPoolAllocator, PoolConfig, AllocationStats, Block
from veloxquant_mlx.memory.block_pool import DEFAULT_BLOCK_SIZE, DEFAULT_HISTORY_SIZE
from veloxquant_mlx.memory.pooled_cache import PooledKVCache
from veloxquant_mlx.core.exceptions import BlockPoolExhaustedError, OwnerAlreadyActiveError
import veloxquant_mlx.memory.block_pool as block_pool
import veloxquant_mlx
assert BlockPoolAllocator is block_pool.BlockPoolAllocator is kvpool.memory.BlockPoolAllocator
assert BlockPoolExhaustedError is kvpool.memory.BlockPoolExhaustedError
assert veloxquant_mlx.memory.block_pool is block_pool
from veloxquant_mlx import KVCache
import sys
assert not {"mlx", "numpy"} & set(sys.modules)
assert not hasattr(veloxquant_mlx, "KVCacheFabric")
import importlib.util
assert importlib.util.find_spec("veloxquant_mlx.memory").origin == "kvpool.compat.veloxquant"
try:
    from veloxquant_mlx import KVCacheFabric
except ImportError:
    pass
try:
    veloxquant_mlx.KVCacheFabric
except AttributeError as error:
    print(error)
"""

WITH_MLX = """
import kvpool.compat.veloxquant
from veloxquant_mlx.memory import *
from veloxquant_mlx.memory.mlx_storage import MLXBlockStorage
from veloxquant_mlx.memory.pool_backed_cache import PoolBackedKVCache, build_pooled_caches
print(PoolBackedKVCache.__module__.split(".")[0], MLXBlockStorage.__module__.split(".")[0])
"""

TOO_LATE = """
import sys, types
sys.modules["veloxquant_mlx"] = types.ModuleType("veloxquant_mlx")
try:
    import kvpool.compat.veloxquant
except ImportError as error:
    print(error)
"""

SCRIPT = """
import sys
from veloxquant_mlx.memory import BlockPoolAllocator, PoolConfig
import beside
pool = BlockPoolAllocator(PoolConfig(block_size=16, n_blocks=512))
print(__name__, sys.argv[1:], pool.allocate("k", 40, 1)[0].block_id, beside.VALUE)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def output(program: str) -> str:
    done = run("-c", program)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_modules_resolve_to_ours_without_loading_mlx() -> None:
    text = output(SUBMODULES)
    assert "does not provide veloxquant_mlx.KVCacheFabric" in text
    assert "KVCache" in text


def test_names_that_need_mlx() -> None:
    pytest.importorskip("mlx_lm", reason="mlx_lm is not installed")
    assert output(WITH_MLX) == "kvpool kvpool"


def test_refuses_to_replace_the_real_package() -> None:
    assert "import kvpool.compat.veloxquant first" in output(TOO_LATE)


def test_runs_a_script_as_python_would(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("VALUE = 5\n")
    done = run("-m", "kvpool.compat", str(tmp_path / "script.py"), "-x", "y")
    assert done.stdout == "__main__ ['-x', 'y'] 255 5\n", done.stderr


def test_without_a_script_says_how() -> None:
    done = run("-m", "kvpool.compat")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage:")
    assert run("-m", "kvpool.compat", "--help").returncode == 0
    done = run("-m", "kvpool.compat", "no_such.py")
    assert done.returncode == 1
    assert "no such script: no_such.py" in done.stderr
