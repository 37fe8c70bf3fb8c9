"""Shares: a queue pair of each virtual function writes as fast as its card lets it, for some seconds.

One application drives all queue pairs of a card in turn, with `OUTSTANDING` writes each; the other offers memory, and
compares all of it at the end. What counts is what has completed of each from `SETTLING_S` on.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from nitro_emu.efa.verbs import SendOp
from scripts.benches.card.cards import device
from scripts.benches.card.worker.endpoint import QKEY, CardEndpoint, Room, require_ok
from scripts.benches.card.worker.meeting import connected, listening
from scripts.harness.errors import BenchError
from scripts.harness.events import emit

WRITE_BYTES: Final = 64 << 10
OUTSTANDING: Final = 4
SETTLING_S: Final = 0.5
"""Time for the peers to open, and for their rates to settle."""
ROOM: Final = Room(OUTSTANDING * WRITE_BYTES, sends=OUTSTANDING)


def content(number: int) -> npt.NDArray[np.uint8]:
    """Return what a virtual function writes: of its own, so that misplaced data is detected."""
    return np.frombuffer(np.random.default_rng(number).bytes(ROOM.payload_bytes), np.uint8)


def _open(opened: ExitStack, run_dir: Path, *, vfs: int) -> list[CardEndpoint]:
    return [opened.enter_context(CardEndpoint(run_dir, device(number), room=ROOM)) for number in range(vfs)]


def receive(run_dir: Path, *, vfs: int) -> int:
    """Offer memory, and compare it at the end. Raises BenchError for a wrong byte."""
    with ExitStack() as opened:
        endpoints = _open(opened, run_dir, vfs=vfs)
        with listening(endpoints) as exchange:
            exchange.recv()
            wrong = [
                device(number)
                for number, endpoint in enumerate(endpoints)
                if not np.array_equal(endpoint.payload, content(number))
            ]
            exchange.send({"wrong": wrong})
    emit("received")
    return 0


def send(run_dir: Path, *, host: str, port: int, vfs: int, seconds: float) -> int:
    """Write from all virtual functions for `seconds`."""
    with ExitStack() as opened:
        endpoints = _open(opened, run_dir, vfs=vfs)
        for number, endpoint in enumerate(endpoints):
            endpoint.payload[:] = content(number)
        with connected(host, port, endpoints) as exchange:
            completed, took_s = _write(endpoints, seconds=seconds)
            exchange.send({"ended": True})
            if wrong := exchange.recv()["wrong"]:
                raise BenchError(f"what {', '.join(wrong)} wrote arrived with other bytes")
    emit("sent", bytes=[count * WRITE_BYTES for count in completed], seconds=took_s)
    return 0


def _write(endpoints: list[CardEndpoint], *, seconds: float) -> tuple[list[int], float]:
    """Return the completed writes of each while it was measured, and for how long that was."""
    first = np.arange(OUTSTANDING, dtype=np.uint64) * np.uint64(WRITE_BYTES)
    for endpoint in endpoints:
        _post(endpoint, first)
    begin_at = time.perf_counter() + SETTLING_S
    end_at = begin_at + seconds
    completed = [0] * len(endpoints)
    began = 0.0
    while (now := time.perf_counter()) < end_at:
        if not began and now >= begin_at:
            began, completed = now, [0] * len(endpoints)
        again = [_again(endpoint, completed, number) for number, endpoint in enumerate(endpoints)]
        if not any(again):
            os.sched_yield()
    took_s = time.perf_counter() - began
    while any(OUTSTANDING - endpoint.qp.send_queue.free for endpoint in endpoints):
        for endpoint in endpoints:
            require_ok(endpoint.send_cq.poll_array(OUTSTANDING))
        os.sched_yield()
    return completed, took_s


def _again(endpoint: CardEndpoint, completed: list[int], number: int) -> bool:
    """Post what has completed once more; return whether there was any."""
    found = require_ok(endpoint.send_cq.poll_array(OUTSTANDING))
    if not len(found):
        return False
    completed[number] += len(found)
    _post(endpoint, found["wr_id"])
    return True


def _post(endpoint: CardEndpoint, offsets: npt.NDArray[np.uint64]) -> None:
    endpoint.qp.post_rdma(
        SendOp.RDMA_WRITE,
        endpoint.ah,
        remote_qpn=endpoint.remote.qpn,
        remote_qkey=QKEY,
        addresses=offsets + np.uint64(endpoint.memory.address),
        lengths=WRITE_BYTES,
        lkey=endpoint.memory.lkey,
        remote_addresses=offsets + np.uint64(endpoint.remote.memory),
        rkey=endpoint.remote.rkey,
        wr_ids=offsets,
    )
