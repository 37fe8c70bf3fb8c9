"""Peers: 1 to 10,000 peers on one endpoint, which share its sockets: memory per peer, and CPU time per packet.

Over a veth pair with segmentation offload, MTU 9000 (veth/worker/peers.py). `bytes_per_peer`: growth of Python's
allocations per peer, after 10,000 peers were opened and each received a message of 4 KiB. `cost_*_us`: the sender's CPU
time per packet (user, system; with ACKs and timers), for 20,000 packets to all peers in turn, one in flight at a time,
so that only the number of peers differs. `cost_ratio_10000`: 10,000 peers over 1.
"""

from __future__ import annotations

from typing import Final

from scripts.benches.outcome import Round, Wanted
from scripts.harness.client_server import Event, Pair, run_both
from scripts.harness.drops import no_drops
from scripts.harness.errors import BenchError
from scripts.harness.perf import START_S
from scripts.harness.two_hosts import veth_pair
from scripts.harness.worker import worker

WANTED: Final = (
    Wanted("bytes_per_peer", "<=", 6144, over="median"),
    Wanted("cost_ratio_10000", "<=", 1.25, over="median"),
)
NEEDS: Final = ()
SECONDS: Final = 0.0
COUNTS: Final = (1, 100, 1000, 10_000)
WORKER: Final = "scripts.benches.veth.worker.peers"
BOUND_S: Final = 120.0
"""Timeout of a run: handshakes are slow while memory allocations are traced."""


def measure(number: int, _seconds: float) -> Round:
    with veth_pair(mtu=9000, offload=True) as two, no_drops(two.namespaces, during="peers"):
        figures = {"bytes_per_peer": bytes_per_peer(two, COUNTS[-1])}
        for peers in COUNTS:
            figures[f"cost_{peers}_us"] = _measure(two, peers)["cost_us"]
    figures["cost_ratio_10000"] = figures["cost_10000_us"] / figures["cost_1_us"]
    return Round(number, figures)


def bytes_per_peer(pair: Pair, peers: int) -> float:
    return float(_measure(pair, peers, trace_memory=True)["bytes_per_peer"])


def _measure(pair: Pair, peers: int, *, trace_memory: bool = False) -> Event:
    received, measured = run_both(
        pair,
        server=worker(WORKER, "receive", host=pair.receiver),
        client=lambda host, port: worker(WORKER, "send", host=host, port=port, peers=peers, trace_memory=trace_memory),
        bound_s=START_S + BOUND_S,
    )
    if not received["intact"]:
        raise BenchError("the receiver found other bytes than were sent")
    return measured
