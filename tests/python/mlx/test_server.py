"""mlx_lm.server in this process, on a model that is attached to a pool."""

from __future__ import annotations

import argparse
import http.client
import json
import threading
import time
from http.server import ThreadingHTTPServer

import mlx_lm
import pytest
from mlx_lm.models.cache import LRUPromptCache, make_prompt_cache
from mlx_lm.server import APIHandler, ResponseGenerator

import kvpool.mlx

PATIENCE_S = 120


class Provider:
    """A provider of the one model that there is."""

    def __init__(self, model, tokenizer, **options):
        self.cli_args = argparse.Namespace(
            **{
                "model": "tiny",
                "allowed_origins": ["*"],
                "num_draft_tokens": 3,
                "max_tokens": 16,
                "temp": 0.0,
                "top_p": 1.0,
                "top_k": 0,
                "min_p": 0.0,
                "decode_concurrency": 8,
                "prompt_concurrency": 4,
                "prefill_step_size": 32,
                "prompt_cache_bytes": None,
                "chat_template_args": {},
                "kv_bits": None,
                "kv_group_size": 32,
                "quantized_kv_start": 0,
                **options,
            }
        )
        self._loaded = model, tokenizer
        self.model_key = ("tiny", None, None)
        self.model, self.tokenizer = self._loaded
        self.processor = self.draft_model = None
        self.is_batchable = all(hasattr(cache, "merge") for cache in make_prompt_cache(model))

    def load_default(self):
        """There is nothing to load."""

    def load(self, *_):
        return self._loaded

    def reset(self):
        self.model = self.tokenizer = None


class QuietServer(ThreadingHTTPServer):
    """A server that does not print what clients do to it."""

    def handle_error(self, request, client_address):
        pass


class QuietHandler(APIHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def serve(model, pool, tokenizer):
    """Return a function that starts a server; returns its address and a function that ends it."""
    ends = []

    def start(**options):
        kvpool.mlx.attach(model, pool)
        generator = ResponseGenerator(Provider(model, tokenizer, **options), LRUPromptCache(4))
        server = QuietServer(
            ("127.0.0.1", 0),
            lambda *args: QuietHandler(generator, *args, system_fingerprint="tiny"),
        )
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        ended = threading.Event()

        def end():
            if not ended.is_set():
                ended.set()
                server.shutdown()
                thread.join()
                server.server_close()
                generator.stop_and_join()
                kvpool.mlx.detach(model)

        ends.append(end)
        return server.server_address, generator, end

    yield start
    for end in ends:
        end()


def post(address, prompt, **options):
    """Ask for a completion; returns the connection and the response to read from."""
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE_S)
    body = {"prompt": " ".join(map(str, prompt)), "temperature": 0.0, **options}
    connection.request("POST", "/v1/completions", json.dumps(body))
    return connection, connection.getresponse()


def complete(address, prompt, **options):
    connection, response = post(address, prompt, **options)
    answer = json.loads(response.read())
    connection.close()
    return answer["choices"][0]["text"]


def until(condition):
    """Wait for what another thread does."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


@pytest.mark.parametrize("kv_bits", [None, 8])
def test_case_24_two_requests_at_once_equal_single_runs(
    serve, model, pool, tokenizer, make_prompt, used, kv_bits
):
    prompts = [make_prompt(40, 1), make_prompt(9, 2)]
    options = (
        {} if kv_bits is None else {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}
    )
    expected = [
        mlx_lm.generate(model, tokenizer, prompt, max_tokens=24, **options) for prompt in prompts
    ]
    address, generator, end = serve(kv_bits=kv_bits)
    answers = [None, None]
    start = threading.Barrier(2)

    def ask(index):
        start.wait()
        answers[index] = complete(address, prompts[index], max_tokens=24)

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == expected
    assert pool.stats.n_allocations > 0
    # The server keeps the prompts that it has seen, in caches of ours.
    until(lambda: len(generator.prompt_cache) == 2)
    assert used(pool)[0] > 0
    entry, rest = generator.prompt_cache.fetch_nearest_cache(("tiny", None, None), [*prompts[0], 5])
    assert rest == [5]
    assert all(type(cache).__name__.startswith("PoolBacked") for cache in entry)
    del entry
    # What follows goes on from what is kept.
    assert complete(address, prompts[0], max_tokens=24) == expected[0]
    end()
    generator.__dict__.clear()
    assert used(pool) == (0, 0)


def test_case_6_a_client_that_goes_away_leaves_nothing(serve, pool, make_prompt, used):
    address, generator, end = serve()
    prompt = make_prompt(40)
    connection, response = post(address, prompt, max_tokens=100_000, stream=True)
    assert response.readline()
    until(lambda: used(pool)[0] > 0)
    response.close()
    connection.close()
    # All but the prompt, which the server keeps: without its last token, in three layers.
    until(lambda: used(pool) == (3 * 2 * 3, 0) and len(generator.prompt_cache) == 1)
    entry, _ = generator.prompt_cache.fetch_nearest_cache(("tiny", None, None), prompt)
    assert [cache.offset for cache in entry] == [39] * 3
    del entry
    assert complete(address, make_prompt(5), max_tokens=4)
    end()
    generator.__dict__.clear()
    assert used(pool) == (0, 0)
