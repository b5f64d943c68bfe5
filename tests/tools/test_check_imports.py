import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[2] / "tools" / "check_imports.py"


def run(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, CHECK, root], capture_output=True, text=True, check=False, timeout=60
    )


def write(root: Path, name: str, text: str) -> None:
    path = root / "python" / "kvpool" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small package with no fault in it."""
    write(tmp_path, "__init__.py", "")
    write(tmp_path, "memory/__init__.py", "import os\nfrom kvpool import _core\n")
    write(tmp_path, "memory/mlx_storage.py", "import mlx.core as mx\n")
    write(tmp_path, "mlx/__init__.py", "import mlx.core\nfrom kvpool.memory import Block\n")
    write(tmp_path, "models/__init__.py", "import numpy\n")
    write(tmp_path, "cli/__init__.py", "def main():\n    from kvpool import mlx, models\n")
    return tmp_path


def test_a_package_whose_arrows_point_down_passes(tree: Path) -> None:
    result = run(tree)
    assert (result.returncode, result.stdout) == (0, "")


def test_the_repository_itself_passes() -> None:
    result = run(CHECK.parents[1])
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        (
            "memory/__init__.py",
            "from .mlx_storage import MLXBlockStorage\n",
            "loading kvpool.memory loads mlx.core: "
            "kvpool.memory -> kvpool.memory.mlx_storage -> mlx.core",
        ),
        (
            "memory/__init__.py",
            "try:\n    import numpy\nexcept ImportError:\n    numpy = None\n",
            "loading kvpool.memory loads numpy",
        ),
        (
            "memory/block_pool.py",
            "class A:\n    from ..mlx import x\n",
            "python/kvpool/memory/block_pool.py:2: memory must not import kvpool.mlx",
        ),
        (
            "models/loader.py",
            "from kvpool.cli import main\n",
            "python/kvpool/models/loader.py:1: models must not import kvpool.cli",
        ),
        (
            "attic/__init__.py",
            "",
            "kvpool.attic is no subpackage",
        ),
    ],
)
def test_a_wrong_import_is_named(tree: Path, name: str, text: str, complaint: str) -> None:
    write(tree, name, text)
    result = run(tree)
    assert result.returncode == 1
    assert complaint in result.stdout


@pytest.mark.parametrize(
    "text",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import mlx.core\n",
        "def __getattr__(name):\n    import kvpool.mlx\n",
    ],
)
def test_what_does_not_run_at_load_time_is_free(tree: Path, text: str) -> None:
    write(tree, "memory/__init__.py", text)
    assert run(tree).returncode == 0
