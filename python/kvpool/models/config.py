"""``config.json`` and ``generation_config.json`` of a converted model."""

from __future__ import annotations

from typing import Any

from kvpool.models.gguf import EMBEDDING_BITS, GROUP_SIZE, LINEAR_BITS, LlamaSizes
from kvpool.models.tokenizer import TokenIds


def model_config(sizes: LlamaSizes, ids: TokenIds, *, dense: bool) -> dict[str, Any]:
    """Describe the model for ``mlx_lm.load``.

    Parameters
    ----------
    sizes
        The model's sizes.
    ids
        Special token ids.
    dense
        Whether the weights are dense; else ``quantization`` names 4 bits in groups of 32 for
        all matrices but the embedding, which has 8.

    Returns
    -------
    dict
        Contents of ``config.json``.
    """
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": sizes.hidden_size,
        "intermediate_size": sizes.intermediate_size,
        "num_hidden_layers": sizes.n_layers,
        "num_attention_heads": sizes.n_heads,
        "num_key_value_heads": sizes.n_kv_heads,
        "head_dim": sizes.head_dim,
        "max_position_embeddings": sizes.context_length,
        "rms_norm_eps": sizes.rms_norm_eps,
        "rope_theta": sizes.rope_theta,
        "vocab_size": sizes.vocab_size,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        **generation_config(ids),
    }
    if not dense:
        config["quantization"] = {
            "group_size": GROUP_SIZE,
            "bits": LINEAR_BITS,
            "model.embed_tokens": {"group_size": GROUP_SIZE, "bits": EMBEDDING_BITS},
        }
    return config


def generation_config(ids: TokenIds) -> dict[str, Any]:
    """Return the contents of ``generation_config.json``: where generation starts and ends."""
    return {"bos_token_id": ids.bos, "eos_token_id": ids.eos, "pad_token_id": ids.padding}
