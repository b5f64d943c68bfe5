"""What a GGUF file must say and hold; a tiny model made up here stands for the real one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kvpool.models import ModelFormatError
from kvpool.models.gguf import Metadata, check_tensors, read_llama, read_sizes

N_LAYERS, N_HEADS, N_KV_HEADS, HEAD_DIM, HIDDEN, FFN, VOCAB = 2, 2, 1, 32, 64, 96, 40


@pytest.fixture
def values(mx: Any) -> dict[str, Any]:
    """Metadata of the tiny model, as MLX gives it."""
    counts = {
        "block_count": N_LAYERS,
        "attention.head_count": N_HEADS,
        "attention.head_count_kv": N_KV_HEADS,
        "rope.dimension_count": HEAD_DIM,
        "embedding_length": HIDDEN,
        "feed_forward_length": FFN,
        "vocab_size": VOCAB,
        "context_length": 128,
    }
    return {
        "general.architecture": "llama",
        **{f"llama.{name}": mx.array(value, mx.uint32) for name, value in counts.items()},
        "llama.rope.freq_base": mx.array(10000.0),
        "llama.attention.layer_norm_rms_epsilon": mx.array(1e-5),
    }


@pytest.fixture
def tensors(mx: Any) -> dict[str, Any]:
    """Tensors of the tiny model, as MLX gives them."""
    made = {"output_norm.weight": mx.zeros(HIDDEN)}

    def add(name: str, n_out: int, n_in: int, bits: int) -> None:
        made[f"{name}.weight"] = mx.zeros((n_out, n_in * bits // 32), mx.uint32)
        for part in ("scales", "biases"):
            made[f"{name}.{part}"] = mx.zeros((n_out, n_in // 32), mx.float16)

    add("token_embd", VOCAB, HIDDEN, 8)
    for layer in range(N_LAYERS):
        for name in ("attn_q", "attn_output"):
            add(f"blk.{layer}.{name}", HIDDEN, HIDDEN, 4)
        for name in ("attn_k", "attn_v"):
            add(f"blk.{layer}.{name}", N_KV_HEADS * HEAD_DIM, HIDDEN, 4)
        for name in ("ffn_gate", "ffn_up"):
            add(f"blk.{layer}.{name}", FFN, HIDDEN, 4)
        add(f"blk.{layer}.ffn_down", HIDDEN, FFN, 4)
        for name in ("attn_norm", "ffn_norm"):
            made[f"blk.{layer}.{name}.weight"] = mx.zeros(HIDDEN)
    return made


def test_sizes_are_read_from_the_metadata(values: dict[str, Any]) -> None:
    sizes = read_sizes(Metadata(values))
    assert sizes[:8] == (N_LAYERS, N_HEADS, N_KV_HEADS, HEAD_DIM, HIDDEN, FFN, VOCAB, 128)
    assert sizes.rope_theta == 10000.0
    assert sizes.rms_norm_eps == pytest.approx(1e-5, rel=1e-7)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("general.architecture", "qwen2", "must be 'llama', found 'qwen2'"),
        ("general.architecture", None, "must be a string, found none"),
        ("llama.block_count", None, "must be a number, found none"),
        ("llama.block_count", "30", "must be a number, found '30'"),
        ("llama.block_count", 0, "must be a positive integer, found 0"),
        ("llama.block_count", 2.5, "must be a positive integer, found 2.5"),
        ("llama.attention.head_count_kv", [1, 2], "must be a number, found array([1, 2]"),
        ("llama.attention.head_count_kv", 3, "multiple of the number of KV heads, found 2 and 3"),
        ("llama.rope.dimension_count", 16, "2 heads of 16 rotated channels do not make a hidden"),
        ("llama.embedding_length", 96, "2 heads of 32 rotated channels do not make a hidden"),
    ],
)
def test_metadata_that_does_not_fit_is_shown(
    mx: Any, values: dict[str, Any], key: str, value: object, message: str
) -> None:
    values[key] = value if isinstance(value, str) else mx.array(value) if value is not None else 0
    if value is None:
        del values[key]
    with pytest.raises(ModelFormatError, match=re.escape(message)):
        read_sizes(Metadata(values))


def test_lists_are_checked(mx: Any) -> None:
    metadata = Metadata({"words": ["a", "b"], "numbers": mx.array([1, 2]), "one": mx.array(1)})
    assert metadata.texts("words") == ["a", "b"]
    assert metadata.integers("numbers") == [1, 2]
    for key in ("numbers", "one", "none"):
        with pytest.raises(ModelFormatError, match=rf"'{key}' must be a list of strings"):
            metadata.texts(key)
    for key in ("words", "one", "none"):
        with pytest.raises(ModelFormatError, match=rf"'{key}' must be a list of integers"):
            metadata.integers(key)


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(ModelFormatError) as raised:
        Metadata({"general.architecture": ["llama"] * 10_000}).text("general.architecture")
    assert len(str(raised.value)) < 400


def test_tensors_of_the_sizes_are_accepted(values: dict[str, Any], tensors: dict[str, Any]) -> None:
    check_tensors(tensors, read_sizes(Metadata(values)))


@pytest.mark.parametrize(
    "name",
    ["token_embd.scales", "output_norm.weight", "blk.1.attn_q.weight", "blk.0.ffn_down.biases"],
)
def test_missing_tensor_is_named(
    values: dict[str, Any], tensors: dict[str, Any], name: str
) -> None:
    del tensors[name]
    with pytest.raises(ModelFormatError, match=re.escape(f"missing ['{name}'], unknown []")):
        check_tensors(tensors, read_sizes(Metadata(values)))


def test_unknown_tensor_is_named(mx: Any, values: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors["output.weight"] = mx.zeros((VOCAB, HIDDEN))
    with pytest.raises(ModelFormatError, match=re.escape("missing [], unknown ['output.weight']")):
        check_tensors(tensors, read_sizes(Metadata(values)))


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "message"),
    [
        (
            "blk.0.attn_k.weight",
            (64, 8),
            "uint32",
            "must be uint32 of shape (32, 8), found mlx.core.uint32 of shape (64, 8)",
        ),
        (
            "blk.0.attn_q.weight",
            (64, 16),
            "uint32",
            "must be uint32 of shape (64, 8), found mlx.core.uint32 of shape (64, 16)",
        ),
        (
            "token_embd.scales",
            (40, 2),
            "float32",
            "must be float16 of shape (40, 2), found mlx.core.float32 of shape (40, 2)",
        ),
    ],
)
def test_tensor_of_another_shape_or_type_is_shown(
    mx: Any,
    values: dict[str, Any],
    tensors: dict[str, Any],
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    message: str,
) -> None:
    tensors[name] = mx.zeros(shape, getattr(mx, dtype))
    with pytest.raises(ModelFormatError, match=re.escape(f"'{name}' {message}")):
        check_tensors(tensors, read_sizes(Metadata(values)))


def test_file_of_another_architecture_is_refused(mx: Any, tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    mx.save_gguf(str(path), {"a": mx.zeros(4)}, {"general.architecture": "gemma"})
    with pytest.raises(ModelFormatError, match="must be 'llama', found 'gemma'"):
        read_llama(path)


def test_file_without_the_tensors_of_its_sizes_is_refused(
    mx: Any, values: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "incomplete.gguf"
    mx.save_gguf(str(path), {"output_norm.weight": mx.zeros(HIDDEN)}, values)
    with pytest.raises(ModelFormatError, match=r"missing \['blk\.0\.attn_k\.biases'.*unknown \[\]"):
        read_llama(path)
