"""Latency: round trips of messages of 64 B to 4 MiB, compared with kernel TCP with TCP_NODELAY.

A veth pair with segmentation offload, MTU 9000, one round trip at a time (veth/worker/pingpong.py), in plain text. Each
end has a core of its own, as two hosts have: on a shared core the scheduler hands it from one end to the other, which
takes a quarter of the time of a wake-up on another core, and an end that polls gets in the way of the other.
Idle: SRD with its defaults (adaptive polling), SRD with `busy_poll` at both ends (`busy_poll_*`), and TCP with blocking
sockets. Loaded: 64 B beside an unlimited bulk flow; SRD's is a second peer of the same two endpoints, TCP's an iperf3.

`p50_SIZE_ratio`, `p50_busy_poll_ratio`: SRD over TCP; `p50_ratio` is that of 64 B. `p50_loaded_ratio`,
`p999_loaded_ratio`: SRD beside its bulk flow over TCP beside TCP's. `loaded_bulk_ratio`: SRD's bulk flow beside the
ping-pong over the same flow before the ping-pong begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from scripts.benches.cases.clean import START_S, WORKER
from scripts.benches.outcome import Round, Wanted
from scripts.benches.veth import iperf
from scripts.harness.client_server import ANY_CORES, Cores, Event, Pair, own_cores, python, run_both
from scripts.harness.drops import Drops
from scripts.harness.errors import BenchError
from scripts.harness.needs import Need, lacks
from scripts.harness.veth_pair import VethPair, veth_pair
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
MARGIN_S: Final = 3.0
"""Additional time of iperf3, so that it begins before the measurement and ends after it."""


def rounds(count: int, seconds: float) -> Iterator[Round]:
    """Make `count` rounds."""
    cores = own_cores()
    with veth_pair(mtu=9000, offload=True) as two:
        for number in range(count):
            before = Drops.read(two.namespaces)
            ours = figures(ours_latency(two, "--plain", sizes=SIZES, seconds=seconds, cores=cores))
            spinning = ours_latency(
                two, "--plain", "--busy-poll", sizes=SMALL_SIZES, seconds=seconds / len(SIZES), cores=cores
            )
            ours |= figures(spinning, prefix="busy_poll_")
            tcp = figures(tcp_latency(two, sizes=SIZES, seconds=seconds, cores=cores))
            loaded = ours_latency(two, "--plain", sizes=SMALL_SIZES, seconds=seconds, loaded=True, cores=cores)
            ours |= figures(loaded, prefix="loaded_")
            ours |= {"loaded_bulk_gbps": loaded["bulk_gbps"], "alone_bulk_gbps": loaded["bulk_alone_gbps"]}
            tcp |= {} if lacks("iperf3") else _loaded_tcp(two, seconds=seconds, cores=cores)
            Drops.read(two.namespaces).require_none_since(before, during="latency")
            yield Round(number + 1, ours | ratios(ours, tcp), {"tcp": tcp})


def ratios(ours: dict[str, float], tcp: dict[str, float]) -> dict[str, float]:
    """Return SRD's figures over TCP's."""
    over_tcp = {
        "p50_ratio": "p50_64b_us",
        "p50_64k_ratio": "p50_64kib_us",
        "p50_1m_ratio": "p50_1mib_us",
        "p50_4m_ratio": "p50_4mib_us",
        "p50_loaded_ratio": "loaded_p50_64b_us",
        "p999_loaded_ratio": "loaded_p999_64b_us",
    }
    return {
        **{name: ours[figure] / tcp[figure] for name, figure in over_tcp.items() if figure in tcp},
        "p50_busy_poll_ratio": ours["busy_poll_p50_64b_us"] / tcp["p50_64b_us"],
        "loaded_bulk_ratio": ours["loaded_bulk_gbps"] / ours["alone_bulk_gbps"],
    }


def figures(measured: Event, *, prefix: str = "") -> dict[str, float]:
    """Return the percentiles of each size, named for instance `p50_64b_us`."""
    return {
        f"{prefix}{name.removesuffix('_us')}_{size}_us": value
        for size, percentiles in measured["figures"].items()
        for name, value in percentiles.items()
    }


def _sizes(sizes: Sequence[int]) -> list[str]:
    return [word for size in sizes for word in ("--bytes", str(size))]


def ours_latency(
    two: Pair,
    *options: str,
    sizes: Sequence[int],
    seconds: float,
    loaded: bool = False,
    cores: Cores = ANY_CORES,
) -> Event:
    """Run ping-pong over SRD; return its measurements. Raises BenchError for a dropped datagram."""
    more = ["--loaded"] if loaded else []
    both = [*options, *_sizes(sizes)]
    near, far = cores
    received, measured = run_both(
        two,
        server=[*far, *python(WORKER, "ping-receive", two.receiver, *both)],
        client=lambda host, port: [
            *near,
            *python(WORKER, "ping-send", host, str(port), "--seconds", str(seconds), *both, *more),
        ],
        bound_s=START_S + 2 * seconds,
    )
    if dropped := received["dropped"] + measured["dropped"]:
        raise BenchError(f"the hosts dropped {dropped} datagrams (full socket buffers, or no memory): void")
    return measured


def tcp_latency(two: Pair, *, sizes: Sequence[int], seconds: float, cores: Cores = ANY_CORES) -> Event:
    """Run ping-pong over kernel TCP; return its measurements."""
    both = _sizes(sizes)
    near, far = cores
    _, measured = run_both(
        two,
        server=[*far, *python(WORKER, "tcp-ping-receive", two.receiver, *both)],
        client=lambda host, port: [
            *near,
            *python(WORKER, "tcp-ping-send", host, str(port), "--seconds", str(seconds), *both),
        ],
        bound_s=START_S + 2 * seconds,
    )
    return measured


def _loaded_tcp(two: VethPair, *, seconds: float, cores: Cores) -> dict[str, float]:
    """Measure beside iperf3, which begins before and ends after."""
    with iperf.running(two, algorithm=CUBIC, seconds=seconds + MARGIN_S, cores=cores) as ended:
        measured = tcp_latency(two, sizes=SMALL_SIZES, seconds=seconds, cores=cores)
        return figures(measured, prefix="loaded_") | {"loaded_bulk_gbps": ended().gbps}
