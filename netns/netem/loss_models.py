"""netem's random events: thresholds, correlated draws and the three loss models, as functions that draw when called.

Source: Linux net/sched/sch_netem.c (6.18): get_crandom(), loss_4state(), loss_gilb_ell(), loss_event().

A model draws from `next_u32`, the seeded generator, in the kernel's order and number. Where the kernel uses its
unseeded generator (the start of a correlated sequence), `spare_u32` is used here, so that the seed determines it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netns.netem.params import FourStates, GilbertElliott
from netns.netem.prandom import U32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from netns.netem.packet_ops import Draw
    from netns.netem.shape import Shape


def threshold(percent: float) -> int:
    """Return a percentage as a fraction of 2**32 - 1, rounded as tc does."""
    return round(percent / 100 * U32_MAX)


def correlated(next_u32: Draw, *, correlation_percent: float, spare_u32: Draw) -> Draw:
    """Return `next_u32` or, with a correlation, netem's smoothed draws, which are not uniform."""
    if not correlation_percent:
        return next_u32
    rho = threshold(correlation_percent) + 1
    last = spare_u32()

    def draw() -> int:
        nonlocal last
        last = (next_u32() * (2**32 - rho) + last * rho) >> 32
        return last

    return draw


def chance(next_u32: Draw, *, percent: float, correlation_percent: float, spare_u32: Draw) -> Callable[[], bool] | None:
    """Return an event with probability `percent` per call; None if it never happens, which takes no draws."""
    limit = threshold(percent)
    if not limit:
        return None
    draw = correlated(next_u32, correlation_percent=correlation_percent, spare_u32=spare_u32)
    return lambda: limit >= draw()


def loss(shape: Shape, *, next_u32: Draw, spare_u32: Draw) -> Callable[[], bool] | None:
    """Return a function that decides whether the next packet is lost, by the shape's model; None if none ever is."""
    match shape.loss_model:
        case FourStates() as model:
            return _four_states(model, next_u32)
        case GilbertElliott() as model:
            return _gilbert_elliott(model, next_u32)
    return chance(
        next_u32,
        percent=shape.loss_percent,
        correlation_percent=shape.loss_correlation_percent,
        spare_u32=spare_u32,
    )


def _gilbert_elliott(model: GilbertElliott, next_u32: Draw) -> Callable[[], bool]:
    """Two draws a packet: first the transition, then the loss, with the probability of the state before it."""
    to_bad, to_good = threshold(model.p_percent), threshold(model.r_percent)
    kept_in_bad, lost_in_good = U32_MAX - threshold(model.bad_loss_percent), threshold(model.good_loss_percent)
    bad = False

    def lost() -> bool:
        nonlocal bad
        if bad:
            bad = next_u32() >= to_good
            return next_u32() > kept_in_bad
        bad = next_u32() < to_bad
        return next_u32() < lost_in_good

    return lost


def _four_states(model: FourStates, next_u32: Draw) -> Callable[[], bool]:
    """One draw a packet, also in state 4, which ignores it."""
    p13, p31, p32, p23, p14 = (
        threshold(percent)
        for percent in (model.p13_percent, model.p31_percent, model.p32_percent, model.p23_percent, model.p14_percent)
    )
    after = {  # state -> (bound, next state, lost), the first bound above the draw decides
        1: ((p14, 4, True), (p13 + p14, 3, True), (2**33, 1, False)),
        2: ((p23, 3, True), (2**33, 2, False)),
        3: ((p32, 2, False), (p31 + p32, 1, False), (2**33, 3, True)),
        4: ((2**33, 1, False),),
    }
    state = 1

    def lost() -> bool:
        nonlocal state
        drawn = next_u32()
        for bound, following, is_lost in after[state]:
            if drawn < bound:
                state = following
                return is_lost
        raise AssertionError("the last bound is above every draw")

    return lost
