"""Row order and values of the converted weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvpool.models.directory import Weights
from kvpool.models.weights import split_halves

# First six values of rows of the GGUF file, dequantised by the independent reader of the PyPI
# package gguf 0.19. There, row 2i + h of a head is channel i + 32h of the head here.
Q_PROJ = "model.layers.7.self_attn.q_proj"
K_PROJ = "model.layers.7.self_attn.k_proj"
ROWS = {
    (Q_PROJ, 64 * 4 + 5): [  # row 64 * 4 + 10 there
        -0.027008056640625,
        -0.151214599609375,
        0.03509521484375,
        0.1593017578125,
        0.1593017578125,
        0.03509521484375,
    ],
    (Q_PROJ, 64 * 4 + 37): [  # row 64 * 4 + 11 there
        0.030731201171875,
        0.392364501953125,
        -0.210357666015625,
        -0.089813232421875,
        -0.2706298828125,
        0.09100341796875,
    ],
    (K_PROJ, 64 * 2 + 31): [  # row 64 * 2 + 62 there
        0.245849609375,
        -0.02490234375,
        -0.09259033203125,
        0.17816162109375,
        0.3812255859375,
        -0.1602783203125,
    ],
}


@pytest.fixture(scope="module")
def packed(mx: Any, converted: Callable[[Weights], Path]) -> dict[str, Any]:
    return dict(mx.load(str(converted("4bit") / "model.safetensors")))


@pytest.fixture(scope="module")
def unpacked(mx: Any, converted: Callable[[Weights], Path]) -> dict[str, Any]:
    return dict(mx.load(str(converted("dense") / "model.safetensors")))


def test_pairs_become_halves_head_by_head(mx: Any) -> None:
    rows = mx.array(
        [[0], [4], [1], [5], [2], [6], [3], [7], [8], [12], [9], [13], [10], [14], [11], [15]]
    )
    assert split_halves(rows, 2).squeeze().tolist() == list(range(16))


def test_rope_over_halves_equals_rope_over_pairs_before(mx: Any) -> None:
    # Attention only sees q.k, which a permutation common to q and k leaves alone: rotating the
    # rows in the order of the file must give the reordered rotation of the reordered rows.
    n_heads, head_dim, n_tokens = 3, 8, 5
    rows = mx.random.normal((n_heads * head_dim, n_tokens), key=mx.random.key(1))

    def rotate(channels: Any, *, pairs: bool) -> Any:
        heads = channels.reshape(1, n_heads, head_dim, n_tokens).swapaxes(2, 3)
        out = mx.fast.rope(heads, head_dim, traditional=pairs, base=1e5, scale=1.0, offset=2)
        return out.swapaxes(2, 3).reshape(n_heads * head_dim, n_tokens)

    by_pairs = split_halves(rotate(rows, pairs=True), n_heads)
    by_halves = rotate(split_halves(rows, n_heads), pairs=False)
    # Both are two products and a sum of normal variables; the roundings may differ.
    assert mx.abs(by_pairs - by_halves).max().item() <= 8 * 2**-23


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_dense_rows_equal_those_of_an_independent_reader(
    unpacked: dict[str, Any], name: str, row: int
) -> None:
    assert unpacked[f"{name}.weight"][row, :6].tolist() == ROWS[name, row]


def test_dense_weights_are_the_packed_ones_exactly(
    mx: Any, packed: dict[str, Any], unpacked: dict[str, Any]
) -> None:
    for name, values in unpacked.items():
        module = name.removesuffix(".weight")
        if f"{module}.scales" in packed:
            scales, biases = packed[f"{module}.scales"], packed[f"{module}.biases"]
            bits = 8 if module == "model.embed_tokens" else 4
            expected = mx.dequantize(packed[name], scales, biases, group_size=32, bits=bits)
        else:
            expected = packed[name]
        assert mx.array_equal(values, expected).item(), name


def test_everything_that_is_not_a_code_is_float32(
    mx: Any, packed: dict[str, Any], unpacked: dict[str, Any]
) -> None:
    assert {array.dtype for array in packed.values()} == {mx.uint32, mx.float32}
    assert {array.dtype for array in unpacked.values()} == {mx.float32}
    codes = [name for name, array in packed.items() if array.dtype == mx.uint32]
    assert len(codes) == 1 + 30 * 7
    assert all(name.endswith(".weight") for name in codes)
