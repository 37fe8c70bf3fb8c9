"""Rate: small messages per second with the batch interface (`Peer.post_sends`, `Endpoint.completions`).

`srd perf rate` of 64 bytes and 4 KiB, to 1 and to 100 peers, from one endpoint in one process to one in another, over a
veth pair with segmentation offload, MTU 9000, in plain text. From the first posting to the last completion; before it
`CHECKED` messages of the same kind, each of which has to arrive once and unchanged. `messages_per_second_*`, and CPU
time of both ends per message.
"""

from __future__ import annotations

from typing import Final

from scripts.benches.outcome import Round, Wanted
from scripts.harness import perf
from scripts.harness.drops import no_drops
from scripts.harness.two_hosts import TwoHosts, veth_pair

WANTED: Final = (Wanted("messages_per_second_64b", ">=", 150_000, over="median"),)
NEEDS: Final = ()
SECONDS: Final = 2.0
CHECKED: Final = 100_000
KINDS: Final = (("64b", 64, 1), ("64b_100_peers", 64, 100), ("4kib", 4096, 1), ("4kib_100_peers", 4096, 100))


def measure(number: int, seconds: float) -> Round:
    figures: dict[str, float] = {}
    with veth_pair(mtu=9000, offload=True) as two:
        for name, message_bytes, peers in KINDS:
            with no_drops(two.namespaces, during=name):
                rate, cpu_us = _rate(two, message_bytes=message_bytes, peers=peers, seconds=seconds)
            figures |= {f"messages_per_second_{name}": rate, f"cpu_per_message_{name}_us": cpu_us}
    return Round(number, figures)


def _rate(two: TwoHosts, *, message_bytes: int, peers: int, seconds: float) -> tuple[float, float]:
    """Return messages per second, and CPU time of both processes per message in microseconds."""
    options = ("-s", str(message_bytes), "-P", str(peers), "--plain")
    perf.rows(two, "rate", "--iters", str(CHECKED), "--verify", *options, bound_s=60.0)
    (row,) = perf.rows(two, "rate", "-t", f"{seconds:g}", *options, bound_s=10 * seconds)
    return 1e6 * row["million_messages_per_s"], (row["cpu_s"] + row["remote_cpu_s"]) / row["iterations"] * 1e6
