"""AllocationStats, History and the Prometheus text."""

from __future__ import annotations

import copy
import pickle

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvpool.memory import (
    DEFAULT_HISTORY_SIZE,
    AllocationStats,
    BlockPoolAllocator,
    BlockPoolExhaustedError,
    PoolConfig,
)

FAMILIES = [
    ("blocks_in_use", "gauge"),
    ("blocks_total", "gauge"),
    ("fragmentation", "gauge"),
    ("peak_blocks_in_use", "gauge"),
    ("allocations", "counter"),
    ("frees", "counter"),
    ("reused", "counter"),
    ("exhausted", "counter"),
    ("grown", "counter"),
    ("retired", "counter"),
]


def test_made_by_hand_is_a_value() -> None:
    stats = AllocationStats(10, n_allocations=5, n_frees=2, _fragmented_count=1)
    assert stats.blocks_in_use() == 3
    assert stats.fragmentation() == 0.1
    stats.n_frees = 5
    assert stats.blocks_in_use() == 0
    assert AllocationStats(0).fragmentation() == 0.0
    with pytest.raises(TypeError, match="n_frees must be an integer"):
        stats.n_frees = 1.5  # type: ignore[assignment]
    with pytest.raises(TypeError):
        hash(stats)
    for twin in (copy.deepcopy(stats), pickle.loads(pickle.dumps(stats)), stats.snapshot()):
        assert twin == stats
    assert repr(stats) == (
        "AllocationStats(in_use=0/10, allocations=5, frees=5, reused=0, exhausted=0, grown=0, "
        "retired=0, peak=0, fragmentation=0.100)"
    )


def test_pool_stats_is_a_live_read_only_view() -> None:
    pool = BlockPoolAllocator()
    stats = pool.stats
    snapshot = stats.snapshot()
    pool.allocate("k", 20, owner=1)
    assert isinstance(stats, AllocationStats)
    assert (stats.n_allocations, snapshot.n_allocations) == (2, 0)
    with pytest.raises(AttributeError, match="n_frees of a live pool can't be set"):
        stats.n_frees = 7
    with pytest.raises(AttributeError):
        pool.stats = snapshot  # type: ignore[misc]
    snapshot.n_frees = 7
    assert pool.stats.n_frees == 0


def test_counters_count_blocks_and_refusals_count_calls() -> None:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=6, grow_on_exhaustion=True, max_blocks=8))
    pool.allocate("k", 48, owner=1)
    pool.free_all(1)
    pool.allocate("k", 64, owner=1)
    with pytest.raises(BlockPoolExhaustedError):
        pool.allocate("k", 100, owner=2)
    pool.free_all(1)
    pool.shrink("k", 2)
    assert pool.stats == AllocationStats(
        n_blocks=5,
        n_allocations=7,
        n_frees=7,
        n_reused=3,
        n_exhausted=1,
        n_grown=2,
        n_retired=3,
        peak_blocks_in_use=4,
    )


def test_an_owned_block_with_nothing_in_it_is_fragmented() -> None:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=2))
    block = pool.allocate("k", 16, owner=1)[0]
    pool.mark_used(block, 0)
    assert pool.stats.fragmentation() == 0.5


def test_history_has_a_snapshot_a_call() -> None:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=2))
    assert list(pool.history) == []
    blocks = pool.allocate("k", 1, owner=1)
    pool.free(blocks)
    pool.free(blocks)
    pool.free_all("nobody")
    history = pool.history
    assert [entry.blocks_in_use() for entry in history] == [1, 0, 0, 0]
    assert len(history) == 4
    assert history[-1] == pool.stats
    assert history[0].n_frees == 0
    assert [entry.n_frees for entry in history[1:3]] == [1, 1]
    with pytest.raises(IndexError):
        history[4]
    for _ in range(400):
        pool.free([])
    assert len(history) == history.maxlen == DEFAULT_HISTORY_SIZE == 256


# Case 43.
@pytest.fixture(params=["fresh", "used"])
def stats(request: pytest.FixtureRequest) -> AllocationStats:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=3))
    if request.param == "used":
        pool.allocate("k", 5, owner='a"b\\c\n')
    return pool.stats


def test_case_43_a_standard_parser_reads_the_text(stats: AllocationStats) -> None:
    text = stats.to_prometheus()
    assert text.endswith("\n")
    assert "nan" not in text.lower()
    families = list(text_string_to_metric_families(text))
    prefix = "veloxquant_block_pool_"
    assert [(family.name, family.type) for family in families] == [
        (prefix + name, kind) for name, kind in FAMILIES
    ]
    for family in families:
        assert len(family.samples) == 1
        assert family.documentation
        if family.type == "counter":
            assert family.samples[0].name.endswith("_total")
    values = {sample.name: sample.value for family in families for sample in family.samples}
    assert values[prefix + "blocks_in_use"] == stats.blocks_in_use()
    assert values[prefix + "blocks_total"] == 3
    assert values[prefix + "allocations_total"] == stats.n_allocations
    assert text.count("# TYPE ") == text.count("# HELP ") == len(FAMILIES)
    assert f"{prefix}fragmentation {stats.fragmentation():.6f}\n" in text


@pytest.mark.parametrize("prefix", ["", "9a", "a b", 'a"', "a\n", "ä", "a-b", "a{"])
def test_case_43_an_invalid_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix must match"):
        AllocationStats(1).to_prometheus(prefix)
    assert AllocationStats(1).to_prometheus("a:b_9").startswith("# HELP a:b_9_blocks_in_use ")
