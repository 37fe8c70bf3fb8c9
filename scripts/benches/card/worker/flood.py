"""A neighbour: another tenant of the same cards, until it is killed. It says when it has begun, and then counts.

`fair` makes round trips of 64 B, as the tenant that is measured. `rings` posts SENDs of 64 B as fast as it can, and
never waits: a send queue that is full is tried again at once, but other processes may have the processor in between, as
with all applications here. `wire` keeps 16 writes of 1 MiB outstanding.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from scripts.benches.card.worker import pingpong, writes
from scripts.benches.card.worker.endpoint import CardEndpoint, Room, require_ok, take
from scripts.benches.card.worker.meeting import connected, listening
from scripts.benches.veth.worker.bulk import MESSAGE_BYTES, SOURCE_BYTES
from scripts.harness.events import emit

FAIR, RINGS, WIRE = "fair", "rings", "wire"
KINDS: Final = (FAIR, RINGS, WIRE)
SEND_BYTES: Final = 64
SENDS: Final = 4096
RECEIVES: Final = 16384
AT_ONCE: Final = 256
"""Completions after which it lets other processes of its end have the processor, as the neighbour is one of them: what
is measured is what the card takes from the neighbour, not what one busy program takes from another."""
EVER_S: Final = 1e6
PROGRESS_S: Final = 0.2


def receive(run_dir: Path, *, device: str, kind: str) -> int:
    """Receive what a neighbour sends."""
    if kind == FAIR:
        return pingpong.receive(run_dir, device=device)
    room = Room(RECEIVES * SEND_BYTES, receives=RECEIVES) if kind == RINGS else Room(writes.OUTSTANDING * MESSAGE_BYTES)
    with CardEndpoint(run_dir, device, room=room) as endpoint, listening([endpoint]) as exchange:
        if kind == RINGS:
            endpoint.post_receives(np.arange(RECEIVES, dtype=np.uint64) * np.uint64(SEND_BYTES), length=SEND_BYTES)
            exchange.send({"posted": True})
            while True:
                found = take(endpoint.recv_cq, AT_ONCE)
                endpoint.post_receives(found["wr_id"], length=SEND_BYTES)
                os.sched_yield()
        exchange.send({"posted": True})
        exchange.recv()
    return 0


def send(run_dir: Path, *, device: str, host: str, port: int, kind: str) -> int:
    """Send for ever."""
    if kind == FAIR:
        emit("flooding")
        return pingpong.send(run_dir, device=device, host=host, port=port, seconds=EVER_S)
    rings = kind == RINGS
    room = Room(SENDS * SEND_BYTES, sends=SENDS) if rings else Room(SOURCE_BYTES, sends=writes.OUTSTANDING)
    with (
        CardEndpoint(run_dir, device, room=room, events=not rings) as endpoint,
        connected(host, port, [endpoint]) as exchange,
    ):
        exchange.recv()
        _report(_post_for_ever(endpoint) if rings else _write_for_ever(endpoint))
    return 0


def _post_for_ever(endpoint: CardEndpoint) -> Iterator[int]:
    """Yield how many SENDs have completed with each pass."""
    offsets = np.arange(SENDS, dtype=np.uint64) * np.uint64(SEND_BYTES)
    endpoint.post_sends(offsets, length=SEND_BYTES)
    while True:
        found = require_ok(endpoint.send_cq.poll_array(AT_ONCE))
        if len(found):
            endpoint.post_sends(found["wr_id"], length=SEND_BYTES)
        os.sched_yield()
        yield len(found)


def _write_for_ever(endpoint: CardEndpoint) -> Iterator[int]:
    """Yield how many writes have completed with each pass."""
    writes.post(endpoint, np.arange(writes.OUTSTANDING, dtype=np.uint64))
    while True:
        found = endpoint.sent(writes.OUTSTANDING)
        writes.post(endpoint, found["wr_id"])
        yield len(found)


def _report(passes: Iterator[int], *, now: Callable[[], float] = time.monotonic) -> None:
    """Say that it has begun when the first requests have completed, and then how many in how long."""
    count = 0
    began = reported = 0.0
    for done in passes:
        count += done
        at = now()
        if not began and done:
            began, reported, count = at, at, 0
            emit("flooding")
        elif began and at >= reported + PROGRESS_S:
            reported = at
            emit("flooded", requests=count, seconds=at - began)
