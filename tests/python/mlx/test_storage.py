"""MLXBlockStorage: arrays behind blocks, packed codes, and what successive owners see."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kvpool.memory import Block, BlockPoolAllocator, MLXBlockStorage, PoolConfig

BITS = {"int8": 8, "int4": 4, "int2": 2, "int1": 1}
FLOATS = {"fp16": mx.float16, "bf16": mx.bfloat16, "fp32": mx.float32}


@pytest.fixture
def pool(make_pool):
    return make_pool(n_blocks=8, block_size=4)


@pytest.fixture
def storage(pool):
    return MLXBlockStorage(pool, head_dim=10)


@pytest.fixture
def block(pool):
    """Return a function that checks one block out."""

    def check_out(label="fp16", n_tokens=4, owner=1, stream="k"):
        (only,) = pool.allocate(stream, n_tokens, owner, label)
        return only

    return check_out


@pytest.mark.parametrize("label", FLOATS)
def test_floats(storage, block, label):
    mine = block(label, 3)
    buffer = storage.buffer_for(mine)
    assert (buffer.shape, buffer.dtype) == ((4, 10), FLOATS[label])
    assert not buffer.any().item()
    rows = mx.arange(20, dtype=mx.float32).reshape(2, 10)
    storage.write(mine, 1, rows)
    assert storage.buffer_for(mine) is buffer
    assert mine.n_used == 3
    got = storage.read(mine)
    assert (got.shape, got.dtype) == ((3, 10), FLOATS[label])
    assert mx.array_equal(got, mx.concatenate([mx.zeros((1, 10)), rows]))
    assert storage.resident_bytes() == 4 * 10 * FLOATS[label].size


@pytest.mark.parametrize("label", BITS)
def test_case_29_codes_are_really_packed(storage, block, label):
    bits = BITS[label]
    mine = block(label)
    codes = mx.arange(40, dtype=mx.uint8).reshape(4, 10) & ((1 << bits) - 1)
    storage.write(mine, 0, codes)
    got = storage.read(mine)
    assert got.dtype == mx.uint8
    assert mx.array_equal(got, codes)
    n_bytes = -(-10 * bits // 8)
    buffer = storage.buffer_for(mine)
    assert (buffer.shape, buffer.dtype) == ((4, n_bytes), mx.uint8)
    assert storage.resident_bytes() == 4 * n_bytes
    # Code n of a row lies in bits w·n … w·n + w - 1 of its bytes, read as one little-endian number.
    for row, stored in zip(codes.tolist(), buffer.tolist(), strict=True):
        number = sum(code << (bits * n) for n, code in enumerate(row))
        assert int.from_bytes(bytes(stored), "little") == number


def test_an_int4_buffer_is_half_of_an_int8_buffer(pool, block):
    storage = MLXBlockStorage(pool, head_dim=64)
    storage.buffer_for(block("int8"))
    whole = storage.resident_bytes()
    storage.buffer_for(block("int4"))
    assert storage.resident_bytes() == whole + whole // 2


@settings(max_examples=60, deadline=None)
@given(data=st.data(), label=st.sampled_from(sorted(BITS)), width=st.integers(1, 33))
def test_case_29_any_codes_round_trip(data, label, width):
    pool = BlockPoolAllocator(PoolConfig(4, 2))
    storage = MLXBlockStorage(pool, width)
    (mine,) = pool.allocate("k", 4, 1, label)
    expected = np.zeros((4, width), np.uint8)
    for _ in range(2):
        n = data.draw(st.integers(1, 4))
        offset = data.draw(st.integers(0, 4 - n))
        codes = st.integers(0, (1 << BITS[label]) - 1)
        rows = data.draw(arrays(np.uint8, (n, width), elements=codes))
        storage.write(mine, offset, rows)
        expected[offset : offset + n] = rows
        np.testing.assert_array_equal(np.array(storage.read(mine)), expected)


@pytest.mark.parametrize("label", BITS)
def test_codes_out_of_range_are_refused(storage, block, label):
    mine = block(label)
    storage.write(mine, 0, mx.ones((4, 10), mx.uint8))
    limit = 1 << BITS[label]
    for wrong in (limit, -1):
        with pytest.raises(ValueError, match=str(wrong)):
            storage.write(mine, 0, mx.full((1, 10), wrong, mx.int32))
    with pytest.raises(TypeError, match="float32"):
        storage.write(mine, 0, mx.ones((1, 10)))
    assert mx.array_equal(storage.read(mine), mx.ones((4, 10)))


@pytest.mark.parametrize(("offset", "n"), [(3, 2), (-1, 1), (4, 1), (0, 5)])
def test_rows_past_the_end_are_refused(storage, block, offset, n):
    mine = block()
    with pytest.raises(ValueError, match=f"{n} rows at slot {offset}"):
        storage.write(mine, offset, mx.ones((n, 10)))
    assert not storage.read(mine).any().item()


def test_rows_of_another_width_are_refused(storage, block):
    for shape in ((2, 9), (10,), (1, 2, 10)):
        with pytest.raises(ValueError, match=r"\(n, 10\)"):
            storage.write(block(owner=str(shape)), 0, mx.ones(shape))


def test_no_rows_are_written_as_they_are(storage, block):
    storage.write(block(), 4, mx.ones((0, 10)))


def test_an_unknown_format_is_refused(storage, block):
    mine = block("int3")
    for use in (storage.buffer_for, storage.read, lambda b: storage.write(b, 0, mx.ones((1, 10)))):
        with pytest.raises(ValueError, match=r"fp16.*int1.*int3"):
            use(mine)


@pytest.mark.parametrize("label", ["fp16", "int4"])
def test_the_next_owner_never_sees_old_bytes(pool, storage, block, label):
    first = block(label, owner=1)
    buffer = storage.buffer_for(first)
    storage.write(first, 0, mx.ones((4, 10), mx.uint8))
    pool.free([first])
    second = block(label, owner=2)
    assert second.block_id == first.block_id
    assert not storage.read(second).any().item()
    assert storage.buffer_for(second) is buffer
    storage.write(second, 0, mx.ones((1, 10), mx.uint8))
    assert storage.read(second)[0].all().item()
    assert not storage.read(second)[1:].any().item()


def test_a_change_of_format_makes_a_new_array(pool, storage, block):
    first = block("fp16")
    buffer = storage.buffer_for(first)
    pool.free([first])
    second = block("int8", owner=2)
    assert second.block_id == first.block_id
    assert storage.buffer_for(second) is not buffer
    assert storage.resident_bytes() == 4 * 10


def test_a_stale_handle_reads_nothing_and_writes_nothing(pool, storage, block):
    first = block()
    storage.write(first, 0, mx.ones((4, 10)))
    pool.free([first])
    assert storage.read(first).shape == (0, 10)
    second = block(owner=2)
    storage.write(second, 0, mx.full((4, 10), 2))
    for use in (storage.buffer_for, lambda b: storage.write(b, 0, mx.ones((1, 10)))):
        with pytest.raises(ValueError, match="not checked out"):
            use(first)
    assert storage.read(first).shape == (0, 10)
    assert mx.array_equal(storage.read(second), mx.full((4, 10), 2))


def test_a_block_made_by_hand_is_no_way_to_the_bytes(storage, block):
    mine = block()
    alias = Block(mine.block_id, mine.stream, mine.format, mine.n_used, mine.owner, True)
    with pytest.raises(ValueError, match="not checked out"):
        storage.buffer_for(alias)
    assert storage.read(alias).shape == (0, 10)


def test_a_block_of_another_pool_does_not_take_the_bytes_over(make_pool, storage, block):
    mine = block()
    (foreign,) = make_pool(n_blocks=8, block_size=4).allocate("k", 4, 1)
    assert foreign.block_id == mine.block_id
    for _ in range(2):  # before anything is stored for the id, and after
        with pytest.raises(ValueError, match="not checked out"):
            storage.write(foreign, 0, mx.zeros((4, 10)))
        assert storage.read(foreign).shape == (0, 10)
        storage.write(mine, 0, mx.ones((4, 10)))
    assert storage.read(mine).all().item()


def test_release_drops_the_array_of_a_free_block_only(pool, storage, block):
    mine = block()
    storage.buffer_for(mine)
    with pytest.raises(ValueError, match="in use"):
        storage.release(mine)
    pool.free([mine])
    storage.release(mine)
    storage.release(mine)
    assert storage.resident_bytes() == 0
    again = block(owner=2)
    storage.buffer_for(again)
    with pytest.raises(ValueError, match="in use"):
        storage.release(mine)  # the next owner's now
    assert storage.resident_bytes() > 0


def test_retired_blocks_give_their_bytes_back(pool, storage, block):
    blocks = [block(owner=n) for n in range(3)]
    for mine in blocks:
        storage.buffer_for(mine)
    pool.free(blocks[:2])
    assert storage.resident_bytes() == 3 * 80
    pool.shrink("k", 0)
    assert storage.resident_bytes() == 80
    assert storage.read(blocks[2]).shape == (4, 10)


def test_what_a_storage_is_made_of(pool):
    with pytest.raises(ValueError, match="0"):
        MLXBlockStorage(pool, 0)
    with pytest.raises(TypeError):
        MLXBlockStorage(pool, 1.5)
    with pytest.raises(TypeError, match="BlockPoolAllocator"):
        MLXBlockStorage("pool", 1)
