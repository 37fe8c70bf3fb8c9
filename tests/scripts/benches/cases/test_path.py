"""scripts.benches.cases.path: a run over loopback; ratios from figures by hand; a wrong reply."""

from __future__ import annotations

import pytest

from scripts.benches.cases import path
from scripts.benches.veth.worker.path import WORKLOADS, measure
from scripts.harness.errors import BenchError


@pytest.mark.parametrize("workload", WORKLOADS)
def test_messages__have_figures_of_both(workload: str) -> None:
    found = list(path.messages(2, 0.02, workloads=[workload]))
    assert [each.seed for each in found] == [1, 2]
    for each in found:
        assert each.ours[f"cpu_{workload}_us"] > 0 < each.ours[f"cpu_{workload}_secure_us"]
        assert each.ours[f"answer_cpu_{workload}_us"] > 0
        assert each.ours[f"p50_{workload}_us"] > 0 < each.baselines["streams"][f"p50_{workload}_us"]


def test_ours__over_streams() -> None:
    turn = {
        "64b": {
            "plain": {"cpu": 40.0, "answer_cpu": 41.0, "p50": 60.0},
            "secure": {"cpu": 80.0, "answer_cpu": 81.0, "p50": 90.0},
            "streams": {"cpu": 4.0, "answer_cpu": 5.0, "p50": 30.0},
        }
    }
    assert path.ours(turn) == {
        "cpu_64b_us": 40.0,
        "answer_cpu_64b_us": 41.0,
        "p50_64b_us": 60.0,
        "cpu_ratio_64b": 10.0,
        "p50_ratio_64b": 2.0,
        "cpu_64b_secure_us": 80.0,
        "answer_cpu_64b_secure_us": 81.0,
        "p50_64b_secure_us": 90.0,
        "cpu_ratio_64b_secure": 20.0,
        "p50_ratio_64b_secure": 3.0,
    }


async def test_measure__a_reply_to_an_earlier_request_is_wrong() -> None:
    late = [WORKLOADS["64b"].requests()[0]]

    async def exchange(request: bytes) -> bytes:
        late.append(request)
        return late[len(late) - 2]

    with pytest.raises(BenchError, match="the reply to request 1 has other bytes"):
        await measure(exchange, name="64b", seconds=60)
