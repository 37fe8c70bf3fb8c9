from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.paths.path import MAX_PROBE_RANGES, Path


def path() -> Path:
    return Path(3, initial_rtt_s=0.05)


def test_allocate_sequences__one_counter_for_bursts_and_probes() -> None:
    ours = path()
    assert [ours.allocate_sequences(count) for count in (3, 1, 64, 1)] == [0, 3, 4, 68]


def test_allocate_sequences__a_burst_never_straddles_32_bits() -> None:
    """Headers are written as 64-bit lanes: a carry would change the path number."""
    ours = path()
    ours.next_sequence = (1 << 32) - 3
    assert ours.allocate_sequences(3) == (1 << 32) - 3
    ours.next_sequence = (1 << 32) - 3
    assert ours.allocate_sequences(4) == 1 << 32
    assert ours.next_sequence == (1 << 32) + 4


@given(st.lists(st.sampled_from("dpppr"), max_size=60))
def test_report__as_a_set_of_probes(steps: list[str]) -> None:
    """Data, probes and reports of any order, as long as there are not more runs of probes than are remembered."""
    ours, probes, runs = path(), set[int](), 0
    for kind in steps:
        if kind == "p":
            runs += not probes or ours.next_sequence - 1 not in probes
            probes.add(ours.allocate_probe_sequence())
        elif kind == "d":
            ours.allocate_sequences(2)
        elif ours.next_sequence - 1 > ours.reported_sequence and runs < MAX_PROBE_RANGES:
            sequence = (ours.reported_sequence + ours.next_sequence) // 2
            assert ours.on_report(sequence) is (sequence in probes)
    kept = {sequence for probes in ours.probe_sequences for sequence in probes}
    assert kept <= probes
    assert runs >= MAX_PROBE_RANGES or kept == {each for each in probes if each > ours.reported_sequence}


@pytest.mark.parametrize("data_between", [False, True], ids=["a path that stays dead", "one that reports old packets"])
def test_allocate_probe_sequence__what_it_keeps_does_not_grow(*, data_between: bool) -> None:
    """Five probes a second for a week are three million. A peer may report, one by one, what it got long ago."""
    ours = path()
    for number in range(10_000):
        ours.allocate_probe_sequence()
        if data_between:
            ours.allocate_sequences(1)
            ours.on_report(number)
        assert len(ours.probe_sequences) <= (MAX_PROBE_RANGES if data_between else 1)
    assert ours.on_report(ours.next_sequence - 1) is not data_between
    assert ours.probe_sequences == ()
