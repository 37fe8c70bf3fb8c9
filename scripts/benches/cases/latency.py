"""Latency: round trips of messages of 64 B to 4 MiB, compared with kernel TCP with TCP_NODELAY.

A veth pair with segmentation offload, MTU 9000, one round trip at a time (`srd perf latency`), in plain text. Each
end has a core of its own, as two hosts have: on a shared core the scheduler hands it from one end to the other, which
takes a quarter of the time of a wake-up on another core, and an end that polls gets in the way of the other.
Idle: SRD with its defaults (adaptive polling), SRD with `busy_poll` at both ends (`busy_poll_*`), and TCP with blocking
sockets. Loaded: 64 B beside an unlimited bulk flow; SRD's is a second peer of the same two endpoints, TCP's an iperf3.
All percentiles are by the nearest rank, as `srd perf` has them.

`p50_SIZE_ratio`, `p50_busy_poll_ratio`: SRD over TCP; `p50_ratio` is that of 64 B. `p50_loaded_ratio`,
`p999_loaded_ratio`: SRD beside its bulk flow over TCP beside TCP's. `loaded_bulk_ratio`: SRD's bulk flow beside the
ping-pong over the same flow before the ping-pong begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from scripts.benches.outcome import Round, Wanted, over
from scripts.benches.veth import iperf
from scripts.harness import perf
from scripts.harness.client_server import Event, Pair, run_both
from scripts.harness.drops import no_drops
from scripts.harness.needs import Need, lacks
from scripts.harness.two_hosts import TwoHosts, own_cores, veth_pair
from scripts.harness.worker import worker
from srd.perf.tcp_socket import CUBIC

WANTED: Final = (
    Wanted("p50_ratio", "<=", 3, over="median"),
    Wanted("p50_busy_poll_ratio", "<=", 1.5, over="median"),
    Wanted("p50_64k_ratio", "<=", 1.5, over="median"),
    Wanted("p50_1m_ratio", "<=", 1.3, over="median"),
    Wanted("p50_4m_ratio", "<=", 1.2, over="median"),
    Wanted("p50_loaded_ratio", "<=", 10, over="median"),
    Wanted("p999_loaded_ratio", "<=", 8, over="median"),
    Wanted("loaded_bulk_ratio", ">=", 0.85, over="median"),
)
NEEDS: Final = (Need("iperf3", ("p50_loaded_ratio", "p999_loaded_ratio")),)
SECONDS: Final = 5.0
SMALL_SIZES: Final = (64,)
SIZES: Final = (64, 4 << 10, 64 << 10, 1 << 20, 4 << 20)
OVER_TCP: Final = {
    "p50_ratio": "p50_64b_us",
    "p50_64k_ratio": "p50_64kib_us",
    "p50_1m_ratio": "p50_1mib_us",
    "p50_4m_ratio": "p50_4mib_us",
    "p50_loaded_ratio": "loaded_p50_64b_us",
    "p999_loaded_ratio": "loaded_p999_64b_us",
}
PERCENTILES: Final = {"p50": "typical_us", "p99": "p99_us", "p999": "p999_us"}
"""Of a round trip, and the name of half of it in the rows of `srd perf`."""
SPINNING: Final = ("--plain", "--busy-poll")
TCP: Final = ("--tcp", "-C", CUBIC, "--plain")
WORKER: Final = "scripts.benches.veth.worker.pingpong"
MARGIN_S: Final = 3.0
"""Additional time of iperf3, so that it begins before the measurement and ends after it."""


def measure(number: int, seconds: float) -> Round:
    with veth_pair(mtu=9000, offload=True) as pair, no_drops(pair.namespaces, during="latency"):
        two = pair.on(own_cores())
        ours = round_trips(two, "--plain", sizes=SIZES, seconds=seconds)
        share_s = seconds / len(SIZES)
        ours |= round_trips(two, *SPINNING, sizes=SMALL_SIZES, seconds=share_s, prefix="busy_poll_")
        tcp = round_trips(two, *TCP, sizes=SIZES, seconds=seconds)
        loaded = ours_loaded(two, seconds=seconds)
        ours |= figures(loaded, prefix="loaded_")
        ours |= {"loaded_bulk_gbps": loaded["bulk_gbps"], "alone_bulk_gbps": loaded["bulk_alone_gbps"]}
        tcp |= {} if lacks("iperf3") else _loaded_tcp(two, seconds=seconds)
    return Round(number, ours | ratios(ours, tcp), {"tcp": tcp})


def ratios(ours: dict[str, float], tcp: dict[str, float]) -> dict[str, float]:
    return over(ours, tcp, OVER_TCP) | {
        "p50_busy_poll_ratio": ours["busy_poll_p50_64b_us"] / tcp["p50_64b_us"],
        "loaded_bulk_ratio": ours["loaded_bulk_gbps"] / ours["alone_bulk_gbps"],
    }


def name_of(size: int) -> str:
    """Return a size in bytes as the figures' names have it: 64b, 4kib, 1mib."""
    for shift, unit in ((20, "mib"), (10, "kib")):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return f"{size}b"


def figures(row: Mapping[str, Any], *, prefix: str = "") -> dict[str, float]:
    """Return the percentiles of round trips in a row of `srd perf latency`, named for instance `p50_64b_us`."""
    size = name_of(row["size_bytes"])
    return {f"{prefix}{name}_{size}_us": 2 * row[of_one_way] for name, of_one_way in PERCENTILES.items()}


def round_trips(two: Pair, *options: str, sizes: Sequence[int], seconds: float, prefix: str = "") -> dict[str, float]:
    """Run `srd perf latency`, over SRD or, with `--tcp`, over kernel TCP; return the percentiles of round trips."""
    words = [word for size in sizes for word in ("-s", str(size))]
    share_s = f"{seconds / len(sizes):g}"
    found = perf.rows(two, "latency", "-t", share_s, "--verify", *words, *options, bound_s=2 * seconds)
    return {name: value for row in found for name, value in figures(row, prefix=prefix).items()}


def ours_loaded(two: Pair, *, seconds: float) -> Event:
    """Run ping-pong beside a bulk flow of the same endpoints; return the measurements. Raises BenchError."""
    _, measured = run_both(
        two,
        server=worker(WORKER, "receive", host=two.receiver),
        client=lambda host, port: worker(WORKER, "send", host=host, port=port, seconds=seconds),
        bound_s=perf.START_S + 2 * seconds,
    )
    return measured


def _loaded_tcp(two: TwoHosts, *, seconds: float) -> dict[str, float]:
    """Measure beside iperf3, which begins before and ends after."""
    with iperf.running(two, algorithm=CUBIC, seconds=seconds + MARGIN_S) as ended:
        found = round_trips(two, *TCP, sizes=SMALL_SIZES, seconds=seconds, prefix="loaded_")
        return found | {"loaded_bulk_gbps": ended().gbps}
