import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import kvpool

MODULES = ["kvpool"] + [
    module.name
    for module in pkgutil.walk_packages(kvpool.__path__, "kvpool.")
    if not module.name.endswith("__main__")
]


README = Path(__file__).parents[2] / "README.md"


def test_examples_in_the_readme_run() -> None:
    result = doctest.testfile(str(README), module_relative=False)
    assert result.attempted > 3
    assert result.failed == 0


def test_all_modules_are_found() -> None:
    assert {"kvpool._core", "kvpool.memory", "kvpool.mlx", "kvpool.cli"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
