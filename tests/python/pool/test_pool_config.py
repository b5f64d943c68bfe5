"""PoolConfig."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from kvpool.memory import DEFAULT_BLOCK_SIZE, BlockPoolAllocator, PoolConfig


class Index:
    """An integer by `__index__`, as NumPy's are."""

    def __index__(self) -> int:
        return 8


def test_defaults() -> None:
    config = PoolConfig()
    assert config == PoolConfig(16, 1024, True, False, None)
    assert config.block_size == DEFAULT_BLOCK_SIZE == 16
    assert config.max_blocks is None


def test_anything_with_index_is_an_integer() -> None:
    assert PoolConfig(block_size=Index()).block_size == 8  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"block_size": 0}, "block_size must be 1 to 2147483647, got 0"),
        ({"block_size": -3}, "got -3"),
        ({"n_blocks": 0}, "n_blocks must be 1 to 4294967296, got 0"),
        ({"n_blocks": 2**33}, "got 8589934592"),
        ({"n_blocks": 2**70}, "must fit 64 bits"),
        (
            {"n_blocks": 64, "max_blocks": 63},
            r"at least n_blocks \(64\), got 63",
        ),
    ],
)
def test_values_out_of_range_are_shown(options: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        PoolConfig(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["block_size", "n_blocks", "max_blocks"])
@pytest.mark.parametrize("value", [1.0, "16", [], 16.5])
def test_sizes_must_be_integers(field: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{field} must be an integer, got"):
        PoolConfig(**{field: value})


def test_is_immutable_and_a_value() -> None:
    config = PoolConfig(4, 10, False, True, 20)
    with pytest.raises(AttributeError):
        config.n_blocks = 5  # type: ignore[misc]
    for twin in (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert twin == config
        assert hash(twin) == hash(config)
    assert config != PoolConfig(4, 10, False, True, 21)
    assert config != "a string"
    assert repr(config) == (
        "PoolConfig(block_size=4, n_blocks=10, separate_kv=False, grow_on_exhaustion=True, "
        "max_blocks=20)"
    )


def test_a_pool_takes_nothing_else() -> None:
    with pytest.raises(TypeError, match="config must be a PoolConfig, got 16"):
        BlockPoolAllocator(16)  # type: ignore[arg-type]
    assert BlockPoolAllocator().config == PoolConfig()
    config = PoolConfig(n_blocks=4)
    assert BlockPoolAllocator(config).config is config
