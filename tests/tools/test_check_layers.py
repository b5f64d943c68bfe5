import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[2] / "tools" / "check_layers.py"


def run(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, CHECK, root], capture_output=True, text=True, check=False, timeout=60
    )


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small tree with no fault in it."""
    write(tmp_path, "include/kvpool/base/ids.h", "#include <cstdint>\n")
    write(tmp_path, "include/kvpool/pool/pool.h", '#include "kvpool/base/ids.h"\n')
    write(tmp_path, "include/kvpool/codec/codec.h", '#include "kvpool/base/ids.h"\n')
    write(tmp_path, "include/kvpool/store/store.h", '#include "kvpool/pool/pool.h"\n')
    write(tmp_path, "src/pool/books.h", '#include "kvpool/pool/pool.h"\n')
    write(tmp_path, "src/pool/pool.cc", '#include "books.h"\n#include "kvpool/base/ids.h"\n')
    write(tmp_path, "src/base/CMakeLists.txt", "kvpool_add_layer(base LIBS Threads::Threads)\n")
    write(tmp_path, "src/pool/CMakeLists.txt", "kvpool_add_layer(pool DEPS base)\n")
    write(tmp_path, "tests/pool/pool_test.cc", '#include "pool/books.h"\n')
    return tmp_path


def test_a_tree_whose_arrows_point_down_passes(tree: Path) -> None:
    result = run(tree)
    assert (result.returncode, result.stdout) == (0, "")


def test_the_repository_itself_passes() -> None:
    result = run(CHECK.parents[1])
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        (
            "include/kvpool/base/up.h",
            '\n#include "kvpool/pool/pool.h"\n',
            "include/kvpool/base/up.h:2: base must not include include/kvpool/pool/pool.h",
        ),
        (
            "src/base/up.cc",
            "#  include <kvpool/pool/pool.h>\n",
            "src/base/up.cc:1: base must not include include/kvpool/pool/pool.h",
        ),
        (
            "src/base/relative.cc",
            '#include "../pool/books.h"\n',
            "it is private to pool",
        ),
        (
            "src/attention/kernel.cc",
            '#include "kvpool/pool/pool.h"\n',
            "attention may use base, codec",
        ),
        (
            "src/prefix/index.cc",
            '#include "kvpool/store/store.h"\n',
            "prefix may use base",
        ),
        (
            "src/store/slab.cc",
            '#include "pool/books.h"\n',
            "store must not include src/pool/books.h: it is private to pool",
        ),
        (
            "tests/base/base_test.cc",
            '#include "kvpool/pool/pool.h"\n',
            "base has no layer below it",
        ),
        (
            "src/cache/cache.cc",
            "#include <mlx/mlx.h>\n",
            "cache must not include mlx/mlx.h: only mlx may",
        ),
        (
            "src/pool/module.cc",
            "#include <Python.h>\n",
            "pool must not include Python.h: only mlx and python may",
        ),
        (
            "src/pool/typo.cc",
            '#include "kvpool/pool/nothing.h"\n',
            "kvpool/pool/nothing.h is no file of this project",
        ),
        (
            "src/attic/old.cc",
            "",
            "src/attic/old.cc:1: belongs to no layer",
        ),
        (
            "src/base/CMakeLists.txt",
            "kvpool_add_layer(base DEPS pool LIBS Threads::Threads)\n",
            "src/base/CMakeLists.txt: base must not link pool",
        ),
        (
            "src/attic/CMakeLists.txt",
            "kvpool_add_layer(attic)\n",
            "src/attic/CMakeLists.txt: attic is no layer",
        ),
    ],
)
def test_a_wrong_arrow_is_named(tree: Path, name: str, text: str, complaint: str) -> None:
    write(tree, name, text)
    result = run(tree)
    assert result.returncode == 1
    assert complaint in result.stdout
    assert len(result.stdout.splitlines()) == 1


def test_several_steps_down_are_allowed(tree: Path) -> None:
    write(tree, "src/cache/cache.cc", '#include "kvpool/base/ids.h"\n#include <vector>\n')
    write(tree, "src/python/module.cc", "#include <Python.h>\n#include <nanobind/nanobind.h>\n")
    assert run(tree).returncode == 0
