"""Path: the processor time of a message or a byte, beside asyncio's streams over TCP, or iperf3.

One process an end, over loopback, on uvloop, without polling (veth/worker/path.py). The kinds (plain, encrypted,
streams) take turns in the same two processes, for each workload:

    64b        a request of 64 B and its reply, one at a time, by `Peer.send` and `Peer.recv`
    64b_x64    64 sends of 64 B at once, then one reply; a `write` each in the stream
    64b_batch  the same by one `Peer.post_sends` and `recv_batch`; by one `write` in the stream
    64k, 1m    requests of that size, and replies

Processor time, user and system, is that of a message (64b: of a round trip), of the asking end (`cpu_*`) and of the
answering one (`answer_cpu_*`). `cpu_ratio_*`, `p50_ratio_*`: ours over streams'; with `_secure`: encrypted.
`scripts/check_weight.py` compares those of 64b with what was recorded.

Bulk, as root: one flow over a veth pair of MTU 9000 and 1500, with segmentation offload and without (`_nogso`), plain,
encrypted, and iperf3 (cubic) in turns. `cpu_ratio_bulk_*` and `gbps_ratio_bulk_*`: ours over iperf3's processor time of
both ends a byte, and over its goodput.

`--profile` prints instead where the asking end's processor time goes (scripts/harness/rooms.py), by workload.

Messages: both ends share a core. On cores of their own they wake each other up: then TCP's processor time is 10 to 35
us, as the machine is busy or idle. So wall time (`p50_*`) is that of the work of both ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from scripts.benches.cases.clean import LINKS
from scripts.benches.outcome import Figures, Round, Wanted
from scripts.benches.veth import iperf
from scripts.benches.veth.worker.path import KINDS, PLAIN, SECURE, STREAMS, WORKLOADS
from scripts.harness.client_server import Event, run_both
from scripts.harness.drops import no_drops
from scripts.harness.needs import Need, lacks
from scripts.harness.perf import START_S
from scripts.harness.rooms import CommandProfile
from scripts.harness.two_hosts import LOOPBACK, Here, one_core, veth_pair
from scripts.harness.worker import worker
from srd.perf.tcp_socket import CUBIC

WANTED: Final = (
    Wanted("cpu_ratio_64b", "<=", 5, over="median"),
    Wanted("p50_ratio_64b", "<=", 3, over="median"),
    Wanted("cpu_ratio_bulk_mtu9000", "<=", 1.3, over="median"),
    Wanted("cpu_ratio_bulk_mtu1500", "<=", 1.6, over="median"),
    Wanted("cpu_ratio_bulk_mtu1500_nogso", "<=", 1.8, over="median"),
    Wanted("gbps_ratio_bulk_mtu9000", ">=", 0.65, over="median"),
    Wanted("gbps_ratio_bulk_mtu1500", ">=", 0.65, over="median"),
    Wanted("gbps_ratio_bulk_mtu1500_nogso", ">=", 0.65, over="median"),
)
WORKER: Final = "scripts.benches.veth.worker.path"
IPERF: Final = f"tcp_{CUBIC}"


def _lacks_bulk(program: str) -> str | None:
    """Return why there can be no bulk here: only root makes network namespaces, and iperf3 is beside us."""
    return "not root, and bulk runs in network namespaces" if os.geteuid() else lacks(program)


NEEDS: Final = (Need("iperf3", ("*_bulk_*",), _lacks_bulk),)
SECONDS: Final = 0.5
"""Seconds of a turn of one kind."""
BULK_SECONDS: Final = 2.0
"""Seconds of a bulk flow: of shorter ones the start is much."""


def measure(number: int, seconds: float) -> Round:
    (made,) = messages(1, seconds)
    if _lacks_bulk("iperf3") is not None:
        return replace(made, seed=number)
    found, theirs = bulk(BULK_SECONDS)
    return Round(number, {**made.ours, **found}, {**made.baselines, IPERF: theirs})


def messages(count: int, seconds: float, *, workloads: Sequence[str] = tuple(WORKLOADS)) -> Iterator[Round]:
    bound_s = START_S + 3 * seconds * len(KINDS) * len(workloads) * (count + 1)
    _, measured = _run(workloads, bound_s=bound_s, turns=count, seconds=seconds)
    for number, turn in enumerate(measured["turns"], start=1):
        streams = {
            f"{figure}_{name}_us": value for name, kinds in turn.items() for figure, value in kinds[STREAMS].items()
        }
        yield Round(number, ours(turn), {STREAMS: streams})


def _run(
    workloads: Sequence[str], *, bound_s: float, prefix: Sequence[str] = (), **options: Any
) -> tuple[Event, Event]:
    """Run both ends; `prefix`: what precedes the asking one, `options`: see `worker.path.ask`."""
    return run_both(
        Here(before=one_core()),
        server=worker(WORKER, "answer", host=LOOPBACK, workloads=workloads),
        client=lambda host, port: [
            *prefix, *worker(WORKER, "ask", host=host, port=port, workloads=workloads, **options)
        ],
        bound_s=bound_s,
    )  # fmt: skip


def ours(turn: Mapping[str, Mapping[str, Figures]]) -> dict[str, float]:
    """Return our figures of each workload, plain and encrypted, and those over streams' in the same turn."""
    found: dict[str, float] = {}
    for name, kinds in turn.items():
        for kind, suffix in ((PLAIN, ""), (SECURE, "_secure")):
            found |= {f"{figure}_{name}{suffix}_us": value for figure, value in kinds[kind].items()}
            for figure in ("cpu", "p50"):
                found[f"{figure}_ratio_{name}{suffix}"] = kinds[kind][figure] / kinds[STREAMS][figure]
    return found


def bulk(seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    found: dict[str, float] = {}
    theirs: dict[str, float] = {}
    for link, (mtu, offload) in LINKS.items():
        with veth_pair(mtu=mtu, offload=offload) as two, no_drops(two.namespaces, during=f"bulk, {link}"):
            plain = iperf.ours(two, seconds=seconds, plain=True)
            tcp = iperf.run(two, algorithm=CUBIC, seconds=seconds)
            secure = iperf.ours(two, seconds=seconds, plain=False)
        theirs |= tcp.named(f"{{}}_bulk_{link}")
        for flow, suffix in ((plain, ""), (secure, "_secure")):
            found |= flow.named(f"{{}}_bulk_{link}{suffix}") | {
                f"gbps_ratio_bulk_{link}{suffix}": flow.gbps / tcp.gbps,
                f"cpu_ratio_bulk_{link}{suffix}": flow.cpu_s_per_gb / tcp.cpu_s_per_gb,
            }
    return found, theirs


def profile(seconds: float) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each workload, plain and encrypted, and where the asking end's processor time goes: room -> share."""
    for name in WORKLOADS:
        for kind in (PLAIN, SECURE):
            with CommandProfile.made() as made:
                options = {"kinds": [kind], "control": str(made.control), "turns": 1, "seconds": seconds}
                _run([name], bound_s=START_S + 5 * seconds, prefix=made.prefix, **options)
                yield f"{name}, {kind}", made.shares()
