"""Transfers of `scripts/bench devmem` over a pair of namespaces: data arrives, and is not copied."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from scripts.benches.devmem.host import MESSAGE_BYTES, WARM
from scripts.benches.devmem.run import is_killed, transfer
from scripts.benches.devmem.shaped import MTU, PAYLOAD_RATE_BPS, shaped_veth_pair
from scripts.harness.errors import BenchError
from scripts.harness.two_hosts import TwoHosts, veth_pair

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def bare() -> Iterator[TwoHosts]:
    with veth_pair(mtu=MTU, offload=True, name=f"test-bare-{os.getpid()}") as made:
        yield made


def test_transfer__from_region_to_region_without_a_copy(bare: TwoHosts) -> None:
    assert is_killed("guarded-gather", bare), "the guard works"
    done = transfer("guarded", bare, seconds=0)
    assert done.received["messages"] == WARM
    assert done.bytes_copied == done.received["linear_bytes"] == 0


@pytest.mark.parametrize(("method", "copies"), [("gather", 1), ("classic", 2)])
def test_transfer__copies_are_counted(bare: TwoHosts, method: str, copies: int) -> None:
    done = transfer(method, bare, seconds=0.1)
    assert done.bytes_copied == copies * done.received["messages"] * MESSAGE_BYTES
    assert done.goodput_bps > 0
    assert done.cpu_s_per_gb > 0


def test_transfer__failure_bad_flow(bare: TwoHosts) -> None:
    with pytest.raises(BenchError, match="nonsense: no such method"):
        transfer("nonsense", bare, seconds=0)


def test_shaped_wire__limits_the_rate() -> None:
    with shaped_veth_pair(name=f"test-shaped-{os.getpid()}") as made:
        done = transfer("srd", made, seconds=0.3)
    assert done.goodput_bps < PAYLOAD_RATE_BPS
