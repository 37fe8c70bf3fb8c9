"""The hostile program, a process of its own.

Each line on stdin is a number of steps to take; the reply is one event: took {steps, entries, connections, statuses}.
It never waits for more than a reply, and the same
seed takes the same decisions, though not at the same times.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import select
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from netns.base.output import emit
from nitro_emu.efa.abi import admin, commands, enums, io, limits, memory, replies
from nitro_emu.errors import NitroError
from scripts.benches.card_fuzz.forge import EntryForge, ValidNames
from scripts.benches.card_fuzz.raw_device import RawAnswer, RawDevice, close_all, map_and_close

MAX_CONNECTIONS: Final = 4
MAX_QPS: Final = 6
MAX_OBJECTS: Final = 8
PAYLOAD_BYTES: Final = 256 << 10
UNREAD: Final = 400
"""Commands that are sent at most without reading an answer."""
_ALL_RIGHTS: Final = 7


@dataclass(slots=True)
class Qp:
    """A queue pair, and how far its rings were written."""

    handle: int
    ring: mmap.mmap
    sq_depth: int
    wqe_bytes: int
    rq_depth: int
    sq_index: int
    rq_index: int
    number: int
    sent: int = 0
    sends_done: int = 0
    received: int = 0
    receives_done: int = 0

    def restart(self) -> None:
        """Begin anew, as in state RESET."""
        self.sent = self.sends_done = self.received = self.receives_done = 0


@dataclass(slots=True)
class Cq:
    number: int
    ring: mmap.mmap
    depth: int
    entry_bytes: int
    doorbell_index: int
    consumed: int = 0
    users: int = 0


@dataclass(slots=True)
class FuzzedProgram:
    """A connection, and what it has made."""

    device: RawDevice
    uar: memoryview
    kick_fd: int
    event_fds: list[int]
    pd: int
    target: ValidNames = field(default_factory=ValidNames)
    qps: list[Qp] = field(default_factory=list)
    cqs: list[Cq] = field(default_factory=list)
    payloads: list[int] = field(default_factory=list)
    """Descriptors of registered memory."""
    is_dead: bool = False

    def close(self) -> None:
        """Leave without a word."""
        self.device.close()
        close_all([self.kick_fd, *self.event_fds, *self.payloads])


class Fuzzer:
    def __init__(self, path: Path, *, seed: int, gids: Sequence[bytes]) -> None:
        self._path = path
        self._gids = gids
        self._rng = Random(seed)  # noqa: S311 - reproducible by its seed
        self._forge = EntryForge(self._rng)
        self._programs: list[FuzzedProgram] = []
        self.entries = 0
        self.connections = 0
        self.statuses: Counter[str] = Counter()
        self._moves: list[tuple[Callable[[FuzzedProgram], None], int]] = [
            (self._send, 40),
            (self._post_receives, 25),
            (self._poll, 25),
            (self._doorbells, 2),
            (self._scribble, 2),
            (self._create, 10),
            (self._modify, 5),
            (self._destroy, 5),
            (self._valid_command, 4),
            (self._garbage, 4),
            (self._descriptors, 2),
            (self._unread, 1),
            (self._eventfds, 2),
            (self._memory_tricks, 2),
            (self._leave, 1),
        ]

    def step(self) -> None:
        rng = self._rng
        if not self._programs or (len(self._programs) < MAX_CONNECTIONS and rng.random() < 0.02):
            self._connect()
            return
        program = rng.choice(self._programs)
        moves, weights = zip(*self._moves, strict=True)
        try:
            rng.choices(moves, weights)[0](program)
        except (ConnectionError, BrokenPipeError, NitroError):
            program.is_dead = True
        if program.is_dead:
            self._programs.remove(program)
            program.close()

    def close(self) -> None:
        while self._programs:
            self._programs.pop().close()

    # -- connections and objects --------------------------------------------------------------------------------------

    def _connect(self) -> None:
        device = RawDevice(self._path)
        self.connections += 1
        uar = device.ask(commands.AllocUar())
        domain = device.ask(commands.AllocPd())
        if len(uar.fds) != 4 or not isinstance(domain.reply, replies.AllocPdReply):
            close_all(uar.fds)
            device.close()
            return
        os.close(uar.fds[1])
        words = memoryview(map_and_close(uar.fds[0], writable=True)).cast("I")
        program = FuzzedProgram(device, words, uar.fds[2], [uar.fds[3]], domain.reply.pd)
        program.target.qkey = self._rng.getrandbits(32)
        self._programs.append(program)
        for make in (self._new_memory, self._new_cq, self._new_handle, self._new_qp, self._new_qp):
            make(program)

    def _ask(self, program: FuzzedProgram, command: commands.Command, *, fds: Sequence[int] = ()) -> RawAnswer:
        self.entries += 1
        answer = program.device.ask(command, fds=fds)
        self.statuses[answer.status.name] += 1
        return answer

    def _create(self, program: FuzzedProgram) -> None:
        rng = self._rng
        rng.choice((self._new_qp, self._new_cq, self._new_handle, self._new_memory))(program)

    def _new_memory(self, program: FuzzedProgram) -> None:
        if len(program.payloads) >= MAX_OBJECTS:
            return
        rng = self._rng
        fd = os.memfd_create("fuzz", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        program.payloads.append(fd)
        os.ftruncate(fd, PAYLOAD_BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, rng.choice((fcntl.F_SEAL_SHRINK,) * 8 + (fcntl.F_SEAL_WRITE, 0)))
        iova = rng.choice((0x7F0000000000, 0x1000, (1 << 64) - PAYLOAD_BYTES, 1 << 63)) + rng.choice((0, 0, 8, 4095))
        length = PAYLOAD_BYTES - 4096
        command = commands.RegMr(
            program.pd, self._forge.maybe(0, bits=64, share=0.97), self._forge.maybe(length, bits=64, share=0.97),
            12, self._forge.maybe(_ALL_RIGHTS, bits=3, share=0.8), 1, min(iova, (1 << 64) - length),
        )  # fmt: skip
        reply = self._ask(program, command, fds=[fd]).reply
        if isinstance(reply, replies.RegMrReply):
            program.target.memory.append((command.iova, command.mr_length, reply.l_key, reply.r_key))

    def _new_cq(self, program: FuzzedProgram) -> None:
        if len(program.cqs) >= MAX_OBJECTS:
            return
        rng = self._rng
        entry_bytes, depth = rng.choice((io.CQE_BYTES, io.CQE_EX_BYTES)), 1 << rng.choice((0, 6, 10, 12, 12, 13, 13))
        caps_1, caps_2 = commands.cq_caps(entry_bytes=entry_bytes, interrupt_mode=rng.random() < 0.5)
        command = commands.CreateCq(caps_1, caps_2, self._forge.maybe(depth, bits=16, share=0.95), uar=1)
        answer = self._ask(program, command)
        if isinstance(answer.reply, replies.CreateCqReply):
            program.event_fds += answer.fds[1:]
            ring = map_and_close(answer.fds[0], writable=False)
            index = answer.reply.db_offset // memory.DOORBELL_BYTES
            program.cqs.append(Cq(answer.reply.cq_idx, ring, command.cq_depth, entry_bytes, index))

    def _new_handle(self, program: FuzzedProgram) -> None:
        if len(program.target.ahs) >= MAX_OBJECTS:
            return
        gid = self._rng.choice(self._gids) if self._rng.random() < 0.95 else self._rng.randbytes(16)
        reply = self._ask(program, commands.CreateAh(gid, program.pd)).reply
        if isinstance(reply, replies.CreateAhReply):
            program.target.ahs.append(reply.ah)

    def _new_qp(self, program: FuzzedProgram) -> None:
        if len(program.qps) >= MAX_QPS or not program.cqs:
            return
        rng = self._rng
        wqe_bytes = rng.choice((limits.WQE_BYTES, limits.WIDE_WQE_BYTES))
        sq_depth, rq_depth = 1 << rng.randrange(10), 1 << rng.randrange(10)
        send_cq, recv_cq = rng.choice(program.cqs), rng.choice(program.cqs)
        command = commands.CreateQp(
            program.pd, enums.QpType.SRD, rng.choice((0, 0, 0, enums.CreateQpFlag.UNSOLICITED_WRITE_RECV)),
            send_cq_idx=send_cq.number, recv_cq_idx=recv_cq.number,
            send_queue_ring_size=self._forge.maybe(sq_depth * wqe_bytes, bits=32, share=0.97),
            send_queue_depth=sq_depth, recv_queue_ring_size=rq_depth * io.RX_DESC_BYTES,
            recv_queue_depth=self._forge.maybe(rq_depth, bits=32, share=0.97), uar=1,
        )  # fmt: skip
        answer = self._ask(program, command)
        if not isinstance(answer.reply, replies.CreateQpReply):
            return
        reply = answer.reply
        ring = map_and_close(answer.fds[0], writable=True)
        program.qps.append(
            Qp(reply.qp_handle, ring, sq_depth, wqe_bytes, command.recv_queue_depth, reply.sq_db_offset // 4,
               reply.rq_db_offset // 4, reply.qp_num)
        )  # fmt: skip
        program.target.qp_nums.append(reply.qp_num)
        self._to_rts(program, program.qps[-1])

    def _to_rts(self, program: FuzzedProgram, qp: Qp) -> None:
        bits = enums.ModifyMask.QP_STATE | enums.ModifyMask.QKEY | enums.ModifyMask.RNR_RETRY
        for state in (enums.QpState.INIT, enums.QpState.RTR, enums.QpState.RTS):
            retry = self._rng.randrange(8)
            command = commands.ModifyQp(bits, qp.handle, state, qkey=program.target.qkey, rnr_retry=retry)
            self._ask(program, command)

    # -- moves ------------------------------------------------------------------------------------------------------

    def _ring(self, program: FuzzedProgram, index: int, value: int) -> None:
        program.uar[index] = value & 0xFFFFFFFF
        self._kick(program, 1)

    def _kick(self, program: FuzzedProgram, value: int) -> None:
        if select.select((), (program.kick_fd,), (), 0)[1]:
            with suppress(BlockingIOError):
                os.eventfd_write(program.kick_fd, value)

    def _send(self, program: FuzzedProgram) -> None:
        if not program.qps:
            return
        rng = self._rng
        qp = rng.choice(program.qps)
        free = qp.sq_depth - (qp.sent - qp.sends_done)
        count = min(rng.choice((1, 2, 5, 16, 40)), qp.sq_depth if rng.random() < 0.01 else max(free, 0))
        repeated = b""
        for _ in range(count):
            slot, phase = qp.sent % qp.sq_depth, memory.sq_phase(qp.sent, depth=qp.sq_depth)
            if not repeated or rng.random() < 0.3:  # equal neighbours are carried out as one batch
                repeated = self._forge.wqe(program.target, phase=phase, wqe_bytes=qp.wqe_bytes)
            start = slot * qp.wqe_bytes
            if start + qp.wqe_bytes <= len(qp.ring):
                qp.ring[start : start + qp.wqe_bytes] = self._forge.mutated(repeated, share=0.03)
            qp.sent += 1
            self.entries += 1
        self._ring(program, qp.sq_index, qp.sent & 0xFFFF if rng.random() < 0.99 else rng.getrandbits(32))

    def _post_receives(self, program: FuzzedProgram) -> None:
        if not program.qps:
            return
        rng = self._rng
        qp = rng.choice(program.qps)
        at = memory.rq_offset(qp.sq_depth, wqe_bytes=qp.wqe_bytes)
        free = qp.rq_depth - (qp.received - qp.receives_done)
        marks = [(True, True)] * 6 + [(True, False), (False, True)] if rng.random() < 0.02 else [(True, True)]
        if rng.random() < 0.3 and free % 2 == qp.received % 2 == 0:
            marks = [(True, False), (False, True)]  # two buffers each
        for index in range(min(rng.choice((2, 8, 30)), qp.rq_depth if rng.random() < 0.01 else max(free & -2, 0))):
            first, last = marks[index % len(marks)]
            start = at + qp.received % qp.rq_depth * io.RX_DESC_BYTES
            if start + io.RX_DESC_BYTES <= len(qp.ring):
                qp.ring[start : start + io.RX_DESC_BYTES] = self._forge.rx(program.target, first=first, last=last)
            qp.received += 1
            self.entries += 1
        self._ring(program, qp.rq_index, qp.received & 0xFFFF if rng.random() < 0.99 else rng.getrandbits(32))

    def _poll(self, program: FuzzedProgram) -> None:
        """Consume completions, as a good program; most of the time of all queues."""
        for cq in program.cqs:
            if self._rng.random() < 0.1:
                continue
            for _ in range(cq.depth):
                start = cq.consumed % cq.depth * cq.entry_bytes
                phase = memory.ring_phase(cq.consumed, depth=cq.depth)
                if cq.ring[start + 3] & io.CQE_PHASE != phase:
                    break
                self._note(program, *io.CQE.unpack_from(cq.ring, start)[1:4])
                cq.consumed += 1
            if self._rng.random() < 0.005:
                cq.consumed += self._rng.randrange(-3, 3)
            word = memory.cq_doorbell(cq.consumed, cmd_sn=self._rng.randrange(4), arm=self._rng.random() < 0.5)
            self.entries += 1
            self._ring(program, cq.doorbell_index, word)

    def _note(self, program: FuzzedProgram, status: int, flags: int, qp_num: int) -> None:
        if not flags & io.CQE_QUEUE_MASK:
            return  # nothing was stored there yet: the consumer counter was changed at random
        queue = io.QueueType((flags & io.CQE_QUEUE_MASK) >> io.CQE_QUEUE_SHIFT)
        self.statuses[f"{queue.name} {io.CompStatus(status).name}"] += 1
        for qp in program.qps:
            if qp.number == qp_num:
                qp.sends_done += queue is io.QueueType.SEND
                qp.receives_done += queue is io.QueueType.RECV

    def _doorbells(self, program: FuzzedProgram) -> None:
        """Ring any doorbell with any value."""
        rng = self._rng
        qp_words = [index for qp in program.qps for index in (qp.sq_index, qp.rq_index)]
        words = qp_words if rng.random() < 0.3 else [cq.doorbell_index for cq in program.cqs]
        for _ in range(rng.randrange(4)):
            index = rng.choice(words) if words and rng.random() < 0.9 else rng.randrange(len(program.uar))
            self.entries += 1
            self._ring(program, index, self._forge.edge(32))

    def _scribble(self, program: FuzzedProgram) -> None:
        """Write random bytes over all that may be written."""
        rng = self._rng
        if program.qps and rng.random() < 0.7:
            ring = rng.choice(program.qps).ring
            length = min(len(ring), 4096)
            start = rng.randrange(len(ring) - length + 1)
            ring[start : start + length] = rng.randbytes(length)
        elif rng.random() < 0.1:
            for index in range(len(program.uar)):
                program.uar[index] = rng.getrandbits(32)
        self._kick(program, rng.choice((1, 1 << 40)))

    def _modify(self, program: FuzzedProgram) -> None:
        if not program.qps:
            return
        rng = self._rng
        qp = rng.choice(program.qps)
        if rng.random() < 0.6:  # begin anew
            self._ask(program, commands.ModifyQp(enums.ModifyMask.QP_STATE, qp.handle, enums.QpState.RESET))
            if rng.random() < 0.9:
                qp.restart()
                program.uar[qp.sq_index] = program.uar[qp.rq_index] = 0
            self._to_rts(program, qp)
            return
        self._ask(
            program, commands.ModifyQp(rng.getrandbits(6), qp.handle, rng.randrange(8), rng.randrange(8),
                                    program.target.qkey, rng.getrandbits(32), 0, rng.randrange(9)),
        )  # fmt: skip

    def _destroy(self, program: FuzzedProgram) -> None:
        rng, target = self._rng, program.target
        kind = rng.randrange(5)
        if kind == 0 and program.qps:
            at = rng.randrange(len(program.qps))
            self._ask(program, commands.DestroyQp(program.qps[at].handle))
            del program.qps[at], target.qp_nums[at]
        elif kind == 1 and program.cqs:
            at = rng.randrange(len(program.cqs))
            if self._ask(program, commands.DestroyCq(program.cqs[at].number)).status is enums.AdminStatus.SUCCESS:
                del program.cqs[at]
        elif kind == 2 and target.ahs:
            ah = target.ahs.pop(rng.randrange(len(target.ahs)))
            self._ask(program, commands.DestroyAh(ah, program.pd))
        elif kind == 3 and target.memory:
            lkey = target.memory.pop(rng.randrange(len(target.memory)))[2]
            self._ask(program, commands.DeregMr(lkey))
            if program.payloads and rng.random() < 0.8:
                close_all([program.payloads.pop(0)])
        elif kind == 4:
            self._ask(program, rng.choice((commands.DeallocPd(program.pd), commands.DeallocUar(1))))

    def _valid_command(self, program: FuzzedProgram) -> None:
        self._raw(program, program.device.entry(self._forge.any_command()))

    def _raw(self, program: FuzzedProgram, data: bytes) -> None:
        self.entries += 1
        reply, received = program.device.exchange(data)
        close_all(received)
        self.statuses[enums.AdminStatus(reply[2]).name] += 1

    def _garbage(self, program: FuzzedProgram) -> None:
        rng, device = self._rng, program.device
        kind = rng.randrange(4)
        if kind == 0:
            self._raw(program, rng.randbytes(rng.choice((1, 2, 3, 4, 63, 64, 64, 64, 65, 200))))
        elif kind == 1:
            self._raw(program, self._forge.mutated(device.entry(self._forge.any_command()), share=1.0))
        elif kind == 2:
            header = (device.count & 0xFFF).to_bytes(2, "little") + bytes([rng.randrange(22), device.phase])
            self._raw(program, header + rng.randbytes(60))
        else:
            self._raw(program, admin.encode_command(commands.AllocPd(), command_id=7, phase=device.phase ^ 1))

    def _descriptors(self, program: FuzzedProgram) -> None:
        """Send descriptors of all kinds with a command that takes some, or none."""
        rng = self._rng
        with suppress(OSError):
            opened = [self._odd_descriptor() for _ in range(rng.randrange(6))]
            command: commands.Command = commands.AllocPd()
            if rng.random() < 0.8:
                command = commands.RegMr(program.pd, 0, 4096, 12, _ALL_RIGHTS, 1, 0x7F0000000000)
            try:
                close_all(self._ask(program, command, fds=opened).fds)
            finally:
                close_all(opened)

    def _odd_descriptor(self) -> int:
        rng = self._rng
        kind = rng.randrange(7)
        if kind == 0:
            return os.eventfd(0)
        if kind == 1:
            return os.open("/dev/null", os.O_RDWR)
        if kind == 2:
            return os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY)
        if kind == 3:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                return sock.detach()
        if kind == 4:
            with tempfile.TemporaryFile() as file:
                file.truncate(8192)
                return os.dup(file.fileno())
        fd = os.memfd_create("odd", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, rng.choice((0, 1, 4095, 4096, 8192)))
        if kind == 5:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, rng.getrandbits(5))
        return fd

    def _unread(self, program: FuzzedProgram) -> None:
        """Send commands without reading the answers; then read them all, or leave."""
        device = program.device
        device.socket.settimeout(0)
        sent = 0
        with suppress(BlockingIOError):
            for _ in range(self._rng.randrange(UNREAD)):
                device.send(device.entry(self._forge.any_command()))
                sent += 1
        self.entries += sent
        device.socket.settimeout(60)
        if self._rng.random() < 0.3:
            program.is_dead = True
            return
        for _ in range(sent):
            data, fds = device.receive()
            close_all(fds)
            self.statuses[enums.AdminStatus(data[2]).name] += 1

    def _eventfds(self, program: FuzzedProgram) -> None:
        """Let the card wait for a full or an empty eventfd, if it can."""
        for fd in (program.kick_fd, *program.event_fds):
            os.set_blocking(fd, False)
            with suppress(OSError):
                if self._rng.random() < 0.5:
                    os.eventfd_write(fd, (1 << 64) - 2)
                else:
                    os.eventfd_read(fd)
            if fd != program.kick_fd or self._rng.random() < 0.5:
                os.set_blocking(fd, True)

    def _memory_tricks(self, program: FuzzedProgram) -> None:
        """Shrink, punch holes into and close what is registered."""
        if not program.payloads:
            return
        rng = self._rng
        fd = rng.choice(program.payloads)
        with suppress(OSError):
            os.ftruncate(fd, rng.choice((0, 4096)))
        with suppress(OSError):
            _punch_hole(fd)
        if rng.random() < 0.2:
            program.payloads.remove(fd)
            os.close(fd)

    def _leave(self, program: FuzzedProgram) -> None:
        if self._rng.random() < 0.5:
            program.is_dead = True


def _punch_hole(fd: int) -> None:
    """Free the pages of a memfd, which are zeros then."""
    libc = ctypes.CDLL(None, use_errno=True)
    keep_size_and_punch = 3
    libc.fallocate(fd, keep_size_and_punch, ctypes.c_long(0), ctypes.c_long(PAYLOAD_BYTES))


def fuzz(*, path: str, seed: int, gids: Sequence[str]) -> None:
    """Serve stdin; `gids`: whom its address handles name, its own device among them, in hex."""
    fuzzer = Fuzzer(Path(path), seed=seed, gids=[bytes.fromhex(gid) for gid in gids])
    for line in sys.stdin:
        if line.strip() == "leave":
            fuzzer.close()
            emit("left")
            continue
        for _ in range(int(line)):
            fuzzer.step()
        emit("took", entries=fuzzer.entries, connections=fuzzer.connections, statuses=dict(fuzzer.statuses))
