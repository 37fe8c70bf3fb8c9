"""The driver on a real card in a process of its own: what the fake one cannot show."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from devmem.region import Region
from nitro_emu.efa.verbs import (
    Access,
    AddressHandle,
    CompletionChannel,
    CompletionQueue,
    Context,
    MemoryRegion,
    ProtectionDomain,
    QpOptions,
    QueuePair,
    RecvRequest,
    SendFlags,
    SendOp,
    SendOps,
    SendRequest,
    Sge,
    WcStatus,
    WorkCompletion,
)
from nitro_emu.errors import VerbsError
from tests.nitro_emu.card_process import loopback_vf, running_card
from tests.nitro_emu.processes import card_file, nitro_card
from tests.patience import PATIENCE_S

QKEY: Final = 0x1234
MEMORY_BYTES: Final = 1 << 20
ACCESS: Final = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
OPTIONS: Final = QpOptions(
    max_send_wr=64,
    max_recv_wr=64,
    max_send_sge=2,
    max_recv_sge=2,
    max_inline_data=32,
    send_ops=SendOps.SEND | SendOps.RDMA_READ | SendOps.RDMA_WRITE | SendOps.RDMA_WRITE_WITH_IMM,
)
PLAIN: Final = "security: {mode: plain}"


@dataclass
class End:
    """A program: a context, and one of everything in it. Its memory begins within a page."""

    context: Context
    pd: ProtectionDomain
    channel: CompletionChannel
    cq: CompletionQueue
    qp: QueuePair
    region: Region
    mr: MemoryRegion
    ah: AddressHandle

    def array(self, offset: int, length: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        return self.region.array[FIRST + offset : FIRST + offset + length]

    def sge(self, offset: int, length: int) -> Sge:
        return Sge(self.mr.address + offset, length, self.mr.lkey)

    def wait(self, count: int) -> list[WorkCompletion]:
        """Wait for completions, and return them."""
        found: list[WorkCompletion] = []
        until = time.monotonic() + PATIENCE_S
        while len(found) < count:
            self.cq.request_notify()
            more = self.cq.poll(count - len(found))
            if not more:
                assert time.monotonic() < until
                self.channel.get_event(timeout_s=PATIENCE_S)
            found += more
        return found


FIRST: Final = 100
"""Where the registered memory begins in its region."""


@contextmanager
def end(directory: Path) -> Iterator[End]:
    with Context("efa_0", directory=directory) as context:
        pd, channel = ProtectionDomain(context), CompletionChannel(context)
        cq = CompletionQueue(context, 256, channel=channel)
        qp = QueuePair(pd, send_cq=cq, recv_cq=cq, options=OPTIONS)
        qp.to_rts(qkey=QKEY)
        region = Region(MEMORY_BYTES)
        mr = MemoryRegion(pd, region, offset=FIRST, access=ACCESS)
        yield End(context, pd, channel, cq, qp, region, mr, AddressHandle(pd, gid=context.attributes.gid))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_card(tmp_path_factory.mktemp("card"), vfs=[loopback_vf(more=PLAIN)]) as directory:
        yield directory


@pytest.fixture
def ends(directory: Path) -> Iterator[tuple[End, End]]:
    with end(directory) as one, end(directory) as two:
        yield one, two


def random_bytes(length: int, *, seed: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, length, np.uint8)


def test_sends_of_every_shape(ends: tuple[End, End]) -> None:
    one, two = ends
    content = random_bytes(5000, seed=1)
    one.array(0, 5000)[:] = content
    two.qp.post_recv(
        RecvRequest(1, (two.sge(3, 1000), two.sge(9000, 8000))),
        RecvRequest(2, (two.sge(20000, 100),)),
        RecvRequest(3, (two.sge(30000, 100),)),
    )
    request = SendRequest(one.ah, two.qp.number, QKEY)
    inline = SendFlags.SIGNALED | SendFlags.INLINE
    one.qp.post_send(replace(request, wr_id=1, sges=(one.sge(0, 1500), one.sge(1500, 500))))
    assert two.wait(1)[0].byte_len == 2000
    one.qp.post_send(replace(request, wr_id=2, sges=(one.sge(0, 10), one.sge(50, 22)), flags=inline))
    assert two.wait(1)[0].byte_len == 32
    one.qp.post_send(replace(request, wr_id=3))
    assert two.wait(1)[0].byte_len == 0
    assert sorted(done.wr_id for done in one.wait(3)) == [1, 2, 3]
    assert (two.array(3, 1000) == content[:1000]).all()
    assert (two.array(9000, 1000) == content[1000:2000]).all()
    assert (two.array(20000, 32) == np.concatenate([content[:10], content[50:72]])).all()
    assert not two.array(20032, 100).any()


def test_many_at_once(ends: tuple[End, End]) -> None:
    one, two = ends
    content = random_bytes(64 * 512, seed=2)
    one.array(0, len(content))[:] = content
    offsets = np.arange(64, dtype=np.uint64) * 512
    for lap in range(5):
        two.array(0, len(content))[:] = 0
        two.qp.post_recvs(two.mr.address + offsets, lengths=512, lkey=two.mr.lkey, wr_ids=offsets)
        one.qp.post_sends(
            one.ah,
            remote_qpn=two.qp.number,
            remote_qkey=QKEY,
            addresses=one.mr.address + offsets,
            lengths=512,
            lkey=one.mr.lkey,
            wr_ids=range(64),
        )
        received = two.wait(64)
        assert {done.status for done in received} == {WcStatus.SUCCESS}
        assert sorted(done.wr_id for done in one.wait(64)) == list(range(64))
        rows = {two.array(done.wr_id, 512).tobytes() for done in received}
        assert rows == {content[offset : offset + 512].tobytes() for offset in offsets.tolist()}, lap


@pytest.mark.parametrize("op", [SendOp.RDMA_READ, SendOp.RDMA_WRITE])
def test_remote_memory(ends: tuple[End, End], op: SendOp) -> None:
    one, two = ends
    source, sink = (two, one) if op is SendOp.RDMA_READ else (one, two)
    content = random_bytes(300_000, seed=3)
    source.array(5, len(content))[:] = content
    one.qp.post_rdma(
        op,
        one.ah,
        remote_qpn=two.qp.number,
        remote_qkey=QKEY,
        addresses=one.mr.address + 5,
        lengths=len(content),
        lkey=one.mr.lkey,
        remote_addresses=two.mr.address + 5,
        rkey=two.mr.rkey,
        wr_ids=[9],
    )
    (done,) = one.wait(1)
    assert (done.wr_id, done.status) == (9, WcStatus.SUCCESS)
    assert (sink.array(5, len(content)) == content).all()
    assert not sink.array(0, 5).any()


def test_the_last_byte_of_a_registration(ends: tuple[End, End]) -> None:
    one, two = ends
    last = MEMORY_BYTES - FIRST - 1
    one.array(0, 2)[:] = 77
    statuses = []
    for length in (1, 2):
        one.qp.post_rdma(
            SendOp.RDMA_WRITE,
            one.ah,
            remote_qpn=two.qp.number,
            remote_qkey=QKEY,
            addresses=one.mr.address,
            lengths=length,
            lkey=one.mr.lkey,
            remote_addresses=two.mr.address + last,
            rkey=two.mr.rkey,
            wr_ids=[length],
        )
        statuses.append(one.wait(1)[0].status)
    assert statuses == [WcStatus.SUCCESS, WcStatus.REM_ACCESS_ERR]
    assert two.region.array[-1] == 77


def test_a_card_that_is_killed_wakes_everybody(tmp_path: Path) -> None:
    config = card_file(tmp_path, vfs=[loopback_vf(more=PLAIN)])
    with nitro_card("run", str(config), "--json") as process:
        process.event("ready")
        with end(tmp_path / "run") as program:
            raised: list[int] = []

            def wait() -> None:
                with pytest.raises(VerbsError) as info:
                    program.channel.get_event()
                raised.append(info.value.errno)

            thread = threading.Thread(target=wait)
            thread.start()
            os.kill(process.popen.pid, signal.SIGKILL)
            thread.join(PATIENCE_S)
            assert raised == [errno.EIO]
            with pytest.raises(VerbsError) as info:
                program.qp.post_recv(RecvRequest())
            assert info.value.errno == errno.EIO
