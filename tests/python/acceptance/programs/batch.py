"""Four requests in one batch of an attached model, against each of them alone."""

import json
import sys

import mlx_lm
from mlx_lm.generate import batch_generate

import kvpool.mlx
from kvpool.memory import BlockPoolAllocator, PoolConfig

QUESTIONS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "Name the four seasons of the year, in their order, beginning with spring:",
    "One, two, three,",
)

model, tokenizer = mlx_lm.load(sys.argv[1])
prompts = [tokenizer.encode(question) for question in QUESTIONS]
alone = [mlx_lm.generate(model, tokenizer, prompt=prompt, max_tokens=10) for prompt in prompts]

pool = BlockPoolAllocator(PoolConfig(block_size=16, n_blocks=16384))
kvpool.mlx.attach(model, pool)
batch = batch_generate(model, tokenizer, prompts, max_tokens=10)
print(
    json.dumps(
        {
            # mlx_lm's streaming detokenizer drops a leading space, its batch decoding does not.
            "alone": [text.strip() for text in alone],
            "batch": [text.strip() for text in batch.texts],
            "n_allocations": pool.stats.n_allocations,
            "peak": pool.stats.peak_blocks_in_use,
            "left": pool.stats.blocks_in_use(),
        }
    )
)
