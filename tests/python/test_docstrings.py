import doctest
import importlib
import pkgutil

import pytest

import kvpool

MODULES = ["kvpool"] + [
    module.name
    for module in pkgutil.walk_packages(kvpool.__path__, "kvpool.")
    if not module.name.endswith("__main__")
]


def test_all_modules_are_found() -> None:
    assert {"kvpool._core", "kvpool.memory", "kvpool.mlx", "kvpool.cli"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
