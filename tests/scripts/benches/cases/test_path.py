"""scripts.benches.cases.path: a run over loopback; a wrong reply."""

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
        theirs = each.baselines["streams"]
        for suffix in ("", "_secure"):
            ratio = each.ours[f"cpu_{workload}{suffix}_us"] / theirs[f"cpu_{workload}_us"]
            assert each.ours[f"cpu_ratio_{workload}{suffix}"] == pytest.approx(ratio)
        assert each.ours[f"p50_{workload}_us"] > 0 < each.baselines["streams"][f"p50_{workload}_us"]


async def test_measure__a_reply_to_an_earlier_request_is_wrong() -> None:
    late = [WORKLOADS["64b"].requests()[0]]

    async def exchange(request: bytes) -> bytes:
        late.append(request)
        return late[len(late) - 2]

    with pytest.raises(BenchError, match="the reply to request 1 has other bytes"):
        await measure(exchange, name="64b", seconds=60)
