from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.compare.outcome import Outcome, longest_gap_s, shares, summary


def test_outcome__goodput_and_seconds(outcome: Outcome) -> None:
    assert outcome.goodput_bps == 800_000_000
    assert outcome.seconds == 1.0
    assert outcome.verified
    assert not replace(outcome, sha256_ok=False).verified


def test_outcome__incomplete_has_no_seconds_but_a_goodput(outcome: Outcome) -> None:
    given_up = replace(outcome, completed=False, sha256_ok=False, byte_count=25_000_000, elapsed_s=20.0)
    assert given_up.seconds is None
    assert given_up.goodput_bps == 10_000_000
    assert given_up.to_dict()["seconds"] is None
    assert replace(given_up, elapsed_s=0.0).goodput_bps == 0.0


def test_summary__one_round_is_itself(outcome: Outcome) -> None:
    figures = summary([outcome])
    assert {key: figures[key] for key in outcome.to_dict()} == outcome.to_dict()
    assert figures["progress"] == [[0.0, 0], [0.5, 50_000_000], [1.0, 100_000_000]]


def test_summary__medians_figure_by_figure(outcome: Outcome) -> None:
    slow = replace(outcome, elapsed_s=4.0, longest_stall_ms=1.0, path_shares=(1.0, 0.0), progress=((0.0, 1),))
    middle = replace(outcome, elapsed_s=2.0, longest_stall_ms=99.0, retransmitted_fraction=None, progress=((0.0, 2),))
    figures = summary([slow, outcome, middle])
    assert figures["seconds"] == 2.0
    assert figures["goodput_bps"] == 400_000_000
    assert figures["longest_stall_ms"] == 12.5
    assert figures["retransmitted_fraction"] == 0.0125
    assert figures["path_shares"] == [0.5, 0.5]
    assert figures["progress"] == [[0.0, 2]]
    assert [one["seconds"] for one in figures["rounds"]] == [4.0, 1.0, 2.0]


def test_summary__one_bad_round_shows(outcome: Outcome) -> None:
    hung = replace(outcome, completed=False, sha256_ok=False, failure="stopped")
    figures = summary([outcome, hung, outcome])
    assert (figures["completed"], figures["sha256_ok"], figures["seconds"]) == (False, False, None)
    assert figures["failure"] == "stopped"


@pytest.mark.parametrize(
    ("progress", "until_s", "gap_s"),
    [
        ((), 20.0, 20.0),
        (((0.0, 0), (1.0, 10), (3.5, 20), (4.0, 30)), 4.5, 2.5),
        (((0.0, 0), (1.0, 10), (2.0, 10), (3.0, 10)), 20.0, 19.0),
    ],
)
def test_longest_gap__the_last_silence_counts(
    progress: tuple[tuple[float, int], ...], until_s: float, gap_s: float
) -> None:
    assert longest_gap_s(progress, until_s=until_s) == gap_s


@given(st.lists(st.integers(min_value=0, max_value=10**12), min_size=1))
def test_shares__sum_to_one_or_nothing(counts: list[int]) -> None:
    total = sum(shares(counts))
    assert total == pytest.approx(1.0 if any(counts) else 0.0)
    assert len(shares(counts)) == len(counts)
