"""The request ids of a queue: unique while in flight, each returned once, of one generation."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.efa.verbs.request_ids import RequestIds


@given(count=st.integers(1, 40), seed=st.integers(0, 1 << 20), generation=st.integers(0, 1 << 20))
def test_any_order_of_completions(count: int, seed: int, generation: int) -> None:
    rng = random.Random(seed)
    ids = RequestIds(count, generation=generation)
    in_flight: dict[int, int] = {}
    for wr_id in range(200):
        if len(in_flight) < count and rng.random() < 0.6:
            req_id = ids.reserve(wr_id)
            assert req_id not in in_flight
            assert 0 <= req_id < 1 << 16
            in_flight[req_id] = wr_id
        elif in_flight:
            req_id = rng.choice(list(in_flight))
            assert ids.complete(req_id) == in_flight.pop(req_id)
        assert ids.in_flight == len(in_flight)


@given(count=st.integers(1, 40), seed=st.integers(0, 1 << 20))
def test_arrays_are_the_same_ids(count: int, seed: int) -> None:
    rng = random.Random(seed)
    ids = RequestIds(count, generation=seed)
    in_flight: dict[int, int] = {}
    for first in range(0, 400, 10):
        wr_ids = np.arange(first, first + rng.randint(0, count - len(in_flight)), dtype=np.uint64)
        in_flight.update(zip(ids.reserve_many(wr_ids).tolist(), wr_ids.tolist(), strict=True))
        assert ids.in_flight == len(in_flight)
        done = rng.sample(list(in_flight), rng.randint(0, len(in_flight)))
        found, valid = ids.complete_many(np.array(done, np.uint16))
        assert valid is None
        assert found.tolist() == [in_flight.pop(req_id) for req_id in done]
        assert ids.in_flight == len(in_flight)


def test_completions_of_another_generation_are_refused() -> None:
    old, new = RequestIds(16, generation=1), RequestIds(16, generation=2)
    stale, current = old.reserve(1), new.reserve(2)
    assert new.complete(stale) is None
    assert new.complete(current) == 2


def test_a_reset_ends_a_generation() -> None:
    ids = RequestIds(16, generation=1)
    stale = ids.reserve(1)
    ids.reset(2)
    ids.reserve(2)
    assert ids.complete(stale) is None


def test_arrays_with_stale_ids_tell_which_are_valid() -> None:
    old, new = RequestIds(8, generation=1), RequestIds(8, generation=2)
    stale, current = old.reserve(1), new.reserve_many(np.array([5, 6], np.uint64)).tolist()
    found, valid = new.complete_many(np.array([current[1], stale, current[0]], np.uint16))
    assert valid is not None
    assert valid.tolist() == [True, False, True]
    assert found.tolist() == [6, 0, 5]
    assert new.in_flight == 0


@pytest.mark.parametrize("req_id", [0, 5, 0xFFFF])
def test_nothing_completes_when_nothing_is_in_flight(req_id: int) -> None:
    ids = RequestIds(6, generation=0)
    assert ids.complete(req_id) is None
    found, valid = ids.complete_many(np.array([req_id], np.uint16))
    assert found.tolist() == [0]
    assert valid is not None
    assert not valid.any()
    assert ids.in_flight == 0


def test_indices_beyond_the_queue_are_refused() -> None:
    ids = RequestIds(6, generation=0)  # 3 bits of index
    ids.reserve(1)
    assert ids.complete(7) is None
    assert ids.in_flight == 1
