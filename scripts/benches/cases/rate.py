"""Rate: small messages per second with the batch interface (`Peer.post_sends`, `Endpoint.completions`).

64 bytes and 4 KiB, to 1 and to 100 peers, from one endpoint in one process to one in another, over a veth pair with
segmentation offload, MTU 9000. From the first posting to the last completion, in turns; the data is checked between
them (veth/worker/rate.py). `messages_per_second_*`, and CPU time of both ends per message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scripts.benches.cases.clean import START_S, WORKER
from scripts.benches.outcome import Round, Wanted
from scripts.harness.client_server import python, run_both
from scripts.harness.drops import Drops
from scripts.harness.errors import BenchError
from scripts.harness.veth_pair import VethPair, veth_pair

WANTED: Final = (Wanted("messages_per_second_64b", ">=", 150_000, over="median"),)
NEEDS: Final = ()
SECONDS: Final = 2.0
KINDS: Final = (("64b", 64, 1), ("64b_100_peers", 64, 100), ("4kib", 4096, 1), ("4kib_100_peers", 4096, 100))


def rounds(count: int, seconds: float) -> Iterator[Round]:
    """Make `count` rounds of all sizes."""
    with veth_pair(mtu=9000, offload=True) as two:
        for number in range(count):
            figures: dict[str, float] = {}
            for name, message_bytes, peers in KINDS:
                before = Drops.read(two.namespaces)
                rate, cpu_us = _rate(two, message_bytes=message_bytes, peers=peers, seconds=seconds)
                Drops.read(two.namespaces).require_none_since(before, during=name)
                figures |= {f"messages_per_second_{name}": rate, f"cpu_per_message_{name}_us": cpu_us}
            yield Round(number + 1, figures)


def _rate(two: VethPair, *, message_bytes: int, peers: int, seconds: float) -> tuple[float, float]:
    """Return messages per second, and CPU time of both processes per message in microseconds."""
    options = ["--message-bytes", str(message_bytes), "--peers", str(peers)]
    received, sent = run_both(
        two,
        server=python(WORKER, "rate-receive", two.receiver, *options),
        client=lambda host, port: python(WORKER, "rate-send", host, str(port), *options, "--seconds", str(seconds)),
        bound_s=START_S + 10 * seconds,
    )
    if not received["intact"]:
        raise BenchError("the receiver found other messages than were sent")
    if dropped := received["dropped"] + sent["dropped"]:
        raise BenchError(f"the hosts dropped {dropped} datagrams (full socket buffers, or no memory): void")
    return sent["messages"] / sent["seconds"], (sent["cpu_s"] + received["cpu_s"]) / sent["messages"] * 1e6
