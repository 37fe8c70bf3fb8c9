"""iperf3 between two hosts: TCP, TCP the other way, both ways at once, and UDP.

Checked: each direction carries data, and all that a test over TCP has sent has been read at the other end, but for what
its sockets still held when the time was over.
"""

from __future__ import annotations

import json
from typing import Any, Final

from examples.tunnel.hosts import Figures, Pair, main, require

PORT: Final = 5201
SECONDS: Final = 5.0
DATAGRAM_BYTES: Final = "1200"
"""Fits into any path."""
TRIES: Final = 3
TESTS: Final = {
    "TCP": (),
    "TCP -R": ("--reverse",),
    "TCP --bidir": ("--bidir",),
    "UDP": ("--udp", "--bitrate", "50M", "--length", DATAGRAM_BYTES),
    "UDP -R": ("--udp", "--bitrate", "50M", "--length", DATAGRAM_BYTES, "--reverse"),
}
SOCKETS_BYTES: Final = 64 << 20
"""More than the buffers of both ends hold."""


def run(pair: Pair, *, seconds: float = SECONDS) -> list[Figures]:
    """Run the tests one after the other; return a row for each."""
    return [_test(pair, name=name, seconds=seconds) for name in TESTS]


def _test(pair: Pair, *, name: str, seconds: float) -> Figures:
    """Run one test with a server of its own. One over UDP begins with a datagram that may be lost: so up to 3 times."""
    listen = ("iperf3", "--server", "--bind", pair.address, "--port", str(PORT))
    send = ("iperf3", "--client", pair.address, "--port", str(PORT), "--time", str(max(1, round(seconds))), "--json")
    for _ in range(TRIES):
        with pair.server.serving(*listen, port=PORT):
            report = json.loads(pair.client.run(*send, *TESTS[name]))
        if "error" not in report:
            break
    require("error" not in report, f"iperf3, {name}: {report.get('error')}")
    return _udp(name, report["end"]) if name.startswith("UDP") else _tcp(name, report["end"])


def _tcp(name: str, end: dict[str, Any]) -> Figures:
    back = "_bidir_reverse"
    sums = {"": "mbps", back: "mbps_back"} if f"sum_sent{back}" in end else {"": "mbps"}
    for suffix in sums:
        sent_bytes, received_bytes = end[f"sum_sent{suffix}"]["bytes"], end[f"sum_received{suffix}"]["bytes"]
        require(received_bytes > 0, f"iperf3, {name}: nothing arrived")
        missing = sent_bytes - received_bytes
        require(missing <= SOCKETS_BYTES, f"iperf3, {name}: {received_bytes} of {sent_bytes} bytes arrived")
    rates = {column: end[f"sum_received{suffix}"]["bits_per_second"] / 1e6 for suffix, column in sums.items()}
    return {"test": name, "mbps": rates["mbps"], "mbps_back": rates.get("mbps_back", 0.0), "lost_percent": 0.0}


def _udp(name: str, end: dict[str, Any]) -> Figures:
    received = end["sum"]
    lost_percent = float(received["lost_percent"])
    require(received["packets"] > 0 and lost_percent < 100, f"iperf3, {name}: nothing arrived")
    mbps = received["bits_per_second"] / 1e6 * (1 - lost_percent / 100)
    return {"test": name, "mbps": mbps, "mbps_back": 0.0, "lost_percent": lost_percent}


if __name__ == "__main__":
    main(run, summary=__doc__ or "")
