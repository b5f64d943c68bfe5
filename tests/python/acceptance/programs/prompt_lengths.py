"""Greedy tokens of prompts of several lengths: with mlx_lm's own caches and with pooled ones."""

import json
import sys

import mlx.core as mx
import mlx_lm
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

from kvpool.memory import BlockPoolAllocator, PoolConfig, build_pooled_caches

LENGTHS = (1, 15, 16, 17, 255, 256, 257, 600)
N_TOKENS = 8

model, tokenizer = mlx_lm.load(sys.argv[1])
text = "A pool of blocks holds the keys and values of every request that is being answered. " * 50
tokens = tokenizer.encode(text)
pool = BlockPoolAllocator(PoolConfig(block_size=16, n_blocks=8192))


def generate(prompt, cache):
    steps = generate_step(mx.array(prompt), model, max_tokens=N_TOKENS, prompt_cache=cache)
    return [int(token) for token, _ in steps]


results = []
for length in LENGTHS:
    prompt = tokens[:length]
    stock = generate(prompt, make_prompt_cache(model))
    cache = build_pooled_caches(model, pool, owner=("prompt", length))
    pooled = generate(prompt, cache)
    in_use = pool.stats.blocks_in_use()
    cache[0].release()
    results.append(
        {
            "length": length,
            "stock": stock,
            "pooled": pooled,
            "in_use": in_use,
            "left": pool.stats.blocks_in_use(),
        }
    )
print(json.dumps(results))
