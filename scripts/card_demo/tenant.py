"""One tenant's program at one end: it opens the card's device, as any verbs program does, and moves checked data.

`messages`: many small SENDs, each with its number in it. `writes`: RDMA WRITEs of 1 MiB into registered memory of the
other end. The receiving end prints where it can be reached, compares every byte, and prints what it saw.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import numpy as np

from devmem.region import Region
from nitro_emu.efa import verbs
from nitro_emu.efa.verbs import Access
from scripts.card_demo.pattern import Bytes, Words, pattern
from scripts.harness.events import emit

MESSAGE_BYTES: Final = 1024
WRITE_BYTES: Final = 1 << 20
QKEY: Final = 0x1DEA
DEPTH: Final = 256
"""Receive requests, and sends in flight."""
WRITES_IN_FLIGHT: Final = 8
DONE: Final = 1
"""Immediate of the last message: all writes have completed."""
QUIET_S: Final = 240.0
"""Longest time without a completion before a program gives up."""
_ACCESS: Final = Access.LOCAL_WRITE | Access.REMOTE_WRITE


class Program:
    """A queue pair, its memory, and its completions."""

    def __init__(self, device: str, *, directory: Path, memory_bytes: int) -> None:
        self.context = verbs.Context(device, directory=directory)
        self.pd = verbs.ProtectionDomain(self.context)
        self.sent = verbs.CompletionQueue(self.context, depth=2 * DEPTH)
        self.received = verbs.CompletionQueue(self.context, depth=2 * DEPTH)
        region = Region(memory_bytes, name="card-demo")
        self.memory = verbs.MemoryRegion(self.pd, region, access=_ACCESS)
        self.memory_view = region.view(0, length=memory_bytes)
        options = verbs.QpOptions(max_send_wr=DEPTH, max_recv_wr=DEPTH, signal_all=True)
        self.qp = verbs.QueuePair(self.pd, send_cq=self.sent, recv_cq=self.received, options=options)
        self.qp.to_rts(qkey=QKEY, rnr_retry=7)

    def next_completion(self) -> verbs.WorkCompletion:
        """Return the next completion of what was sent. Raises SystemExit if there is none for long."""
        give_up_at = time.monotonic() + QUIET_S
        while not (found := self.sent.poll(1)):
            if time.monotonic() > give_up_at:
                raise SystemExit(f"nothing completed for {QUIET_S:g} s")
            os.sched_yield()
        return found[0]

    def take(self, queue: verbs.CompletionQueue) -> verbs.Completions:
        """Return what has completed, as soon as something has. Raises SystemExit for an error."""
        give_up_at = time.monotonic() + QUIET_S
        while not len(taken := queue.poll_array(DEPTH)):
            if time.monotonic() > give_up_at:
                raise SystemExit(f"nothing completed for {QUIET_S:g} s")
            os.sched_yield()
        if failed := set(taken["status"].tolist()) - {0}:
            raise SystemExit(f"completions with status {failed}")
        return taken


def messages(first: int, count: int) -> Words:
    """Return messages from number `first` on, as rows of words: the number, then words of the pattern."""
    words = MESSAGE_BYTES // 4
    rows = pattern(first * words, count * words).reshape(count, words)
    rows[:, 0] = np.arange(first, first + count)
    return rows


def words_of(program: Program, count: int) -> Words:
    """Return the memory as `count` messages."""
    return np.frombuffer(program.memory_view, np.uint32, count * MESSAGE_BYTES // 4).reshape(count, -1)


def receive_messages(program: Program, *, count: int) -> int:
    """Receive messages in any order; return how many were wrong, or came twice."""
    memory, wrong, left = program.memory, 0, count
    rows, seen = words_of(program, DEPTH), np.zeros(count, np.bool_)
    every = memory.address + np.arange(DEPTH, dtype=np.uint64) * np.uint64(MESSAGE_BYTES)
    program.qp.post_recvs(every, lengths=MESSAGE_BYTES, lkey=memory.lkey, wr_ids=np.arange(DEPTH, dtype=np.uint64))
    emit_address(program)
    while left:
        slots = program.take(program.received)["wr_id"].astype(np.int64)
        for slot in slots.tolist():
            number = int(rows[slot, 0])
            if number >= count or seen[number] or (rows[slot] != messages(number, 1)[0]).any():
                wrong += 1
            else:
                seen[number] = True
        left -= len(slots)
        program.qp.post_recvs(every[slots], lengths=MESSAGE_BYTES, lkey=memory.lkey, wr_ids=slots.astype(np.uint64))
    return wrong


def send_messages(program: Program, handle: verbs.AddressHandle, qp_num: int, *, count: int) -> None:
    """Send messages, as many at a time as the send queue has room for."""
    memory, rows = program.memory, words_of(program, DEPTH)
    free, number = list(range(DEPTH)), 0
    while number < count or len(free) < DEPTH:
        if free and number < count:
            slots = np.array(free[: count - number], np.uint64)
            rows[slots.astype(np.int64)] = messages(number, len(slots))
            program.qp.post_sends(
                handle,
                remote_qpn=qp_num,
                remote_qkey=QKEY,
                addresses=memory.address + slots * np.uint64(MESSAGE_BYTES),
                lengths=MESSAGE_BYTES,
                lkey=memory.lkey,
                wr_ids=slots,
            )
            number += len(slots)
            free = free[len(slots) :]
        free += program.take(program.sent)["wr_id"].tolist()


def receive_writes(program: Program, *, count: int) -> int:
    """Wait until all writes have completed; return how many bytes are wrong."""
    program.qp.post_recv(verbs.RecvRequest(0, (verbs.Sge(program.memory.address, 0, program.memory.lkey),)))
    emit_address(program)
    program.take(program.received)
    landed = np.frombuffer(program.memory_view, np.uint8, count * WRITE_BYTES)
    return int((landed != _pieces(0, count)).sum())


def _pieces(first: int, count: int) -> Bytes:
    """Return the bytes of the writes from number `first` on."""
    return pattern(first * (WRITE_BYTES // 4), count * (WRITE_BYTES // 4)).view(np.uint8)


def send_writes(
    program: Program, handle: verbs.AddressHandle, qp_num: int, *, count: int, remote: int, rkey: int
) -> None:
    """Write pieces to the other end, then tell it."""
    memory = program.memory
    array = np.frombuffer(program.memory_view, np.uint8)
    free, number = list(range(WRITES_IN_FLIGHT)), 0
    while number < count or len(free) < WRITES_IN_FLIGHT:
        while free and number < count:
            slot = free.pop()
            at = slot * WRITE_BYTES
            array[at : at + WRITE_BYTES] = _pieces(number, 1)
            program.qp.post_rdma(
                verbs.SendOp.RDMA_WRITE,
                handle,
                remote_qpn=qp_num,
                remote_qkey=QKEY,
                addresses=memory.address + at,
                lengths=WRITE_BYTES,
                lkey=memory.lkey,
                remote_addresses=remote + number * WRITE_BYTES,
                rkey=rkey,
                wr_ids=[slot],
            )
            number += 1
        free += program.take(program.sent)["wr_id"].tolist()
    program.qp.post_send(
        verbs.SendRequest(
            handle, qp_num, QKEY, opcode=verbs.WrOpcode.SEND_WITH_IMM, immediate=DONE,
        )
    )  # fmt: skip
    program.take(program.sent)


def emit_address(program: Program) -> None:
    """Print where this end can be reached, and its memory."""
    emit(
        "listening",
        gid=program.context.attributes.gid.hex(),
        qp_num=program.qp.number,
        address=program.memory.address,
        rkey=program.memory.rkey,
    )


def receive(*, work: str, device: str, directory: str, count: int) -> None:
    """Be the receiving end of a tenant's `messages` or `writes`."""
    is_messages = work == "messages"
    memory_bytes = DEPTH * MESSAGE_BYTES if is_messages else count * WRITE_BYTES
    program = Program(device, directory=Path(directory), memory_bytes=memory_bytes)
    wrong = (receive_messages if is_messages else receive_writes)(program, count=count)
    emit("received", bytes=count * (MESSAGE_BYTES if is_messages else WRITE_BYTES), wrong=wrong)


def send(*, work: str, device: str, directory: str, count: int, gid: str, qp_num: int, address: int, rkey: int) -> None:
    """Be the sending end."""
    is_messages = work == "messages"
    memory_bytes = DEPTH * MESSAGE_BYTES if is_messages else WRITES_IN_FLIGHT * WRITE_BYTES
    program = Program(device, directory=Path(directory), memory_bytes=memory_bytes)
    started, cpu_started = time.monotonic(), time.process_time()
    handle = verbs.AddressHandle(program.pd, gid=bytes.fromhex(gid))
    if is_messages:
        send_messages(program, handle, qp_num, count=count)
    else:
        send_writes(program, handle, qp_num, count=count, remote=address, rkey=rkey)
    size_bytes = count * (MESSAGE_BYTES if is_messages else WRITE_BYTES)
    cpu_s = time.process_time() - cpu_started
    emit("sent", bytes=size_bytes, seconds=time.monotonic() - started, cpu_s=cpu_s)
