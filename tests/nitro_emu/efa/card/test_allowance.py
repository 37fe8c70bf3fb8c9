"""A virtual function's allowance: no more than that a second, whatever its tenant posts; others are not slowed down."""

# ruff: noqa: SIM117 - the outer block is the card, the inner what is opened at it

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from nitro_emu.efa.verbs import AddressHandle, CompStatus, SendOp
from tests.nitro_emu.cards import GUARD, card, tenants
from tests.nitro_emu.pattern import pattern

pytestmark = pytest.mark.compiled  # cards as processes

RATE_BPS = 100_000_000
LENGTH = 4 << 20
BURST_S = 0.01
"""Of `srd.io.allowance.Allowance`."""
AT_ONCE_BYTES = 2 * (64 << 10)
"""A segment train, and what waits in the receiver's kernel: carried beyond the allowance."""


def test_bandwidth__bounds_what_a_tenant_sends_and_counts_what_waits(tmp_path: Path) -> None:
    limited = f"bandwidth: {RATE_BPS // 1_000_000}mbit"
    with card(tmp_path / "a", limits=limited) as first, card(tmp_path / "b") as second:
        with tenants((first, "efa_0"), (second, "efa_0")) as (left, right):
            source, target = left.memory(length=LENGTH), right.memory(length=LENGTH + 4096)
            data = pattern(3, length=LENGTH)
            left.array(source)[:LENGTH] = data
            ah = AddressHandle(left.pd, gid=right.gid)
            began_at = time.monotonic()
            left.rdma(
                SendOp.RDMA_WRITE, ah, to=right.qp.number, local=left.sge(LENGTH, memory=source), rkey=target.rkey,
                address=target.address + 2048,
            )  # fmt: skip
            assert left.completion().vendor_error == CompStatus.OK
            took_s = time.monotonic() - began_at
            # An upper bound of the rate, which no slow machine can break.
            assert took_s >= (LENGTH - AT_ONCE_BYTES) * 8 / RATE_BPS - BURST_S
            expected = np.full(LENGTH + 4096, GUARD, np.uint8)
            expected[2048 : 2048 + LENGTH] = data
            assert (right.array(target)[: LENGTH + 4096] == expected).all()
            counted = first.stats("efa_0")["allowance"]
            assert counted["bw_out_allowance_exceeded"] > 0
            assert second.stats("efa_0")["allowance"]["bw_in_allowance_exceeded"] == 0


def test_packets__bounds_what_a_tenant_receives_without_losing_any(tmp_path: Path) -> None:
    with card(tmp_path / "a", limits="mtu: 1500") as first:
        with card(tmp_path / "b", limits="mtu: 1500, packets_per_second: 10000") as second:
            with tenants((first, "efa_0"), (second, "efa_0")) as (left, right):
                source, target = left.memory(length=LENGTH), right.memory(length=LENGTH + 4096)
                data = pattern(4, length=LENGTH)
                left.array(source)[:LENGTH] = data
                ah = AddressHandle(left.pd, gid=right.gid)
                left.rdma(
                    SendOp.RDMA_WRITE, ah, to=right.qp.number, local=left.sge(LENGTH, memory=source), rkey=target.rkey,
                    address=target.address + 2048,
                )  # fmt: skip
                assert left.completion().vendor_error == CompStatus.OK
                expected = np.full(LENGTH + 4096, GUARD, np.uint8)
                expected[2048 : 2048 + LENGTH] = data
                assert (right.array(target)[: LENGTH + 4096] == expected).all()
                assert second.stats("efa_0")["allowance"]["pps_allowance_exceeded"] > 0
                assert first.stats("efa_0")["port"]["unresponsive_remote_events"] == 0
