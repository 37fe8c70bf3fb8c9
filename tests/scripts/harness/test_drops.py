"""scripts.harness.drops: what the kernel's tables say, and a run that is void."""

from __future__ import annotations

import pytest

from scripts.harness.drops import Drops, no_drops, receive_buffer_errors, softnet_drops
from scripts.harness.errors import BenchError

SOFTNET = "0000000a 00000002 00000000 0\n0000000b 00000010 00000000 0\n"
SNMP = "Ip: A B\nIp: 1 2\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 9 0 7 9 5\n"


def test_tables() -> None:
    assert softnet_drops(SOFTNET) == 18
    assert receive_buffer_errors(SNMP) == 5


def test_no_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    totals = iter([Drops(3, 4), Drops(3, 4), Drops(3, 4), Drops(4, 6)])
    monkeypatch.setattr(Drops, "read", lambda _: next(totals))
    with no_drops((), during="ours"):
        pass
    with (
        pytest.raises(BenchError, match=r"ours: this host dropped 1 packets .* and 2 at sockets .* void"),
        no_drops((), during="ours"),
    ):
        pass
