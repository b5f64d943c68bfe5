"""The second program of the API, as it stands; run through the switch."""

import json
import sys

import mlx_lm
from veloxquant_mlx.memory import BlockPoolAllocator, PoolConfig, build_pooled_caches

path = sys.argv[1]
request_id = 7
prompt = "The capital of France is"

model, tokenizer = mlx_lm.load(path)
pool = BlockPoolAllocator(PoolConfig(block_size=16, n_blocks=4096))
cache = build_pooled_caches(model, pool, owner=request_id)
text = mlx_lm.generate(model, tokenizer, prompt, prompt_cache=cache, max_tokens=12)
in_use = pool.stats.blocks_in_use()
cache[0].release()  # every layer shares one owner, so any one releases all
left = pool.stats.blocks_in_use()

print(
    json.dumps(
        {
            "text": text,
            "own": mlx_lm.generate(model, tokenizer, prompt, max_tokens=12),
            "in_use": in_use,
            "left": left,
        }
    )
)
