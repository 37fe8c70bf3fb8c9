"""Shares: a queue pair of each virtual function writes as fast as its card lets it, for some seconds.

One application drives all queue pairs of a card in turn, with `OUTSTANDING` writes each; the other offers memory, and
compares all of it at the end. What counts is what has completed of each from `SETTLING_S` on. The two exchange the
addresses of their queue pairs, and keep in step, by objects over TCP (`multiprocessing.connection`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from netns.base.output import emit
from nitro_emu.efa.perf.end import Address, QueuePairEnd, QueuePairRoom, U64Array
from nitro_emu.efa.verbs import SendOp
from scripts.benches.card.cards import device
from scripts.harness.errors import BenchError

MODULE: Final = "scripts.benches.card.shares"
WRITE_BYTES: Final = 64 << 10
OUTSTANDING: Final = 4
SETTLING_S: Final = 0.5
"""Time for the peers to open, and for their rates to settle."""
ROOM: Final = QueuePairRoom(OUTSTANDING, 1, message_bytes=WRITE_BYTES, slots=OUTSTANDING)


def content(number: int) -> npt.NDArray[np.uint8]:
    """Return what a virtual function writes: of its own, so that misplaced data is detected."""
    data = np.random.default_rng(number).bytes(OUTSTANDING * WRITE_BYTES)
    return np.frombuffer(data, np.uint8).reshape(OUTSTANDING, WRITE_BYTES)


@contextmanager
def _opened(run_dir: str, *, vfs: int) -> Iterator[list[QueuePairEnd]]:
    with ExitStack() as stack:
        yield [QueuePairEnd(stack, ROOM, device=device(vf), run_dir=Path(run_dir), events=False) for vf in range(vfs)]


def _connect(exchange: Connection, ends: list[QueuePairEnd]) -> None:
    """Both ends are in RTS when this returns."""
    exchange.send([end.address.text for end in ends])
    for end, remote in zip(ends, exchange.recv(), strict=True):
        end.connect(Address.of_untrusted(remote))
    exchange.send("connected")
    exchange.recv()


def receive(*, run_dir: str, vfs: int) -> None:
    """Offer memory, and compare it at the end."""
    with _opened(run_dir, vfs=vfs) as ends, Listener(("", 0), family="AF_INET") as listener:
        emit("listening", port=listener.address[1])
        with listener.accept() as exchange:
            _connect(exchange, ends)
            exchange.recv()
            exchange.send([device(vf) for vf, end in enumerate(ends) if not np.array_equal(end.rows, content(vf))])
    emit("received")


def send(*, run_dir: str, host: str, port: int, vfs: int, seconds: float) -> None:
    """Write from all virtual functions for `seconds`. Raises BenchError for a wrong byte."""
    with _opened(run_dir, vfs=vfs) as ends:
        for vf, end in enumerate(ends):
            end.rows[:] = content(vf)
        with Client((host, port), family="AF_INET") as exchange:
            _connect(exchange, ends)
            completed, took_s = _write(ends, seconds=seconds)
            exchange.send("ended")
            if wrong := exchange.recv():
                raise BenchError(f"what {', '.join(wrong)} wrote arrived with other bytes")
    emit("sent", bytes=[count * WRITE_BYTES for count in completed], seconds=took_s)


def _write(ends: list[QueuePairEnd], *, seconds: float) -> tuple[list[int], float]:
    """Return the completed writes of each while it was measured, and for how long that was."""
    first = np.arange(OUTSTANDING, dtype=np.uint64) * np.uint64(WRITE_BYTES)
    for end in ends:
        _post(end, first)
    begin_at = time.perf_counter() + SETTLING_S
    end_at = begin_at + seconds
    completed, began = [0] * len(ends), 0.0
    while (now := time.perf_counter()) < end_at:
        if not began and now >= begin_at:
            began, completed = now, [0] * len(ends)
        again = [end.polled() for end in ends]
        for number, (end, offsets) in enumerate(zip(ends, again, strict=True)):
            if len(offsets):
                completed[number] += len(offsets)
                _post(end, offsets)
        if not any(map(len, again)):
            os.sched_yield()
    took_s = time.perf_counter() - began
    for end in ends:
        end.drain()
    return completed, took_s


def _post(end: QueuePairEnd, offsets: U64Array) -> None:
    end.post(
        SendOp.RDMA_WRITE, offsets, length=WRITE_BYTES, memory=end.memory, remote_offsets=offsets, rkey=end.remote.rkey
    )
