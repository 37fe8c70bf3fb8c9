"""redis-benchmark against redis-server: SET and GET of 64 bytes over 50 connections, with and without pipelining.

Checked: the server counted as many SETs and GETs as the benchmark was asked for, and a large value comes back as sent.
"""

from __future__ import annotations

import csv
import hashlib
from typing import Final

from examples.tunnel.hosts import Figures, Host, main, require

PORT: Final = 6379
REQUESTS: Final = 100_000
CONNECTIONS: Final = 50
VALUE_BYTES: Final = 64
PIPELINE: Final = 16
LARGE_BYTES: Final = 8_000_000


def run(
    server: Host, client: Host, address: str, *, requests: int = REQUESTS, large_bytes: int = LARGE_BYTES
) -> list[Figures]:
    """Run the benchmark, with a multiple of PIPELINE requests; return a row for each command."""
    options = ("--save", "", "--appendonly", "no", "--protected-mode", "no", "--daemonize", "no")
    with (
        server.directory() as directory,
        server.serving("redis-server", "--bind", address, "--port", str(PORT), "--dir", directory, *options, port=PORT),
    ):
        rows = [row for pipeline in (1, PIPELINE) for row in _benchmark(client, address, requests, pipeline=pipeline)]
        calls = _calls(client.run("redis-cli", "-h", address, "-p", str(PORT), "INFO", "commandstats"))
        for name in ("set", "get"):
            require(calls[name] == 2 * requests, f"redis: {calls[name]} of {2 * requests} {name.upper()}s were made")
        _large(client, address, large_bytes)
    return rows


def _benchmark(client: Host, address: str, requests: int, *, pipeline: int) -> list[Figures]:
    arguments = {"-n": requests, "-c": CONNECTIONS, "-d": VALUE_BYTES, "-P": pipeline, "-t": "set,get"}
    flags = [str(each) for pair in arguments.items() for each in pair]
    output = client.run("redis-benchmark", "-h", address, "-p", str(PORT), *flags, "--csv")
    lines = [line for line in output.splitlines() if line.startswith('"')]  # before them come warnings
    return [
        {
            "command": row["test"],
            "pipeline": pipeline,
            "requests_per_s": float(row["rps"]),
            "p50_ms": float(row["p50_latency_ms"]),
            "p99_ms": float(row["p99_latency_ms"]),
        }
        for row in csv.DictReader(lines)
    ]


def _calls(stats: str) -> dict[str, int]:
    """Return the number of calls of each command: `cmdstat_get:calls=100,usec=...`."""
    lines = (line.strip().split(":") for line in stats.splitlines() if line.startswith("cmdstat_"))
    return {name.removeprefix("cmdstat_"): int(rest.split(",")[0].split("=")[1]) for name, rest in lines}


def _large(client: Host, address: str, size_bytes: int) -> None:
    """Set and get one large value."""
    value = hashlib.shake_128(b"redis").hexdigest(size_bytes // 2)
    redis_cli = ("redis-cli", "-h", address, "-p", str(PORT))
    client.run(*redis_cli, "-x", "SET", "large", given=value)
    require(client.run(*redis_cli, "GET", "large").rstrip("\n") == value, "redis: another large value came back")


if __name__ == "__main__":
    main(run, summary=__doc__ or "")
