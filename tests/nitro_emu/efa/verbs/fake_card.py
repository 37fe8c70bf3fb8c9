"""A card whose data path is the test: a thread answers admin commands, and the test reads and writes the rings."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, Self

from devmem.region import Region
from nitro_emu.efa.abi import admin, commands, enums, io, limits, memory, replies
from nitro_emu.efa.card.features import feature

MAX_QP: Final = 16
MAX_CQ: Final = 16
GID: Final = bytes.fromhex("fe804da3000000000000ffff0a000101")
_VF: Final[Any] = SimpleNamespace(
    gid=GID, mtu_bytes=8900,
    config=SimpleNamespace(max_qps=MAX_QP, max_cqs=MAX_CQ, max_mrs=1024, max_mr_bytes=1 << 32, max_pds=64, max_ahs=64),
)  # fmt: skip
FEATURES: Final[dict[int, replies.FeatureReply]] = {
    number: feature(_VF, number, events=None) for number in replies.FEATURES
}
"""A real card's, but for the device's version."""
_DEVICE: Final = FEATURES[enums.Feature.DEVICE_ATTR]
assert isinstance(_DEVICE, replies.DeviceAttr)
FEATURES[enums.Feature.DEVICE_ATTR] = replace(_DEVICE, device_version=0xEFA2)


class RxDescriptor(NamedTuple):
    """A buffer of a receive request."""

    req_id: int
    address: int
    length: int
    lkey: int
    first: bool
    last: bool

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Take 16 bytes apart."""
        address, req_id, length, lkey_ctrl = io.RX_DESC.unpack(data)
        assert not lkey_ctrl & io.RX_RESERVED
        first, last = bool(lkey_ctrl & io.RX_FIRST), bool(lkey_ctrl & io.RX_LAST)
        return cls(req_id, address, length, lkey_ctrl & limits.MAX_KEY, first, last)


@dataclass
class CardCq:
    """A completion queue, as the card has it."""

    region: Region
    depth: int
    entry_bytes: int
    slot: int
    event_fd: int | None
    set_src_addr: bool
    produced: int = 0


@dataclass
class CardQp:
    """A queue pair, as the card has it."""

    region: Region
    command: commands.CreateQp
    number: int
    slot: int
    state: int = 0
    sends_taken: int = 0
    recvs_taken: int = 0
    modified: list[commands.ModifyQp] = field(default_factory=list)

    @property
    def wqe_bytes(self) -> int:
        return self.command.send_queue_ring_size // self.command.send_queue_depth


class FakeCard:
    """Serves one device at `directory`/efa_0.sock until it is closed. `commands` has all that it was asked."""

    def __init__(self, directory: Path, *, name: str = "efa_0") -> None:
        self.directory = directory
        self.commands: list[commands.Command] = []
        self.refuse: dict[int, enums.AdminStatus] = {}
        self.features = dict(FEATURES)
        self.registered: list[tuple[commands.RegMr, int]] = []  # and the inode of the memfd
        self.cqs: dict[int, CardCq] = {}
        self.qps: dict[int, CardQp] = {}
        self.ended = threading.Event()  # a connection has
        self.hold = threading.Event()  # cleared: the card does not answer
        self.hold.set()
        self.next_qp_num: int | None = None
        self._count = 0
        self._events = 0
        self._uar = Region(memory.uar_bytes(max_qp=MAX_QP, max_cq=MAX_CQ))
        self._doorbells = memoryview(self._uar).cast("I")
        self._status = Region(memory.STATUS_BYTES)
        self.status = memoryview(self._status).cast("I")
        self.kick_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.aenq_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(directory / f"{name}.sock"))
        self._listener.listen()
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    # -- admin ------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            try:
                self._connection, _ = self._listener.accept()
            except OSError:
                return
            self._serve_connection(self._connection)
            self.ended.set()

    def _serve_connection(self, connection: socket.socket) -> None:
        commands = 0
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(connection, 4096, 4)
            except OSError:
                data, fds = b"", []
            if not data:
                connection.close()
                return
            self.hold.wait()
            decoded = admin.decode_command_untrusted(data)
            assert decoded.phase == memory.ring_phase(commands, depth=admin.QUEUE_DEPTH)
            assert decoded.command_id == commands & admin.MAX_COMMAND_ID
            commands += 1
            reply, status, out = self._answer(decoded.command, fds)
            for fd in fds:
                os.close(fd)
            entry = admin.encode_reply(reply, command_id=decoded.command_id, phase=decoded.phase, status=status)
            with suppress(OSError):
                socket.send_fds(connection, [entry], out)

    def _answer(
        self, command: commands.Command, fds: list[int]
    ) -> tuple[replies.Reply | None, enums.AdminStatus, list[int]]:
        self.commands.append(command)
        status = self.refuse.get(command.OPCODE, enums.AdminStatus.SUCCESS)
        if status is not enums.AdminStatus.SUCCESS:
            return None, status, []
        number = self._count = self._count + 1
        match command:
            case commands.AllocUar():
                out = [self._uar.fd, self._status.fd, self.kick_fd, self.aenq_fd]
                return replies.AllocUarReply(7), status, out
            case commands.GetFeature():
                return self.features[command.feature_id], status, []
            case commands.GetStats():
                kind = replies.STATS[command.stats_type]
                return kind(*range(len(fields(kind)))), status, []
            case commands.AllocPd():
                return replies.AllocPdReply(number), status, []
            case commands.CreateAh():
                return replies.CreateAhReply(number), status, []
            case commands.RegMr():
                self.registered.append((command, os.fstat(fds[0]).st_ino))
                return replies.RegMrReply(number, number << 8), status, []
            case commands.CreateCq():
                return self._create_cq(command, number)
            case commands.CreateQp():
                return self._create_qp(command, number)
            case commands.ModifyQp():
                self.qps[command.qp_handle].modified.append(command)
                self.qps[command.qp_handle].state = command.qp_state
                return replies.EmptyReply(), status, []
            case commands.QueryQp():
                return replies.QueryQpReply(self.qps[command.qp_handle].state, 0, 0, 0, 0), status, []
            case _:
                return replies.EmptyReply(), status, []

    def _create_cq(
        self, command: commands.CreateCq, number: int
    ) -> tuple[replies.Reply | None, enums.AdminStatus, list[int]]:
        region = Region(memory.cq_bytes(command.cq_depth, entry_bytes=command.entry_bytes))
        event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if command.interrupt_mode else None
        cq = CardCq(
            region, command.cq_depth, command.entry_bytes, len(self.cqs), event_fd, set_src_addr=command.set_src_addr
        )
        self.cqs[number] = cq
        reply = replies.CreateCqReply(
            number,
            command.cq_depth,
            memory.cq_doorbell_offset(cq.slot, max_qp=MAX_QP),
            int(enums.CqReplyFlag.DB_VALID),
        )
        return reply, enums.AdminStatus.SUCCESS, [region.fd] if event_fd is None else [region.fd, event_fd]

    def _create_qp(
        self, command: commands.CreateQp, number: int
    ) -> tuple[replies.Reply | None, enums.AdminStatus, list[int]]:
        wqe_bytes = command.send_queue_ring_size // command.send_queue_depth
        region = Region(
            memory.ring_bytes(sq_depth=command.send_queue_depth, wqe_bytes=wqe_bytes, rq_depth=command.recv_queue_depth)
        )
        slot = len(self.qps)
        qp_num = self.next_qp_num or 100 + slot
        self.qps[number] = CardQp(region, command, qp_num, slot)
        reply = replies.CreateQpReply(
            number,
            qp_num,
            0,
            0,
            memory.sq_doorbell_offset(slot),
            memory.rq_doorbell_offset(slot),
            memory.SQ_OFFSET,
        )
        return reply, enums.AdminStatus.SUCCESS, [region.fd]

    def of_kind(self, opcode: int) -> list[commands.Command]:
        """Return the commands of one kind, in order."""
        return [command for command in self.commands if opcode == command.OPCODE]

    # -- the data path ----------------------------------------------------------------------------------------------

    def doorbell(self, offset: int) -> int:
        return self._doorbells[offset // memory.DOORBELL_BYTES]

    def kicks(self) -> int:
        """Return how often the card has been woken since the last call."""
        try:
            return os.eventfd_read(self.kick_fd)
        except BlockingIOError:
            return 0

    def take_sends(self, qp: CardQp) -> list[io.SendDescriptor]:
        """Return the send requests between what was taken and the doorbell."""
        producer = self.doorbell(memory.sq_doorbell_offset(qp.slot))
        taken = []
        depth = qp.command.send_queue_depth
        while qp.sends_taken & 0xFFFF != producer:
            start = qp.sends_taken % depth * qp.wqe_bytes
            descriptor = io.unpack_wqe_untrusted(bytes(qp.region.view(start, length=qp.wqe_bytes)))
            assert descriptor.phase == memory.sq_phase(qp.sends_taken, depth=depth)
            taken.append(descriptor)
            qp.sends_taken += 1
        return taken

    def take_recvs(self, qp: CardQp) -> list[RxDescriptor]:
        """Return the receive descriptors between what was taken and the doorbell."""
        producer = self.doorbell(memory.rq_doorbell_offset(qp.slot))
        base = memory.rq_offset(qp.command.send_queue_depth, wqe_bytes=qp.wqe_bytes)
        taken = []
        while qp.recvs_taken & 0xFFFF != producer:
            start = base + qp.recvs_taken % qp.command.recv_queue_depth * io.RX_DESC_BYTES
            taken.append(RxDescriptor.of(bytes(qp.region.view(start, length=io.RX_DESC_BYTES))))
            qp.recvs_taken += 1
        return taken

    def consumed(self, cq: CardCq) -> memory.CqDoorbell:
        return memory.parse_cq_doorbell(self.doorbell(memory.cq_doorbell_offset(cq.slot, max_qp=MAX_QP)))

    def _store(self, cq: CardCq, flags: int, *numbers: int, req_id: int, status: int, extra: bytes = b"") -> None:
        """Store a completion; the bytes with its phase bit last."""
        flags |= memory.ring_phase(cq.produced, depth=cq.depth)
        cqe = (io.CQE.pack(req_id, status, flags, *numbers) + extra)[: cq.entry_bytes].ljust(cq.entry_bytes, b"\0")
        at = cq.produced % cq.depth * cq.entry_bytes
        cq.region[at + io.CQE_PHASE_BYTES : at + len(cqe)] = cqe[io.CQE_PHASE_BYTES :]
        cq.region[at : at + io.CQE_PHASE_BYTES] = cqe[: io.CQE_PHASE_BYTES]
        cq.produced += 1

    def complete_send(self, cq: CardCq, qp: CardQp, req_id: int, *, status: int = 0, op: int = 0) -> None:
        flags = io.QueueType.SEND << io.CQE_QUEUE_SHIFT | op << io.CQE_OP_SHIFT
        self._store(cq, flags, qp.number, 0, 0, 0, 0, req_id=req_id, status=status)

    def complete_recv(
        self,
        cq: CardCq,
        qp: CardQp,
        req_id: int,
        *,
        length: int = 0,
        op: int = 0,
        status: int = 0,
        immediate: int | None = None,
        unsolicited: bool = False,
        ah: int = 3,
        src_addr: bytes = b"",
    ) -> None:
        flags = io.QueueType.RECV << io.CQE_QUEUE_SHIFT | op << io.CQE_OP_SHIFT
        flags |= (io.CQE_HAS_IMM if immediate is not None else 0) | (io.CQE_UNSOLICITED if unsolicited else 0)
        extra = io.LENGTH_HI.pack(length >> 16) if op == io.SendOp.RDMA_WRITE else src_addr
        numbers = (qp.number, length & 0xFFFF, ah, 55, immediate or 0)
        self._store(cq, flags, *numbers, req_id=req_id, status=status, extra=extra)

    def raise_event(self, entry: admin.AenqEntry) -> None:
        """Add an asynchronous event."""
        phase = memory.ring_phase(self._events, depth=memory.AENQ_DEPTH)
        start = memory.AENQ_OFFSET + self._events % memory.AENQ_DEPTH * admin.ENTRY_BYTES
        self._status.view(start, length=admin.ENTRY_BYTES)[:] = admin.encode_aenq(entry, phase=phase)
        self._events += 1
        os.eventfd_write(self.aenq_fd, 1)

    def fire(self, cq: CardCq, times: int = 1) -> None:
        """Raise a queue's event."""
        assert cq.event_fd is not None
        os.eventfd_write(cq.event_fd, times)

    @staticmethod
    def device_attr(*, device_caps: int) -> replies.DeviceAttr:
        """Return the attributes of a device that can do less."""
        device = FEATURES[enums.Feature.DEVICE_ATTR]
        assert isinstance(device, replies.DeviceAttr)
        return replace(device, device_caps=device_caps)

    # -- the end ----------------------------------------------------------------------------------------------------

    def die(self) -> None:
        """End the connection, as a process that is killed does."""
        self.hold.set()
        if self._connection is not None:
            with suppress(OSError):  # it has ended already
                self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self.die()
        self._thread.join()
        self._listener.close()
        if self._connection is not None:
            self._connection.close()
        events = [cq.event_fd for cq in self.cqs.values() if cq.event_fd is not None]
        for fd in [self.kick_fd, self.aenq_fd, *events]:
            os.close(fd)
