from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.perf.errors import PerfError
from srd.perf.parameters import Protocol
from srd.perf.sweep.plan import (
    MAX_BYTES,
    MAX_ITERATIONS,
    MAX_MEMORY_BYTES,
    MAX_POSTED_BYTES,
    MAX_SECONDS,
    MAX_SIZES,
    Operation,
    Sweep,
    encode,
    sweep_untrusted,
)

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-1, MAX_BYTES + 1),
    st.floats(),
    st.text(max_size=9),
    st.sampled_from([*Operation, *Protocol, "cubic"]),
    st.lists(st.integers(-1, MAX_BYTES + 1) | st.integers() | st.none(), max_size=MAX_SIZES + 1),
)


@pytest.mark.parametrize(
    "sent",
    [
        Sweep(Operation.LATENCY),
        Sweep(Operation.RATE, Protocol.TCP, "bbr", (1, MAX_BYTES), iterations=0, seconds=0.5, verify=True),
        Sweep(Operation.WRITE, sizes=(2,), iterations=MAX_ITERATIONS, peers=128),
    ],
)
def test_sweep_survives_the_way(sent: Sweep) -> None:
    assert sweep_untrusted(encode(sent)) == sent


@given(st.dictionaries(st.sampled_from(list(encode(Sweep(Operation.RATE)))), VALUES))
def test_sweep_untrusted__gives_what_a_sweep_can_be_or_raises(changed: dict[str, Any]) -> None:
    try:
        sweep = sweep_untrusted({**encode(Sweep(Operation.RATE)), **changed})
    except PerfError:
        return
    assert 1 <= len(sweep.sizes) <= MAX_SIZES
    assert 1 <= sweep.count <= 128
    assert 0 < sweep.iterations <= MAX_ITERATIONS or 0 < sweep.seconds <= MAX_SECONDS
    for size in sweep.sizes:
        assert 1 <= size <= MAX_BYTES
        assert sweep.depth(size) >= 1
        assert sweep.depth(size) * size <= max(MAX_POSTED_BYTES, 2 * size)
        if sweep.operation in {Operation.WRITE, Operation.READ}:
            assert sweep.depth(size) * size * sweep.peers <= MAX_MEMORY_BYTES


@given(st.recursive(VALUES, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner)))
def test_sweep_untrusted__any_json(value: Any) -> None:
    with pytest.raises(PerfError):
        sweep_untrusted(value)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"operation": "atomic"}, "operation"),
        ({"sizes": []}, "sizes"),
        ({"sizes": [0]}, "size"),
        ({"sizes": [MAX_BYTES + 1]}, "size"),
        ({"sizes": [1 << 61]}, "size"),
        ({"sizes": [2] * 65}, "sizes"),
        ({"sizes": [True]}, "sizes"),
        ({"iterations": 0}, "one of them"),
        ({"seconds": 1.0}, "one of them"),
        ({"iterations": 0, "seconds": float("nan")}, "seconds"),
        ({"iterations": 0, "seconds": 601.0}, "duration"),
        ({"peers": 129}, "peers"),
        ({"protocol": "MPTCP", "congestion": "cubic"}, "MPTCP"),
        ({"protocol": "TCP"}, "congestion"),
        ({"protocol": "TCP", "congestion": "a/b"}, "congestion"),
        ({"protocol": "TCP", "congestion": "cubic", "operation": "read"}, "TCP has no read"),
        ({"protocol": "TCP", "congestion": "cubic", "peers": 2}, "peers"),
        ({"operation": "latency", "peers": 2}, "peers"),
        ({"operation": "write", "sizes": [MAX_BYTES], "peers": 5}, "registered memory"),
        ({"verify": 1}, "verify"),
    ],
)
def test_sweep_untrusted__bad_flow(changed: dict[str, Any], error: str) -> None:
    with pytest.raises(PerfError, match=error):
        sweep_untrusted({**encode(Sweep(Operation.RATE)), **changed})
