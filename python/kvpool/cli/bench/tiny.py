"""A Llama model with random weights, small enough to be built on the spot."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mlx.nn as nn

N_LAYERS = 4
VOCABULARY = 256


def tiny_model() -> nn.Module:
    """Return the model: 4 layers, 4 query and 2 KV heads of 16 channels, float32."""
    import mlx.core as mx
    from mlx.utils import tree_map
    from mlx_lm.models import llama

    mx.random.seed(7)
    model = llama.Model(
        llama.ModelArgs(
            model_type="llama",
            hidden_size=64,
            num_hidden_layers=N_LAYERS,
            intermediate_size=128,
            num_attention_heads=4,
            num_key_value_heads=2,
            rms_norm_eps=1e-5,
            vocab_size=VOCABULARY,
            tie_word_embeddings=True,
        )
    )
    # Larger than those of a new model, so that the next token depends on what the caches hold.
    model.update(tree_map(lambda weights: 4 * weights, model.parameters()))
    mx.eval(model.parameters())
    return model
