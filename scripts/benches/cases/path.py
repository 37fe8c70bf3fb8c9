"""Path: the processor time of a small message, by the API of a peer, beside asyncio's streams over TCP.

A request of 64 B and its reply, one at a time, by `Peer.send` and `Peer.recv`, plain and encrypted, and by asyncio's
streams: one process an end, over loopback, on uvloop, without polling (veth/worker/path.py). The kinds take turns in
the same two processes. Processor time, user and system, is that of the asking end for a round trip.

Both ends share a core. On cores of their own they wake each other up: then TCP's processor time is 10 to 35 us, as the
machine is busy or idle. So wall time (`p50_*`) is that of the work of both ends.

`cpu_ratio_64b`, `cpu_ratio_64b_secure`: our processor time over that of streams, which `scripts/check_weight.py`
compares with what was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from scripts.benches.cases.clean import START_S, WORKER
from scripts.benches.outcome import Figures, Round, Wanted
from scripts.benches.veth.worker.path import KINDS, PLAIN, SECURE, STREAMS
from scripts.harness.client_server import one_core, python, run_both
from scripts.harness.errors import BenchError
from scripts.harness.loopback import Loopback

WANTED: Final[tuple[Wanted, ...]] = ()
NEEDS: Final = ()
SECONDS: Final = 0.5
"""Seconds of a turn of one kind."""


def rounds(count: int, seconds: float) -> Iterator[Round]:
    """Measure `count` turns of each kind."""
    near, far = one_core()
    answered, measured = run_both(
        Loopback(),
        server=[*far, *python(WORKER, "path-answer", Loopback().receiver)],
        client=lambda host, port: [
            *near,
            *python(WORKER, "path-ask", host, str(port), "--turns", str(count), "--seconds", str(seconds)),
        ],
        bound_s=START_S + 2 * seconds * len(KINDS) * (count + 1),
    )
    if dropped := answered["dropped"] + measured["dropped"]:
        raise BenchError(f"the hosts dropped {dropped} datagrams (full socket buffers, or no memory): void")
    for number, turn in enumerate(measured["turns"], start=1):
        yield Round(number, ours(turn), {STREAMS: turn[STREAMS]})


def ours(turn: Mapping[str, Figures]) -> dict[str, float]:
    """Return our figures, plain and encrypted, and processor time over that of streams."""
    found: dict[str, float] = {}
    for kind, suffix in ((PLAIN, ""), (SECURE, "_secure")):
        cpu_us = turn[kind]["cpu_64b_us"]
        found |= {
            f"cpu_64b{suffix}_us": cpu_us,
            f"p50_64b{suffix}_us": turn[kind]["p50_64b_us"],
            f"cpu_ratio_64b{suffix}": cpu_us / turn[STREAMS]["cpu_64b_us"],
        }
    return found
