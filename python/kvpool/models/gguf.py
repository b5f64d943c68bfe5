"""Read a Llama-architecture GGUF file of Q4_1 linears and a Q8_0 tied embedding, and check it.

MLX reads the file and repacks each quantised tensor as three arrays of its own affine format,
``value = scale * code + bias`` in groups of 32 along the input axis::

    NAME.weight   uint32   (out, in * bits / 32)    codes, the first in the lowest bits
    NAME.scales   float16  (out, in / 32)
    NAME.biases   float16  (out, in / 32)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvpool.models.errors import ModelFormatError

if TYPE_CHECKING:
    import mlx.core as mx

GROUP_SIZE = 32
EMBEDDING_BITS = 8
LINEAR_BITS = 4


class LlamaSizes(NamedTuple):
    """The numbers that define a Llama model."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    context_length: int
    rope_theta: float
    rms_norm_eps: float


class LlamaGguf(NamedTuple):
    """A checked GGUF file: its sizes, its metadata, and its tensors under their GGUF names."""

    sizes: LlamaSizes
    metadata: Metadata
    tensors: dict[str, mx.array]


class Metadata:
    """Key-value metadata of a GGUF file, with errors that show what was found.

    Parameters
    ----------
    values
        What ``mx.load(path, return_metadata=True)`` returns: strings, lists of strings, and
        arrays (scalars have shape ()).
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def number(self, key: str) -> int | float:
        """Return a scalar number; `ModelFormatError` if it is something else or absent."""
        value = self._values.get(key)
        if getattr(value, "shape", None) == ():
            scalar = value.item()  # type: ignore[union-attr]
            if isinstance(scalar, (int, float)):
                return scalar
        raise self._unexpected(key, "a number")

    def count(self, key: str) -> int:
        """Return a positive integer; `ModelFormatError` if it is something else or absent."""
        value = self.number(key)
        if isinstance(value, int) and value > 0:
            return value
        raise self._unexpected(key, "a positive integer")

    def text(self, key: str) -> str:
        """Return a string; `ModelFormatError` if it is something else or absent."""
        value = self._values.get(key)
        if isinstance(value, str):
            return value
        raise self._unexpected(key, "a string")

    def texts(self, key: str) -> list[str]:
        """Return a list of strings; `ModelFormatError` if it is something else or absent."""
        value = self._values.get(key)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        raise self._unexpected(key, "a list of strings")

    def integers(self, key: str) -> list[int]:
        """Return a list of integers; `ModelFormatError` if it is something else or absent."""
        value = self._values.get(key)
        if getattr(value, "ndim", None) == 1:
            items = value.tolist()  # type: ignore[union-attr]
            if all(isinstance(item, int) for item in items):
                return list(items)
        raise self._unexpected(key, "a list of integers")

    def require(self, key: str, expected: str | bool) -> None:
        """Raise `ModelFormatError` unless `key` has the value `expected`."""
        found = self.text(key) if isinstance(expected, str) else self.number(key)
        if found != expected:
            raise self._unexpected(key, repr(expected))

    def _unexpected(self, key: str, expected: str) -> ModelFormatError:
        found = f"found {_brief(self._values[key])}" if key in self._values else "found none"
        return ModelFormatError(f"GGUF metadata {key!r} must be {expected}, {found}")


def read_llama(path: Path) -> LlamaGguf:
    """Read a GGUF file and check that it is what the conversion knows.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    LlamaGguf
        Sizes, metadata and tensors.

    Raises
    ------
    ModelFormatError
        Another architecture; sizes that do not fit together; a tensor that is missing,
        unknown, or of another shape or type than the sizes ask for.
    """
    import mlx.core as mx

    loaded: Any = mx.load(str(path), format="gguf", return_metadata=True)
    tensors, values = loaded
    metadata = Metadata(values)
    sizes = read_sizes(metadata)
    check_tensors(tensors, sizes)
    return LlamaGguf(sizes, metadata, tensors)


def read_sizes(metadata: Metadata) -> LlamaSizes:
    """Take the model's sizes from the metadata; `ModelFormatError` if they do not fit."""
    metadata.require("general.architecture", "llama")
    sizes = LlamaSizes(
        n_layers=metadata.count("llama.block_count"),
        n_heads=metadata.count("llama.attention.head_count"),
        n_kv_heads=metadata.count("llama.attention.head_count_kv"),
        head_dim=metadata.count("llama.rope.dimension_count"),
        hidden_size=metadata.count("llama.embedding_length"),
        intermediate_size=metadata.count("llama.feed_forward_length"),
        vocab_size=metadata.count("llama.vocab_size"),
        context_length=metadata.count("llama.context_length"),
        rope_theta=float(metadata.number("llama.rope.freq_base")),
        rms_norm_eps=float(metadata.number("llama.attention.layer_norm_rms_epsilon")),
    )
    if sizes.n_heads % sizes.n_kv_heads:
        raise ModelFormatError(
            f"the number of query heads must be a multiple of the number of KV heads, found "
            f"{sizes.n_heads} and {sizes.n_kv_heads}"
        )
    if sizes.n_heads * sizes.head_dim != sizes.hidden_size or sizes.head_dim % 2:
        raise ModelFormatError(
            f"RoPE must cover whole heads of even size: {sizes.n_heads} heads of "
            f"{sizes.head_dim} rotated channels do not make a hidden size of "
            f"{sizes.hidden_size}"
        )
    return sizes


def check_tensors(tensors: dict[str, mx.array], sizes: LlamaSizes) -> None:
    """Raise `ModelFormatError` unless names, shapes and types are those of `sizes`."""
    expected = _expected_tensors(sizes)
    missing = sorted(expected.keys() - tensors.keys())
    unknown = sorted(tensors.keys() - expected.keys())
    if missing or unknown:
        raise ModelFormatError(
            f"the GGUF file does not hold the tensors of a Llama model with {sizes.n_layers} "
            f"layers, Q4_1 linears and a tied Q8_0 embedding: "
            f"missing {_brief(missing)}, unknown {_brief(unknown)}"
        )
    for name, (shape, dtype) in expected.items():
        found = tensors[name]
        if found.shape != shape or str(found.dtype) != f"mlx.core.{dtype}":
            raise ModelFormatError(
                f"GGUF tensor {name!r} must be {dtype} of shape {shape}, "
                f"found {found.dtype} of shape {tuple(found.shape)}"
            )


def _expected_tensors(sizes: LlamaSizes) -> dict[str, tuple[tuple[int, ...], str]]:
    hidden, ffn = sizes.hidden_size, sizes.intermediate_size
    kv = sizes.n_kv_heads * sizes.head_dim
    linears = {
        "attn_q": (hidden, hidden),
        "attn_k": (kv, hidden),
        "attn_v": (kv, hidden),
        "attn_output": (hidden, hidden),
        "ffn_gate": (ffn, hidden),
        "ffn_up": (ffn, hidden),
        "ffn_down": (hidden, ffn),
    }
    expected = _expected_quantized("token_embd", sizes.vocab_size, hidden, EMBEDDING_BITS)
    expected["output_norm.weight"] = ((hidden,), "float32")
    for layer in range(sizes.n_layers):
        for name, (n_out, n_in) in linears.items():
            expected |= _expected_quantized(f"blk.{layer}.{name}", n_out, n_in, LINEAR_BITS)
        for name in ("attn_norm", "ffn_norm"):
            expected[f"blk.{layer}.{name}.weight"] = ((hidden,), "float32")
    return expected


def _expected_quantized(
    name: str, n_out: int, n_in: int, bits: int
) -> dict[str, tuple[tuple[int, ...], str]]:
    groups = (n_out, n_in // GROUP_SIZE)
    return {
        f"{name}.weight": ((n_out, n_in * bits // 32), "uint32"),
        f"{name}.scales": (groups, "float16"),
        f"{name}.biases": (groups, "float16"),
    }


def _brief(value: object) -> str:
    """Show a value in an error message, cut to a line."""
    item = getattr(value, "item", None)
    text = repr(item() if item and getattr(value, "shape", None) == () else value)
    return text if len(text) <= 200 else f"{text[:200]}…"
