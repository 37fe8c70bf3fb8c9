"""Latency: round trips of messages of 64 B to 1 MiB, compared with kernel TCP with TCP_NODELAY.

A veth pair with segmentation offload, MTU 9000, one round trip at a time (veth/worker/pingpong.py), in plain text.
Idle: SRD with its defaults (adaptive polling), SRD with `busy_poll` at both ends (`busy_poll_*`), and TCP with blocking
sockets. Loaded: 64 B beside an unlimited bulk flow; SRD's is a second peer of the same two endpoints, TCP's an iperf3.
`p50_ratio`, `p50_busy_poll_ratio`, `p999_loaded_ratio`: SRD over TCP, 64 B.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scripts.benches.cases.clean import START_S, WORKER
from scripts.benches.outcome import Round, Wanted
from scripts.benches.veth import iperf
from scripts.compare.tcp_socket import CUBIC
from scripts.harness.client_server import Event, Pair, python, run_both
from scripts.harness.drops import Drops
from scripts.harness.errors import BenchError
from scripts.harness.veth_pair import VethPair, veth_pair

WANTED: Final = (
    Wanted("p50_ratio", "<=", 3, over="median"),
    Wanted("p50_busy_poll_ratio", "<=", 1.5, over="median"),
    Wanted("p999_loaded_ratio", "<=", 0.3, over="median"),
)
SECONDS: Final = 4.0
MARGIN_S: Final = 3.0
"""Additional time of iperf3, so that it begins before the measurement and ends after it."""


def rounds(count: int, seconds: float) -> Iterator[Round]:
    """Make `count` rounds."""
    with veth_pair(mtu=9000, offload=True) as two:
        for number in range(count):
            before = Drops.read(two.namespaces)
            ours = figures(ours_latency(two, "--plain", seconds=seconds))
            ours |= figures(ours_latency(two, "--plain", "--busy-poll", seconds=seconds), prefix="busy_poll_")
            tcp = figures(tcp_latency(two, seconds=seconds))
            loaded = ours_latency(two, "--plain", seconds=seconds, loaded=True)
            ours |= figures(loaded, prefix="loaded_") | {"loaded_bulk_gbps": loaded["bulk_gbps"]}
            tcp |= _loaded_tcp(two, seconds=seconds)
            Drops.read(two.namespaces).require_none_since(before, during="latency")
            yield Round(number + 1, ours | ratios(ours, tcp), {"tcp": tcp})


def ratios(ours: dict[str, float], tcp: dict[str, float]) -> dict[str, float]:
    """Return SRD's figures over TCP's."""
    return {
        "p50_ratio": ours["p50_64b_us"] / tcp["p50_64b_us"],
        "p50_busy_poll_ratio": ours["busy_poll_p50_64b_us"] / tcp["p50_64b_us"],
        "p999_loaded_ratio": ours["loaded_p999_64b_us"] / tcp["loaded_p999_64b_us"],
    }


def figures(measured: Event, *, prefix: str = "") -> dict[str, float]:
    """Return the percentiles of every size, by figure."""
    return {
        f"{prefix}{name.removesuffix('_us')}_{size}_us": value
        for size, percentiles in measured["figures"].items()
        for name, value in percentiles.items()
    }


def ours_latency(two: Pair, *options: str, seconds: float, loaded: bool = False) -> Event:
    """Run ping-pong over SRD; return its measurements. Raises BenchError for a dropped datagram."""
    more = ["--loaded"] if loaded else []
    received, measured = run_both(
        two,
        server=python(WORKER, "ping-receive", two.receiver, *options),
        client=lambda host, port: python(
            WORKER, "ping-send", host, str(port), "--seconds", str(seconds), *options, *more
        ),
        bound_s=START_S + seconds,
    )
    if dropped := received["dropped"] + measured["dropped"]:
        raise BenchError(f"the hosts dropped {dropped} datagrams (full socket buffers, or no memory): void")
    return measured


def tcp_latency(two: Pair, *options: str, seconds: float) -> Event:
    """Run ping-pong over kernel TCP; return its measurements."""
    _, measured = run_both(
        two,
        server=python(WORKER, "tcp-ping-receive", two.receiver),
        client=lambda host, port: python(WORKER, "tcp-ping-send", host, str(port), "--seconds", str(seconds), *options),
        bound_s=START_S + seconds,
    )
    return measured


def _loaded_tcp(two: VethPair, *, seconds: float) -> dict[str, float]:
    """Measure beside iperf3, which begins before and ends after."""
    with iperf.running(two, algorithm=CUBIC, seconds=seconds + MARGIN_S) as ended:
        measured = tcp_latency(two, "--loaded", seconds=seconds)
        return figures(measured, prefix="loaded_") | {"loaded_bulk_gbps": ended().gbps}
