from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.perf.errors import PerfError
from srd.perf.parameters import MAX_STREAMS, Direction, Parameters, Protocol, parameters_untrusted

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.sampled_from([*Protocol, *Direction])
)


def test_parameters_survive_the_way() -> None:
    for sent in (
        Parameters(),
        Parameters(Protocol.TCP, "bbr", block_bytes=1000, direction=Direction.BOTH, streams=MAX_STREAMS // 2),
        Parameters(Protocol.MPTCP, "cubic", seconds=0, size_bytes=5, block_bytes=1, verify=True, server_output=True),
    ):
        assert parameters_untrusted(asdict(sent)) == sent


@given(st.dictionaries(st.sampled_from(list(asdict(Parameters()))), VALUES))
def test_parameters_untrusted__gives_what_a_test_can_have_or_raises(changed: dict[str, Any]) -> None:
    try:
        parameters = parameters_untrusted({**asdict(Parameters()), **changed})
    except PerfError:
        return
    assert 1 <= parameters.count <= MAX_STREAMS
    assert 1 <= parameters.block_bytes <= 16 << 20
    assert 0 < parameters.seconds <= 86_400 or 0 < parameters.size_bytes <= 1 << 60


@given(st.recursive(VALUES, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner)))
def test_parameters_untrusted__any_json(value: Any) -> None:
    with pytest.raises(PerfError):
        parameters_untrusted(value)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"seconds": 0.0}, "one of them"),
        ({"size_bytes": 1}, "one of them"),
        ({"seconds": 0.0, "size_bytes": 9, "omit_s": 1.0}, "omitted"),
        ({"seconds": 86_401.0}, "time"),
        ({"seconds": float("nan")}, "seconds"),
        ({"streams": 65, "direction": "both"}, "number of streams"),
        ({"block_bytes": (16 << 20) + 1}, "length"),
        ({"protocol": "TCP", "congestion": "cubic", "block_bytes": (1 << 20) + 1}, "length of a block of TCP"),
        ({"protocol": "TCP"}, "congestion"),
        ({"congestion": "cubic"}, "congestion"),
        ({"protocol": "TCP", "congestion": "a/b"}, "congestion"),
        ({"protocol": "SCTP"}, "protocol"),
        ({"verify": 1}, "verify"),
        ({"streams": True}, "streams"),
        ({"size_bytes": 10**400}, "size_bytes"),
        ({"seconds": 10**400}, "seconds"),
    ],
)
def test_parameters_untrusted__bad_flow(changed: dict[str, Any], error: str) -> None:
    with pytest.raises(PerfError, match=error):
        parameters_untrusted({**asdict(Parameters()), **changed})
