"""scripts.benches.cases.path: a run over loopback; ratios from figures by hand; a wrong reply."""

from __future__ import annotations

import pytest

from scripts.benches.cases import path
from scripts.benches.veth.worker.path import REQUESTS, measure
from scripts.harness.errors import BenchError


def test_rounds__have_figures_of_both() -> None:
    found = list(path.rounds(2, 0.02))
    assert [each.seed for each in found] == [1, 2]
    for each in found:
        assert each.ours["cpu_64b_us"] > 0 < each.ours["cpu_64b_secure_us"]
        assert each.ours["p50_64b_us"] > 0 < each.baselines["streams"]["p50_64b_us"]


def test_ours__over_streams() -> None:
    turn = {
        "plain": {"cpu_64b_us": 40.0, "p50_64b_us": 60.0},
        "secure": {"cpu_64b_us": 80.0, "p50_64b_us": 90.0},
        "streams": {"cpu_64b_us": 4.0, "p50_64b_us": 30.0},
    }
    assert path.ours(turn) == {
        "cpu_64b_us": 40.0,
        "p50_64b_us": 60.0,
        "cpu_ratio_64b": 10.0,
        "cpu_64b_secure_us": 80.0,
        "p50_64b_secure_us": 90.0,
        "cpu_ratio_64b_secure": 20.0,
    }


async def test_measure__a_reply_to_an_earlier_request_is_wrong() -> None:
    late = [REQUESTS[0]]

    async def exchange(request: bytes) -> bytes:
        late.append(request)
        return late[len(late) - 2]

    with pytest.raises(BenchError, match="the reply to request 1 has other bytes"):
        await measure(exchange, seconds=60)
