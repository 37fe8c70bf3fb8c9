"""redis-benchmark against redis-server: percentiles of GET's latency."""

from __future__ import annotations

import re
from typing import Final

from examples.tunnel.hosts import ExampleError, TunnelHost
from scripts.harness.errors import BenchError
from scripts.harness.two_hosts import RECEIVER, SENDER, TwoHosts

PORT: Final = 6379
CONNECTIONS: Final = 16
_LINE: Final = re.compile(r"([\d.]+)% <= ([\d.]+) milliseconds")
"""Of redis-benchmark's table `Cumulative distribution of latencies`, or `Latency by percentile`."""


def latencies(ends: TwoHosts, *, requests: int) -> dict[str, float]:
    """Return the median, the p99 and the p99.9 of GETs, a connection's one after the other. Raises BenchError."""
    server, client = (TunnelHost(tuple(ends.command(node, []))) for node in (RECEIVER, SENDER))
    options = ("--save", "", "--appendonly", "no", "--protected-mode", "no", "--daemonize", "no")
    command = ("redis-server", "--bind", ends.receiver, "--port", str(PORT), *options)
    numbers = {"-p": PORT, "-n": requests, "-c": CONNECTIONS, "-t": "get", "--precision": 3}
    flags = [str(each) for pair in numbers.items() for each in pair]
    try:
        with server.directory() as folder, server.serving(*command, "--dir", folder, port=PORT):
            return percentiles(client.run("redis-benchmark", "-h", ends.receiver, *flags))
    except ExampleError as error:
        raise BenchError(str(error)) from None


def percentiles(report: str) -> dict[str, float]:
    """Read redis-benchmark's report. Raises BenchError for one without percentiles."""
    table = [(float(percent), float(ms)) for percent, ms in _LINE.findall(report)]
    found = {}
    for name, wanted in (("p50", 50.0), ("p99", 99.0), ("p999", 99.9)):
        value = next((ms for percent, ms in table if percent >= wanted), None)
        if value is None:
            raise BenchError("redis-benchmark: no percentiles in its report")
        found[f"redis_{name}_ms"] = value
    return found
