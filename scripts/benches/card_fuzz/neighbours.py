"""Two good programs in one process: an endless ping-pong between two devices, every byte compared.

    python -m scripts.benches.card_fuzz.neighbours DIRECTORY NAME NAME

Says `ready`, then starts. The reply to each line on stdin is one event:

    total {messages, wrong_bytes, failed, slowest_s}
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from nitro_emu.efa.abi.io import SendOp
from nitro_emu.efa.verbs import (
    Access,
    AddressHandle,
    CompletionQueue,
    Context,
    MemoryRegion,
    ProtectionDomain,
    QpOptions,
    QueuePair,
    RecvRequest,
    SendFlags,
    SendRequest,
    Sge,
)
from scripts.harness.events import emit

QKEY: Final = 0x5EC2E7ED
BUFFER_BYTES: Final = 64 << 10
GUARD: Final = 0xA5
"""What lies around a message, and must not change."""
LENGTHS: Final = (1, 64, 1000, 4096, 8900)
BOUND_S: Final = 60.0


def pattern(number: int, *, length: int) -> npt.NDArray[np.uint8]:
    """Return the contents of message `number`: each eight bytes are unique, so that misplacement shows."""
    lanes = (np.arange(-(-length // 8), dtype=np.uint64) + np.uint64(1 + number)) * np.uint64(0x9E3779B97F4A7C15)
    return lanes.view(np.uint8)[:length]


class Side:
    """One of the two: a device with a queue pair."""

    def __init__(self, name: str, *, directory: Path) -> None:
        access = Access.LOCAL_WRITE | Access.REMOTE_WRITE
        self.context = Context(name, directory=directory)
        self.pd = ProtectionDomain(self.context)
        self.cq = CompletionQueue(self.context, 64)
        options = QpOptions(max_send_wr=16, max_recv_wr=16)
        self.qp = QueuePair(self.pd, send_cq=self.cq, recv_cq=self.cq, options=options)
        self.qp.to_rts(qkey=QKEY, rnr_retry=7)
        self.mr = MemoryRegion.allocate(self.pd, length=3 * BUFFER_BYTES, access=access)
        assert self.mr.region is not None  # noqa: S101 - allocate made it
        self.bytes = self.mr.region.array
        self.bytes[:] = GUARD

    def connect(self, other: Side) -> None:
        """Prepare to send to the other side."""
        self.ah = AddressHandle(self.pd, gid=other.context.attributes.gid)
        self.other = other

    def send(self, number: int, *, length: int) -> None:
        """Post message `number`."""
        self.bytes[:length] = pattern(number, length=length)
        sge = Sge(self.mr.address, length, self.mr.lkey)
        self.qp.post_send(SendRequest(self.ah, self.other.qp.number, QKEY, number, (sge,), flags=SendFlags.SIGNALED))

    def write(self, number: int, *, length: int) -> None:
        """Post the same bytes as an RDMA write to the last third of the other's memory."""
        remote = self.other.mr
        self.qp.post_rdma(
            SendOp.RDMA_WRITE, self.ah, remote_qpn=self.other.qp.number, remote_qkey=QKEY, addresses=self.mr.address,
            lengths=length, lkey=self.mr.lkey, remote_addresses=remote.address + 2 * BUFFER_BYTES + 16,
            rkey=remote.rkey, wr_ids=[number],
        )  # fmt: skip

    def receive(self, number: int) -> None:
        """Post a buffer in the middle third."""
        sge = Sge(self.mr.address + BUFFER_BYTES + 16, 8900, self.mr.lkey)
        self.qp.post_recv(RecvRequest(number, (sge,)))

    def wrong_bytes(self, number: int, *, length: int, at: int) -> int:
        """Compare a third with what must be in it, and reset it."""
        expected = np.full(BUFFER_BYTES, GUARD, np.uint8)
        expected[16 : 16 + length] = pattern(number, length=length)
        found = self.bytes[at : at + BUFFER_BYTES]
        wrong = int(np.count_nonzero(found != expected))
        found[:] = GUARD
        return wrong


class Game:
    """The ping-pong; `step` plays one message there."""

    def __init__(self, left: Side, right: Side) -> None:
        left.connect(right)
        right.connect(left)
        self._sides = left, right
        self._number = 0
        self.totals: dict[str, float] = {"messages": 0, "wrong_bytes": 0, "failed": 0, "slowest_s": 0.0}

    def step(self) -> None:
        """Send a message and write it, one way; compare every byte."""
        sender, receiver = self._sides[:: 1 if self._number % 2 else -1]
        number, length, started = self._number, LENGTHS[self._number % len(LENGTHS)], time.monotonic()
        self._number += 1
        receiver.receive(number)
        sender.send(number, length=length)
        sender.write(number, length=length)
        failed = self._wait(sender, count=2) + self._wait(receiver, count=1)
        totals = self.totals
        totals["failed"] += failed
        totals["messages"] += 1
        if not failed:
            for third in (1, 2):
                totals["wrong_bytes"] += receiver.wrong_bytes(number, length=length, at=third * BUFFER_BYTES)
        totals["slowest_s"] = max(totals["slowest_s"], time.monotonic() - started)

    def _wait(self, side: Side, *, count: int) -> int:
        """Wait for completions; return how many failed, or are missing."""
        give_up_at, failed = time.monotonic() + BOUND_S, 0
        while count:
            for completion in side.cq.poll(count):
                count -= 1
                failed += completion.vendor_error != 0
            if time.monotonic() > give_up_at:
                return failed + count
            os.sched_yield()
        return failed


def main() -> None:
    """Play until stdin ends."""
    directory, *names = sys.argv[1:]
    left, right = (Side(name, directory=Path(directory)) for name in names)
    game = Game(left, right)
    game.step()
    emit("ready")
    while True:
        game.step()
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                return
            emit("total", **game.totals)


if __name__ == "__main__":
    main()
