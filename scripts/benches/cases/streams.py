"""Streams: ordered bytes by streams of a peer, by its messages, and by asyncio's streams over kernel TCP.

One process at each end of a veth pair with segmentation offload, MTU 9000, in plain text, all on uvloop. 1 and 16
streams; as many tasks that send messages of the length of a stream's; as many TCP connections. Bytes are copied to and
from Python's `bytes` by all three (veth/worker/streams.py). `stream_over_message_ratio`, `stream_over_tcp_ratio`:
goodput of one stream over that of the others with one task; `*_16`: of 16.
"""

from __future__ import annotations

from typing import Final

from scripts.benches.outcome import Round, Wanted, in_turn, over
from scripts.benches.veth.iperf import IperfFlow
from scripts.benches.veth.worker.streams import KINDS, MESSAGE, STREAM, TCP
from scripts.harness.client_server import run_both
from scripts.harness.drops import no_drops
from scripts.harness.errors import BenchError
from scripts.harness.perf import START_S
from scripts.harness.two_hosts import TwoHosts, veth_pair
from scripts.harness.worker import worker

WANTED: Final = (
    Wanted("stream_over_message_ratio", ">=", 0.7, over="median"),
    Wanted("stream_over_message_ratio_16", ">=", 0.7, over="median"),
)
NEEDS: Final = ()
SECONDS: Final = 1.0
WORKER: Final = "scripts.benches.veth.worker.streams"
COUNTS: Final = {"": 1, "_16": 16}


def measure(number: int, seconds: float) -> Round:
    found: dict[str, dict[str, float]] = {kind: {} for kind in KINDS}
    with veth_pair(mtu=9000, offload=True) as two:
        for suffix, streams in COUNTS.items():
            for kind in in_turn(KINDS, number=number):
                with no_drops(two.namespaces, during=kind):
                    found[kind] |= _flow(two, kind=kind, count=streams, seconds=seconds).named(f"{{}}{suffix}")
    ours = found.pop(STREAM)
    for name in (MESSAGE, TCP):
        ratios = {f"stream_over_{name}_ratio{suffix}": f"gbps{suffix}" for suffix in COUNTS}
        ours |= over(ours, found[name], ratios)
    return Round(number, ours, found)


def _flow(two: TwoHosts, *, kind: str, count: int, seconds: float) -> IperfFlow:
    received, sent = run_both(
        two,
        server=worker(WORKER, "receive", host=two.receiver, kind=kind, count=count),
        client=lambda host, port: worker(WORKER, "send", host=host, port=port, kind=kind, count=count, seconds=seconds),
        bound_s=START_S + 10 * seconds,
    )
    if not received["intact"]:
        raise BenchError(f"{kind}: the receiver found other bytes than were sent")
    gigabytes = sent["bytes"] / 1e9
    return IperfFlow(8 * gigabytes / sent["seconds"], (received["cpu_s"] + sent["cpu_s"]) / gigabytes)
