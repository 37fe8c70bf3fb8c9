"""What GET_FEATURE answers, of any settings: a value that does not fit would be an internal error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from annotated_types import Ge, Le, Lt

from nitro_emu.efa.abi import replies
from nitro_emu.efa.card.config import EfaConfig
from nitro_emu.efa.card.features import feature

LIMITS = [name for name in EfaConfig.model_fields if name.startswith("max_")]


def bounds(name: str) -> tuple[int, int]:
    """Return the least and the greatest value of a setting."""
    least = greatest = None
    for each in EfaConfig.model_fields[name].metadata:
        match each:
            case Ge(ge=int(value)):
                least = value
            case Le(le=int(value)):
                greatest = value
            case Lt(lt=int(value)):
                greatest = value - 1
    assert least is not None
    assert greatest is not None
    return least, greatest


@pytest.mark.parametrize("end", [0, 1], ids=["least", "greatest"])
def test_what_programs_are_told_of_the_limits_fits(end: int) -> None:
    limits: Any = {name: bounds(name)[end] for name in LIMITS}
    vf: Any = SimpleNamespace(
        config=EfaConfig(name="efa_0", address="127.0.0.1", **limits), gid=bytes(16), mtu_bytes=65000
    )
    for number in replies.FEATURES:
        assert feature(vf, number, events=None).pack()
