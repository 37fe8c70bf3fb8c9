"""A veth pair shaped to 1 Gbit/s by a token bucket, with receivers that collect packets as network cards do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from netns.programs import output_of
from scripts.harness.two_hosts import RECEIVER, SENDER, TwoHosts, veth_pair

MTU: Final = 9000
RATE_BPS: Final = 1_000_000_000
PAYLOAD_RATE_BPS: Final = RATE_BPS * (MTU - 28) / (MTU + 14)
"""UDP payload that the shaped link carries: all but Ethernet's, IPv4's and UDP's headers, for full packets."""
_BURST_BYTES: Final = 2 * (MTU + 14)
"""Size of the bucket: two packets, so that a segment train is segmented before it queues."""
_LIMIT_BYTES: Final = RATE_BPS // 8 // 500
"""Size of the queue: 2 ms, as in a switch port."""
_MODERATION: Final = "echo 2 > napi_defer_hard_irqs; echo 200000 > gro_flush_timeout"
"""Lets the kernel collect packets for up to 200 us before it passes them on, as cards do (napi.rst, "gro")."""


@contextmanager
def shaped_veth_pair(*, name: str) -> Iterator[TwoHosts]:
    with veth_pair(mtu=MTU, offload=True, name=name) as two:
        for node, neighbour in ((SENDER, RECEIVER), (RECEIVER, SENDER)):
            bucket = ("rate", str(RATE_BPS), "burst", str(_BURST_BYTES), "limit", str(_LIMIT_BYTES))
            _run(two, node, "tc", "qdisc", "add", "dev", neighbour, "root", "tbf", *bucket)
            _run(two, node, "ethtool", "-K", neighbour, "gro", "on")
            _run(two, node, "sh", "-ec", f"cd /sys/class/net/{neighbour}; {_MODERATION}")
        yield two


def _run(two: TwoHosts, node: str, *arguments: str) -> None:
    output_of(two.command(node, arguments), called=" ".join(arguments))
