"""Path: the processor time of a message, by the API of a peer, beside asyncio's streams over TCP.

One process an end, over loopback, on uvloop, without polling (veth/worker/path.py). The kinds (plain, encrypted,
streams) take turns in the same two processes, for each workload:

    64b        a request of 64 B and its reply, one at a time, by `Peer.send` and `Peer.recv`
    64b_x64    64 sends of 64 B at once, then one reply; a `write` each in the stream
    64b_batch  the same by one `Peer.post_sends` and `recv_batch`; by one `write` in the stream
    64k, 1m    requests of that size, and replies

Processor time, user and system, is that of a message (64b: of a round trip), of the asking end (`cpu_*`) and of the
answering one (`answer_cpu_*`). `cpu_ratio_*`, `p50_ratio_*`: ours over streams'; with `_secure`: encrypted.
`scripts/check_weight.py` compares those of 64b with what was recorded.

Both ends share a core. On cores of their own they wake each other up: then TCP's processor time is 10 to 35 us, as the
machine is busy or idle. So wall time (`p50_*`) is that of the work of both ends. For bulk see `clean` and `secure`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from scripts.benches.cases.clean import START_S, WORKER
from scripts.benches.outcome import Figures, Round, Wanted
from scripts.benches.veth.worker.path import KINDS, PLAIN, SECURE, STREAMS, WORKLOADS
from scripts.harness.client_server import one_core, python, run_both
from scripts.harness.errors import BenchError
from scripts.harness.loopback import Loopback

WANTED: Final = (
    Wanted("cpu_ratio_64b", "<=", 5, over="median"),
    Wanted("p50_ratio_64b", "<=", 3, over="median"),
)
NEEDS: Final = ()
SECONDS: Final = 0.5
"""Seconds of a turn of one kind."""


def rounds(count: int, seconds: float, *, workloads: Sequence[str] = tuple(WORKLOADS)) -> Iterator[Round]:
    """Measure `count` turns of each kind and workload."""
    near, far = one_core()
    answered, measured = run_both(
        Loopback(),
        server=[*far, *python(WORKER, "path-answer", Loopback().receiver, *workloads)],
        client=lambda host, port: [
            *near,
            *python(WORKER, "path-ask", host, str(port), "--turns", str(count), "--seconds", str(seconds), *workloads),
        ],
        bound_s=START_S + 3 * seconds * len(KINDS) * len(workloads) * (count + 1),
    )
    if dropped := answered["dropped"] + measured["dropped"]:
        raise BenchError(f"the hosts dropped {dropped} datagrams (full socket buffers, or no memory): void")
    for number, turn in enumerate(measured["turns"], start=1):
        streams = {
            f"{figure}_{name}_us": value for name, kinds in turn.items() for figure, value in kinds[STREAMS].items()
        }
        yield Round(number, ours(turn), {STREAMS: streams})


def ours(turn: Mapping[str, Mapping[str, Figures]]) -> dict[str, float]:
    """Return our figures of each workload, plain and encrypted, and those over streams' in the same turn."""
    found: dict[str, float] = {}
    for name, kinds in turn.items():
        for kind, suffix in ((PLAIN, ""), (SECURE, "_secure")):
            found |= {f"{figure}_{name}{suffix}_us": value for figure, value in kinds[kind].items()}
            for figure in ("cpu", "p50"):
                found[f"{figure}_ratio_{name}{suffix}"] = kinds[kind][figure] / kinds[STREAMS][figure]
    return found
