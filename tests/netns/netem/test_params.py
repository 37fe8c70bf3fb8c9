"""netns.netem.params: models of loss and slots, and invalid values."""

from __future__ import annotations

import math
from typing import Any

import pytest

from netns.errors import ShapeError
from netns.netem.params import FourStates, GilbertElliott, Slot, check_number


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((101, 5), "loss: gemodel: p: 101 % is not between 0 % and 100 %"),
        ((1, "5"), "loss: gemodel: r: '5' is not a number"),
        ((1, 5, -1), "loss: gemodel: bad_loss: -1 % is not between 0 % and 100 %"),
        ((1, 5, 100, math.nan), "loss: gemodel: good_loss: nan % is not between 0 % and 100 %"),
    ],
)
def test_gilbert_elliott__bad_flow(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        GilbertElliott(*arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 5), "loss: state: p13: -1 % is not between 0 % and 100 %"),
        ((60, 5, 0, 100, 50), "loss: state: p13 + p14 is 110 %, and they exclude each other: at most 100 %"),
        ((6, 50, 51), "loss: state: p31 + p32 is 101 %, and they exclude each other: at most 100 %"),
    ],
)
def test_four_states__bad_flow(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        FourStates(*arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "slot: a time of 0 us means no slots to netem; give one, or leave slot out"),
        ({"min_us": 5, "max_us": 4}, "slot: max: 4 us is less than min, 5 us"),
        ({"max_us": -4}, "slot: max: -4 us is not between 0 us and 9223372036854775 us"),
        ({"max_us": 4, "packets": -1}, "slot: packets: -1 is not between 0 and 2147483647"),
        ({"max_us": 4, "bytes": 1.5}, "slot: bytes: 1.5 is not an integer"),
        ({"max_us": 4, "distribution": "normal"}, "slot: min and max stand beside a distribution; keep one of the two"),
        (
            {"distribution": "normal", "delay_us": 9},
            "slot: distribution: a jitter of 0 us means no slots to netem; give one, or min and max",
        ),
        (
            {"distribution": "uniform", "delay_us": 9, "jitter_us": 1},
            "slot: a uniform distribution is given by its bounds: slot MIN MAX",
        ),
        (
            {"max_us": 9, "delay_us": 9},
            "slot: a delay and a jitter need the distribution that they describe; give its name",
        ),
    ],
)
def test_slot__bad_flow(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        Slot(**arguments)
    assert str(caught.value) == message


def test_check_number__a_truth_value_is_no_number() -> None:
    with pytest.raises(ShapeError, match="x: True is not a number"):
        check_number("x", value=True, low=0, high=1, unit="")
