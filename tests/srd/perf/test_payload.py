from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from srd.perf.payload import NUMBERS, SOURCE_BYTES, PayloadSource, Shifted


@pytest.fixture(params=[1, 1000, 1 << 20, 3 << 20, 16 << 20])
def source(request: pytest.FixtureRequest) -> Iterator[PayloadSource]:
    made = PayloadSource(request.param)
    yield made
    made.close()


def test_blocks_lie_in_the_source_and_follow_each_other_elsewhere(source: PayloadSource) -> None:
    block_bytes = source.offset(1)
    for number in (0, 1, 7, NUMBERS - 1, NUMBERS):
        assert 0 <= source.offset(number) <= source.size_bytes - block_bytes
        assert source.offset(number) != source.offset(number + 1)
    assert source.offset(NUMBERS) == source.offset(0)


def test_difference__names_the_first_byte_that_is_wrong() -> None:
    source = PayloadSource(1000)
    right = source.array[2000:3000].copy()
    assert source.difference(2000, right) is None
    assert source.difference(1000, right) == 0  # another block
    right[17] ^= 1
    right[400] ^= 1
    assert source.difference(2000, right) == 17
    assert source.difference(SOURCE_BYTES - 2, np.array([*source.array[-2:], 0], np.uint8)) == 2
    source.close()


@pytest.mark.parametrize("kind", [PayloadSource, Shifted])
@pytest.mark.parametrize("size", [1, 4097, (2 << 20) + 1, 5_000_001])
def test_source__of_any_length_of_block(kind: type[PayloadSource], size: int) -> None:
    source = kind(size)
    blocks = [source.block(number) for number in range(4)]
    assert {len(block) for block in blocks} == {size}
    assert size == 1 or not np.array_equal(blocks[0], blocks[1])
    assert source.is_block(1, blocks[1].tobytes())
    assert not source.is_block(1, bytes(value ^ 1 for value in blocks[1].tobytes()[:9]))
    wrong = bytearray(blocks[1])
    wrong[-1] ^= 1
    assert not source.is_block(1, bytes(wrong))
    del blocks
    source.close()
