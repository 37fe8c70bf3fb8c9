"""Peers: 1 to 10,000 peers on one endpoint, which share its sockets: memory per peer, and CPU time per packet.

Over a veth pair with segmentation offload, MTU 9000 (veth/worker/peers.py). `bytes_per_peer`: growth of Python's
allocations per peer, after 10,000 peers were opened and each received a message of 4 KiB. `cost_*_us`: the sender's CPU
time per packet (user, system; with ACKs and timers), for 20,000 packets to all peers in turn, one in flight at a time,
so that only the number of peers differs. `cost_ratio_10000`: 10,000 peers over 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scripts.benches.cases.clean import START_S, WORKER
from scripts.benches.outcome import Round, Wanted
from scripts.harness.client_server import Event, Pair, python, run_both
from scripts.harness.drops import Drops
from scripts.harness.errors import BenchError
from scripts.harness.veth_pair import veth_pair

WANTED: Final = (
    Wanted("bytes_per_peer", "<=", 8192, over="median"),
    Wanted("cost_ratio_10000", "<=", 1.25, over="median"),
)
NEEDS: Final = ()
SECONDS: Final = 0.0
COUNTS: Final = (1, 100, 1000, 10_000)
BOUND_S: Final = 120.0
"""Timeout of a run: handshakes are slow while memory allocations are traced."""


def rounds(count: int, _seconds: float) -> Iterator[Round]:
    """Make `count` rounds of all numbers of peers."""
    with veth_pair(mtu=9000, offload=True) as two:
        for number in range(count):
            before = Drops.read(two.namespaces)
            figures = {"bytes_per_peer": bytes_per_peer(two, COUNTS[-1])}
            for peers in COUNTS:
                figures[f"cost_{peers}_us"] = _measure(two, peers)["cost_us"]
            Drops.read(two.namespaces).require_none_since(before, during="peers")
            figures["cost_ratio_10000"] = figures["cost_10000_us"] / figures["cost_1_us"]
            yield Round(number + 1, figures)


def bytes_per_peer(pair: Pair, peers: int) -> float:
    """Return the growth of Python's allocations per peer, with so many peers."""
    return float(_measure(pair, peers, "--trace-memory")["bytes_per_peer"])


def _measure(pair: Pair, peers: int, *options: str) -> Event:
    received, measured = run_both(
        pair,
        server=python(WORKER, "peers-receive", pair.receiver),
        client=lambda host, port: python(WORKER, "peers-send", host, str(port), "--peers", str(peers), *options),
        bound_s=START_S + BOUND_S,
    )
    if not received["intact"]:
        raise BenchError("the receiver found other bytes than were sent")
    if dropped := received["dropped"] + measured["dropped"]:
        raise BenchError(f"the hosts dropped {dropped} datagrams (full socket buffers, or no memory): void")
    return measured
