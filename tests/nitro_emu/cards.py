"""Real card processes with tenants' devices, as tests of faults need them: killed, restarted, asked, limited."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nitro_emu.card.control import ask
from nitro_emu.efa.verbs import (
    Access,
    AddressHandle,
    CompletionChannel,
    CompletionQueue,
    CompStatus,
    Context,
    MemoryRegion,
    ProtectionDomain,
    QpOptions,
    QpState,
    QueuePair,
    RecvRequest,
    SendOp,
    SendOps,
    SendRequest,
    Sge,
    WorkCompletion,
    WrOpcode,
)
from tests.nitro_emu.pattern import pattern
from tests.nitro_emu.processes import card_file, loopback_vf
from tests.patience import wait_until
from tests.srd.cli.processes import Process

QKEY = 0x11111111
GUARD = 0xA5
PLAIN = "security: {mode: plain}"
ALL_ACCESS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
ALL_OPS = SendOps.SEND | SendOps.SEND_WITH_IMM | SendOps.RDMA_READ | SendOps.RDMA_WRITE | SendOps.RDMA_WRITE_WITH_IMM
OPTIONS = QpOptions(max_send_wr=8, max_recv_wr=8, max_send_sge=2, max_recv_sge=2, max_inline_data=32, send_ops=ALL_OPS)


@dataclass
class Card:
    """A card that runs, and how to reach it."""

    process: Process
    run_dir: Path
    config: Path
    prefix: Sequence[str] = ()

    @property
    def pid(self) -> int:
        return self.process.popen.pid

    def socket(self, name: str) -> Path:
        return self.run_dir / f"{name}.sock"

    def stats(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = ask(self.run_dir, "stats")["vfs"][name]
        return found

    def resources(self, name: str) -> dict[str, int]:
        found: dict[str, int] = self.stats(name)["resources"]
        return found

    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def settled_descriptors(self) -> int:
        """As `descriptors`, or one more: after a question at the control socket, for which uvloop keeps a spare one."""
        self.stats("efa_0")
        return self.descriptors()

    def programs(self, name: str) -> list[int]:
        found: list[int] = ask(self.run_dir, "status")["vfs"][name]["programs"]
        return found

    def kill(self) -> None:
        self.process.kill(signal.SIGKILL)
        self.process.wait()

    def start(self) -> None:
        """Start it again, after `kill`."""
        self.process.__exit__(None, None, None)
        self.process = _started(self.config, prefix=self.prefix)


def _started(config: Path, *, prefix: Sequence[str]) -> Process:
    process = Process([*prefix, sys.executable, "-m", "nitro_emu.cli", "run", str(config), "--json-lines"])
    process.event("ready")
    return process


@contextmanager
def card(
    directory: Path, *, vfs: Sequence[str] = ("efa_0",), limits: str = "", more: str = "", prefix: Sequence[str] = ()
) -> Iterator[Card]:
    """Run a card with these devices. It must end well, if nobody has killed it, and log no error of its own.

    `limits`: settings of each device; `prefix`: a command that runs the card.
    """
    settings = f"{PLAIN}{limits and ', ' + limits}"
    with running_card(
        directory, vfs=[loopback_vf(name, more=settings) for name in vfs], more=more, prefix=prefix
    ) as running:
        yield running


@contextmanager
def running_card(directory: Path, *, vfs: Sequence[str], more: str = "", prefix: Sequence[str] = ()) -> Iterator[Card]:
    """Run a card with these virtual functions, each a line of YAML without braces, as `card` does."""
    directory.mkdir(exist_ok=True)
    config = card_file(directory, vfs=vfs, more=more)
    with running_card_of(config, run_dir=directory / "run", prefix=prefix) as running:
        yield running


@contextmanager
def running_card_of(config: Path, *, run_dir: Path, prefix: Sequence[str] = ()) -> Iterator[Card]:
    """Run a card with these settings, as `card` does."""
    running = Card(_started(config, prefix=prefix), run_dir, config, prefix)
    try:
        yield running
        if running.process.popen.poll() is None:
            running.process.kill(signal.SIGTERM)
            status = running.process.wait()
            log = "\n".join(running.process.stderr.all())
            assert status == 0, log
            assert "internal error" not in log, log
            assert "Traceback" not in log, log
    finally:
        running.process.__exit__(None, None, None)


class Tenant:
    """A program's objects at one device; its memory is filled with a guard, so that misplaced bytes show."""

    def __init__(
        self, running: Card, name: str = "efa_0", *, options: QpOptions = OPTIONS, cq_depth: int = 64, gid: bool = False
    ) -> None:
        self._kept: list[object] = []
        self.context = Context(name, directory=running.run_dir)
        self.pd = ProtectionDomain(self.context)
        self.channel = CompletionChannel(self.context)
        self.cq = CompletionQueue(self.context, cq_depth, channel=self.channel, with_source_gid=gid)
        self.qp = self.queue_pair(options=options)
        self.qp.to_rts(qkey=QKEY, rnr_retry=0)
        self.mr = self.memory()
        self.bytes = self.array(self.mr)

    @property
    def gid(self) -> bytes:
        return self.context.attributes.gid

    def queue_pair(self, *, options: QpOptions = OPTIONS, pd: ProtectionDomain | None = None) -> QueuePair:
        return QueuePair(pd or self.pd, send_cq=self.cq, recv_cq=self.cq, options=options)

    def memory(
        self, *, length: int = 1 << 16, access: Access = ALL_ACCESS, pd: ProtectionDomain | None = None
    ) -> MemoryRegion:
        memory = MemoryRegion.allocate(pd or self.pd, length=length, access=access)
        self.array(memory)[:] = GUARD
        self._kept.append(memory)
        return memory

    @staticmethod
    def array(memory: MemoryRegion) -> Any:
        assert memory.region is not None
        return memory.region.array

    def handle(self, other: Tenant, *, pd: ProtectionDomain | None = None) -> AddressHandle:
        handle = AddressHandle(pd or self.pd, gid=other.gid)
        self._kept.append(handle)  # one that nobody refers to is destroyed, and its requests are flushed
        return handle

    def sge(self, length: int, *, at: int = 0, memory: MemoryRegion | None = None) -> Sge:
        memory = memory or self.mr
        return Sge(memory.address + at, length, memory.lkey)

    def retry(self, rnr_retry: int) -> None:
        """Begin anew, with so many retries."""
        self.qp.modify(QpState.RESET)
        self.qp.to_rts(qkey=QKEY, rnr_retry=rnr_retry)

    def receive(self, wr_id: int, *sges: Sge) -> None:
        self.qp.post_recv(RecvRequest(wr_id, sges))

    def send(
        self, ah: AddressHandle, to: int, *sges: Sge, wr_id: int = 1, qkey: int = QKEY, immediate: int | None = None
    ) -> None:
        opcode = WrOpcode.SEND if immediate is None else WrOpcode.SEND_WITH_IMM
        self.qp.post_send(SendRequest(ah, to, qkey, wr_id, sges, opcode, immediate=immediate or 0))

    def rdma(
        self,
        op: SendOp,
        ah: AddressHandle,
        *,
        to: int,
        local: Sge,
        rkey: int,
        address: int,
        wr_id: int = 1,
        immediate: int | None = None,
    ) -> None:
        self.qp.post_rdma(
            op, ah, remote_qpn=to, remote_qkey=QKEY, addresses=local.address, lengths=local.length, lkey=local.lkey,
            remote_addresses=address, rkey=rkey, wr_ids=[wr_id], immediate=immediate,
        )  # fmt: skip

    def completions(self, count: int) -> list[WorkCompletion]:
        """Wait for so many completions, and return them."""
        found: list[WorkCompletion] = []

        def is_complete() -> bool:
            found.extend(self.cq.poll(count - len(found)))
            return len(found) == count

        wait_until(is_complete)
        return found

    def completion(self) -> WorkCompletion:
        return self.completions(1)[0]

    def close(self) -> None:
        self.context.close()


@contextmanager
def tenants(*wanted: tuple[Card, str], **options: Any) -> Iterator[list[Tenant]]:
    """Open devices, until the end of the block."""
    opened: list[Tenant] = []
    try:
        for running, name in wanted:
            opened.append(Tenant(running, name, **options))
        yield opened
    finally:
        for tenant in opened:
            tenant.close()


def exchange(left: Tenant, right: Tenant, *, number: int, ah: AddressHandle) -> None:
    """Send a message; compare every byte of the receiver's memory."""
    right.bytes[:] = GUARD
    data = pattern(number, length=3000)
    left.bytes[:3000] = data
    right.receive(number, right.sge(3000, at=999))
    left.send(ah, right.qp.number, left.sge(3000), wr_id=number)
    done, received = left.completion(), right.completion()
    assert (done.wr_id, done.vendor_error) == (number, CompStatus.OK)
    assert (received.wr_id, received.vendor_error, received.byte_len) == (number, CompStatus.OK, 3000)
    expected = np.full(len(right.bytes), GUARD, np.uint8)
    expected[999:3999] = data
    assert (right.bytes == expected).all(), "somebody else has written to a tenant's memory"
