"""netns.netem.loss_models: netem's random events: their statistics and their number of draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import groupby

import pytest

from netns.netem.loss_models import chance, correlated, loss, threshold
from netns.netem.params import FourStates, GilbertElliott
from netns.netem.prandom import U32_MAX, draws
from netns.netem.shape import Shape

PACKETS = 100_000


class Counting:
    """A seeded source that counts its draws."""

    def __init__(self, seed: int) -> None:
        print(f"seed {seed}")
        self._source = draws(seed)
        self.taken = 0

    def __call__(self) -> int:
        self.taken += 1
        return next(self._source)


def never() -> int:
    raise AssertionError("the spare generator is not for this")


def fates(shape: Shape, *, seed: int) -> list[bool]:
    lost = loss(shape, next_u32=Counting(seed), spare_u32=Counting(seed + 1))
    assert lost is not None
    return [lost() for _ in range(PACKETS)]


def burst_lengths(lost: list[bool]) -> list[int]:
    return [len(list(run)) for is_lost, run in groupby(lost) if is_lost]


def test_threshold() -> None:
    assert (threshold(0), threshold(100), threshold(50)) == (0, U32_MAX, 2**31)


def test_chance__nothing_takes_no_draws() -> None:
    assert chance(never, percent=0, correlation_percent=0, spare_u32=never) is None
    assert chance(never, percent=1e-9, correlation_percent=0, spare_u32=never) is None


def test_correlated__is_the_kernels_smoothing() -> None:
    source, rho, last = draws(5), threshold(25) + 1, 77
    draw = correlated(Counting(5), correlation_percent=25, spare_u32=lambda: 77)
    for _ in range(100):
        last = (next(source) * (2**32 - rho) + last * rho) >> 32
        assert draw() == last


def test_loss__correlation_takes_most_of_it_away_as_in_netem() -> None:
    """Figures of the kernel's formula, computed apart: 5 % with 25 % gives 0.19 %, 25 % with 50 % gives 7.0 %."""
    for percent, correlation, expected in ((5, 25, 0.0019), (25, 50, 0.070)):
        lost = fates(Shape(loss_percent=percent, loss_correlation_percent=correlation), seed=11)
        assert sum(lost) / PACKETS == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize(
    "model",
    [GilbertElliott(1, 10), GilbertElliott(5, 40, 70, 0.5), GilbertElliott(1, 99), GilbertElliott(100, 100)],
)
def test_gilbert_elliott__rate_is_the_stationary_one_and_two_draws_a_packet(model: GilbertElliott) -> None:
    source = Counting(3)
    lost = loss(Shape(loss_model=model), next_u32=source, spare_u32=never)
    assert lost is not None
    share = sum(lost() for _ in range(PACKETS)) / PACKETS
    bad = model.p_percent / (model.p_percent + model.r_percent)
    expected = bad * model.bad_loss_percent / 100 + (1 - bad) * model.good_loss_percent / 100
    assert share == pytest.approx(expected, rel=0.12)
    assert source.taken == 2 * PACKETS


def test_gilbert_elliott__bursts_last_as_long_as_the_bad_state() -> None:
    lengths = burst_lengths(fates(Shape(loss_model=GilbertElliott(1, 10)), seed=4))
    assert sum(lengths) / len(lengths) == pytest.approx(10, rel=0.12)


def test_four_states__one_draw_a_packet_whatever_the_state() -> None:
    source = Counting(6)
    lost = loss(Shape(loss_model=FourStates(5, 60, 20, 50, 3)), next_u32=source, spare_u32=never)
    assert lost is not None
    for _ in range(1000):
        lost()
    assert source.taken == 1000


def test_four_states__rate_is_the_stationary_one() -> None:
    """Of the chain's equations: pi = pi P; states 3 and 4 lose."""
    model = FourStates(2, 50, 10, 40, 1)
    p13, p31, p32, p23, p14 = (
        x / 100 for x in (model.p13_percent, model.p31_percent, model.p32_percent, model.p23_percent, model.p14_percent)
    )
    in_3 = 1.0
    in_1 = in_3 * p31 / p13
    in_2 = in_3 * p32 / p23
    in_4 = in_1 * p14
    expected = (in_3 + in_4) / (in_1 + in_2 + in_3 + in_4)
    assert sum(fates(Shape(loss_model=model), seed=8)) / PACKETS == pytest.approx(expected, rel=0.1)


def test_four_states__simplest_is_gilberts_bursts() -> None:
    lengths = burst_lengths(fates(Shape(loss_model=FourStates(1, 20)), seed=9))
    assert sum(lengths) / len(lengths) == pytest.approx(5, rel=0.12)


def test_four_states__isolated_losses_stand_alone() -> None:
    lost = fates(Shape(loss_model=FourStates(0, 100, 0, 100, 10)), seed=10)
    assert set(burst_lengths(lost)) == {1}
    expected = 0.1 / 1.1
    assert abs(sum(lost) / PACKETS - expected) < 5 * math.sqrt(expected / PACKETS)


def test_loss__of_nothing_is_none() -> None:
    unused: Callable[[], int] = never
    assert loss(Shape(), next_u32=unused, spare_u32=unused) is None
