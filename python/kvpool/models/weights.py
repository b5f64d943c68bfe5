"""From GGUF tensors to the weights of ``mlx_lm.models.llama``.

Two differences have to be undone.

Row order. GGUF stores the rows of Q and K per head so that RoPE rotates neighbours, mlx_lm
(as the original checkpoint) so that it rotates channel ``i`` with channel ``i + head_dim/2``::

    GGUF, one head:    0  d/2  1  d/2+1  2  d/2+2 ...     (pairs, two halves)
    mlx_lm, one head:  0  1  2 ...  d/2  d/2+1 ...        (halves, pairs)

Rows are whole in packed codes, scales and biases alike, so the same permutation of axis 0
applies to all three.

Precision. Scales and biases become float32, which is exact. With half-precision scales
MLX would embed tokens in half precision and convert every scale again in each step, and MLX's
CPU build emulates half precision. So activations are float32 from the embedding on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvpool.models.gguf import EMBEDDING_BITS, GROUP_SIZE, LINEAR_BITS, LlamaGguf

if TYPE_CHECKING:
    import mlx.core as mx

_LAYER_LINEARS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def llama_weights(gguf: LlamaGguf, *, dense: bool) -> dict[str, mx.array]:
    """Rename, reorder and widen the tensors of a GGUF file for mlx_lm.

    Parameters
    ----------
    gguf
        A checked file.
    dense
        Dequantise every matrix to float32, shape (out, in), instead of keeping packed codes
        of shape (out, in * bits / 32) with float32 scales and biases of shape (out, in / 32).

    Returns
    -------
    dict of str to mlx.core.array
        Weights under mlx_lm's names, not yet evaluated.
    """
    import mlx.core as mx

    sizes, tensors = gguf.sizes, gguf.tensors
    n_rotated_heads = {"attn_q": sizes.n_heads, "attn_k": sizes.n_kv_heads}
    weights: dict[str, mx.array] = {}

    def add_matrix(source: str, target: str, bits: int, n_heads: int = 0) -> None:
        codes = tensors[f"{source}.weight"]
        scales = tensors[f"{source}.scales"].astype(mx.float32)
        biases = tensors[f"{source}.biases"].astype(mx.float32)
        if n_heads:
            codes, scales, biases = (split_halves(a, n_heads) for a in (codes, scales, biases))
        if dense:
            weights[f"{target}.weight"] = mx.dequantize(
                codes, scales, biases, group_size=GROUP_SIZE, bits=bits
            )
        else:
            weights[f"{target}.weight"] = codes
            weights[f"{target}.scales"] = scales
            weights[f"{target}.biases"] = biases

    add_matrix("token_embd", "model.embed_tokens", EMBEDDING_BITS)
    weights["model.norm.weight"] = tensors["output_norm.weight"]
    for layer in range(sizes.n_layers):
        source, target = f"blk.{layer}", f"model.layers.{layer}"
        for name, module in _LAYER_LINEARS.items():
            n_heads = n_rotated_heads.get(name, 0)
            add_matrix(f"{source}.{name}", f"{target}.{module}", LINEAR_BITS, n_heads)
        for name, module in _LAYER_NORMS.items():
            weights[f"{target}.{module}.weight"] = tensors[f"{source}.{name}.weight"]
    return weights


def split_halves(rows: mx.array, n_heads: int) -> mx.array:
    """Reorder rows from RoPE pairs to RoPE halves, head by head.

    Parameters
    ----------
    rows
        Shape (n_heads * head_dim, columns), each head in the order 0, d/2, 1, d/2+1 ...
    n_heads
        Number of heads.

    Returns
    -------
    mlx.core.array
        The same shape, each head in the order 0, 1, 2 ...
    """
    n_rows, n_columns = rows.shape
    pairs = rows.reshape(n_heads, n_rows // n_heads // 2, 2, n_columns)
    return pairs.swapaxes(1, 2).reshape(n_rows, n_columns)
