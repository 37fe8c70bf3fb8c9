"""nitro_emu.perf.plan: what an end accepts from the other."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.perf.plan import MAX_BYTES, MAX_SEND_BYTES, Address, Operation, PerfError, Plan, Tool

PLAN = Plan(Tool.BANDWIDTH, Operation.WRITE, (2, 4), iterations=10, depth=8, check=True)
ADDRESS = Address(gid=bytes(range(16)), qpn=3, qkey=1 << 31, rkey=7, memory=1 << 40, mtu_bytes=8900)
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5)


def test_plan_and_address_come_back() -> None:
    assert Plan.of_untrusted(PLAN.as_dict()) == PLAN
    assert Address.of_untrusted(ADDRESS.as_dict()) == ADDRESS


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"sizes": []}, "sent no sizes"),
        ({"sizes": "64"}, "sent no sizes"),
        ({"sizes": [0]}, "size: 0, which is not within 1 and 8388608"),
        ({"sizes": [MAX_BYTES + 1]}, "size: 8388609"),
        ({"tool": "none"}, "asked for 'none'; there are latency, bandwidth"),
        ({"operation": None}, "asked for None; there are send, write, read"),
        ({"iterations": True}, "iterations: True"),
        ({"depth": 1 << 20}, "depth: 1048576"),
    ],
)
def test_plan_that_is_none(change: dict[str, Any], error: str) -> None:
    with pytest.raises(PerfError, match=error):
        Plan.of_untrusted({**PLAN.as_dict(), **change})


@pytest.mark.parametrize(
    ("change", "error"),
    [({"gid": "00"}, "no GID but '00'"), ({"gid": 3}, "no GID but 3"), ({"qpn": 1 << 16}, "qpn: 65536")],
)
def test_address_that_is_none(change: dict[str, Any], error: str) -> None:
    with pytest.raises(PerfError, match=error):
        Address.of_untrusted({**ADDRESS.as_dict(), **change})


@given(name=st.sampled_from(sorted(PLAN.as_dict() | ADDRESS.as_dict())), value=JSON)
def test_anything_is_a_plan_or_an_error(name: str, value: object) -> None:
    for kind, fields in ((Plan, PLAN.as_dict()), (Address, ADDRESS.as_dict())):
        with suppress(PerfError):
            kind.of_untrusted({**fields, name: value})


def test_sends_are_no_longer_than_a_packet() -> None:
    sends = Plan(Tool.LATENCY, Operation.SEND, (64, 8192, MAX_BYTES), iterations=1)
    assert sends.possible_sizes == [64, 8192, MAX_SEND_BYTES]
    assert list(sends.within(8900).sizes) == [64, 8192]
    with pytest.raises(PerfError, match="size: 64 is more than a SEND may have, 63; use less, or --write"):
        sends.within(63)
    assert PLAN.within(1) is PLAN
