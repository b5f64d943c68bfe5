"""What the caches do under the real model (the same is tested more closely on tiny ones)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(900)


def test_tokens_equal_mlx_lms_own_for_every_prompt_length(run_program: Callable[..., Any]) -> None:
    results = run_program("prompt_lengths.py")
    assert [result["length"] for result in results] == [1, 15, 16, 17, 255, 256, 257, 600]
    for result in results:
        assert result["pooled"] == result["stock"], result["length"]
        # 30 layers, two streams, whole steps of 256 tokens in blocks of 16. The last of the eight
        # tokens is generated a step ahead.
        n_steps = -(-(result["length"] + 8) // 256)
        assert result["in_use"] == 30 * 2 * n_steps * 16
        assert result["left"] == 0


def test_second_program_of_the_api_runs_as_it_stands(run_program: Callable[..., Any]) -> None:
    result = run_program("second_program.py", launcher=("-m", "kvpool.compat"))
    assert result["text"] == result["own"]
    assert "Paris" in result["text"]
    assert result["in_use"] == 30 * 2 * 16
    assert result["left"] == 0


def test_four_requests_in_a_batch_equal_single_runs(run_program: Callable[..., Any]) -> None:
    result = run_program("batch.py")
    assert result["batch"] == result["alone"]
    assert result["n_allocations"] > 0
    assert result["peak"] >= 4 * 30 * 2
    assert result["left"] == 0
