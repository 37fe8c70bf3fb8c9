"""A sweep's report: perftest's tables, or a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from netns.base.addresses import host_port_text
from srd.perf.control import Fields
from srd.perf.figures import BANDWIDTH_HEAD, LATENCY_HEAD
from srd.perf.iperf_json import opening
from srd.perf.stream import Address
from srd.perf.sweep.client import SizeRow
from srd.perf.sweep.plan import Operation, Sweep, encode

RULE: Final = "-" * 150
_TITLES: Final = {
    Operation.LATENCY: "Send latency: half of each round trip",
    Operation.RATE: "Send bandwidth and message rate",
    Operation.WRITE: "RDMA write bandwidth",
    Operation.READ: "RDMA read bandwidth",
}


def heading(sweep: Sweep, target: Address) -> str:
    """Return the lines before the first row."""
    what = f"{sweep.protocol} ({sweep.congestion})" if sweep.congestion else f"{sweep.protocol}"
    peers = f", {sweep.peers} peers" if sweep.peers > 1 else ""
    compared = ", payload compared" if sweep.verify else ""
    head = LATENCY_HEAD if sweep.operation is Operation.LATENCY else BANDWIDTH_HEAD
    title = f"{_TITLES[sweep.operation]}, {what} to {host_port_text(*target)}{peers}{compared}"
    return "\n".join([RULE, f"                    {title}", RULE, head, ""])


def document(sweep: Sweep, rows: Sequence[SizeRow], *, target: Address, cookie: str, at: float) -> Fields:
    """Return the report. Times of a latency are those of one way, microseconds; MB are 2^20 bytes."""
    entries = []
    for row in rows:
        entry = asdict(row)
        entries.append({**entry.pop("figures"), **entry})
    return {"start": {**opening(target, cookie=cookie, at=at), "test": encode(sweep)}, "rows": entries}
