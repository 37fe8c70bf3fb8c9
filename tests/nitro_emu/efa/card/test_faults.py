"""Faults of real processes: programs and cards that are killed, hosts that run out of something, tenants that cheat."""

# ruff: noqa: SIM117 - the outer block is the card, the inner what is opened at it

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from nitro_emu.efa.abi import admin, commands, enums, memory
from nitro_emu.efa.abi.enums import AdminStatus, AenqGroup
from nitro_emu.efa.verbs import AddressHandle, CompStatus, QpState, RecvRequest, SendOp, Sge, VerbsError
from scripts.benches.card_fuzz.raw_device import RawDevice, close_all, map_and_close
from tests.nitro_emu.cards import GUARD, QKEY, Card, Tenant, card, exchange, tenants
from tests.nitro_emu.pattern import pattern
from tests.patience import PATIENCE_S, wait_until
from tests.srd.cli.processes import Process

pytestmark = pytest.mark.compiled  # cards as processes

OK = CompStatus.OK
GONE = {CompStatus.REMOTE_ERROR_BAD_DEST_QPN, CompStatus.LOCAL_ERROR_UNRESP_REMOTE}
CARD_GONE = {
    CompStatus.LOCAL_ERROR_UNRESP_REMOTE, CompStatus.REMOTE_ERROR_UNKNOWN_PEER, CompStatus.LOCAL_ERROR_UNREACH_REMOTE,
}  # fmt: skip
VICTIM = Path(__file__).with_name("victim.py")
PAGE = memory.PAGE_BYTES


@pytest.fixture
def cards(tmp_path: Path) -> Iterator[tuple[Card, Card]]:
    with card(tmp_path / "a") as first, card(tmp_path / "b") as second:
        yield first, second


# -- an application is killed ---------------------------------------------------------------------------------------


def victim(running: Card, name: str = "efa_0") -> Process:
    """A program with objects at a device, that posts one receive request and then waits."""
    return Process([sys.executable, str(VICTIM), str(running.run_dir), name])


def test_a_killed_program_leaves_nothing_and_its_peers_hear_of_it(cards: tuple[Card, Card]) -> None:
    first, second = cards
    with tenants((first, "efa_0")) as (left,), victim(second) as program:
        found = program.event("ready")
        ah = AddressHandle(left.pd, gid=bytes.fromhex(found["gid"]))
        left.retry(7)
        left.send(ah, found["qp"], left.sge(64), wr_id=1)
        assert left.completion().vendor_error == OK, "it had posted one receive request"
        left.send(ah, found["qp"], left.sge(64), wr_id=2)  # waits for a receive request
        assert any(second.resources("efa_0").values())
        program.kill(signal.SIGKILL)
        program.wait()
        done = left.completion()
        assert (done.wr_id, CompStatus(done.vendor_error) in GONE) == (2, True)
        left.send(ah, found["qp"], left.sge(64), wr_id=3)
        assert CompStatus(left.completion().vendor_error) in GONE
        left.rdma(
            SendOp.RDMA_WRITE, ah, to=found["qp"], local=left.sge(64), rkey=found["rkey"], address=found["address"]
        )
        assert CompStatus(left.completion().vendor_error) in GONE
        wait_until(lambda: not any(second.resources("efa_0").values()))
        assert not second.programs("efa_0")
        with tenants((second, "efa_0")) as (right,):
            exchange(left, right, number=4, ah=left.handle(right))


def test_a_program_that_is_killed_in_the_middle_of_requests_leaves_nothing(cards: tuple[Card, Card]) -> None:
    first, second = cards
    before = first.settled_descriptors()
    with tenants((second, "efa_0")) as (right,):
        for _ in range(3):
            with victim(first) as program:
                program.event("ready")
                program.popen.kill()
                program.wait()
            wait_until(lambda: not any(first.resources("efa_0").values()))
        wait_until(lambda: first.descriptors() <= before)
        with tenants((first, "efa_0")) as (left,):
            exchange(left, right, number=1, ah=left.handle(right))


# -- a card is killed -----------------------------------------------------------------------------------------------


def test_a_killed_card_wakes_and_fails_everything_of_its_programs(cards: tuple[Card, Card]) -> None:
    first, _ = cards
    left = Tenant(first)
    raised: list[VerbsError] = []

    def wait() -> None:
        try:
            left.channel.get_event()
        except VerbsError as error:
            raised.append(error)

    left.cq.request_notify()
    waiting = threading.Thread(target=wait)
    waiting.start()
    first.kill()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    assert [error.errno for error in raised] == [errno.EIO]
    for call in (
        left.cq.poll,
        left.qp.query,
        left.channel.get_event,
        lambda: left.receive(1, left.sge(1)),
        lambda: left.qp.modify(QpState.ERR),
        left.memory,
    ):
        with pytest.raises(VerbsError) as caught:
            call()
        assert caught.value.errno == errno.EIO
    left.close()


def test_requests_to_a_killed_card_end_and_a_restarted_one_serves_again(cards: tuple[Card, Card]) -> None:
    first, second = cards
    with tenants((first, "efa_0")) as (left,):
        right = Tenant(second)
        ah = left.handle(right)
        exchange(left, right, number=1, ah=ah)
        left.retry(7)
        left.send(ah, right.qp.number, left.sge(64), wr_id=2)
        second.kill()
        done = left.completion()
        assert (done.wr_id, CompStatus(done.vendor_error) in CARD_GONE) == (2, True)
        left.send(ah, right.qp.number, left.sge(64), wr_id=3)
        assert CompStatus(left.completion().vendor_error) in CARD_GONE
        right.close()
        second.start()
        with tenants((second, "efa_0")) as (again,):
            exchange(left, again, number=4, ah=ah)
            exchange(again, left, number=5, ah=again.handle(left))


def test_a_card_that_ends_in_order_tells_its_programs(cards: tuple[Card, Card]) -> None:
    first, _ = cards
    with tenants((first, "efa_0")) as (left,):
        first.process.kill(signal.SIGTERM)
        wait_until(lambda: left.context.link.ended)
        assert AenqGroup.NOTIFICATION in [event.group for event in left.context.take_events()]
        assert first.process.wait() == 0  # or a second signal ends it at once


# -- something runs out ---------------------------------------------------------------------------------------------

LIMITED = """
import resource, sys, os
resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]),) * 2)
os.execv(sys.argv[3], sys.argv[3:])
"""


def limited(name: str, value: int) -> list[str]:
    return [sys.executable, "-c", LIMITED, name, str(value)]


def _takes_all(path: Path, *, opened: ExitStack) -> list[int]:
    """Open a device, and make objects, until the card refuses more; return how many programs and objects there are."""
    programs: list[RawDevice] = []
    while len(programs) < 100:
        device = opened.enter_context(RawDevice(path))
        try:
            close_all(device.ask(commands.AllocUar()).fds)
        except (ConnectionError, AssertionError):  # too many
            break
        programs.append(device)
    device, counts = programs[0], [len(programs)]
    assert device.ask(commands.AllocPd()).status is AdminStatus.SUCCESS
    caps = commands.cq_caps(entry_bytes=32, interrupt_mode=True)
    qp = commands.CreateQp(
        1, enums.QpType.SRD, send_cq_idx=1, recv_cq_idx=1, recv_queue_ring_size=256, recv_queue_depth=16, uar=1
    )
    with _memfd() as fd:
        region = commands.RegMr(1, 0, PAGE, 12, 7, 1, 0x10000)
        for command, fds in ((commands.CreateCq(*caps, 16, uar=1), []), (qp, []), (region, [fd])):
            counts.append(0)
            while (answer := device.ask(command, fds=fds)).status is AdminStatus.SUCCESS:
                close_all(answer.fds)
                counts[-1] += 1
            assert answer.status is AdminStatus.RESOURCE_ALLOCATION_FAILURE, command
    return counts


def test_a_tenant_that_takes_all_descriptors_that_it_gets_leaves_the_others_theirs(tmp_path: Path) -> None:
    names = ("efa_0", "efa_1")
    with card(tmp_path / "a", vfs=names, prefix=limited("RLIMIT_NOFILE", 800)) as running:
        with ExitStack() as opened:
            first, second = (_takes_all(running.socket(name), opened=opened) for name in names)
            assert first == second
            assert min(first) > 2
            assert first[-1] == 4096, "memory takes no descriptors"
            assert running.resources("efa_1")["mrs"] == 4096
            storm = [_connecting(running) for _ in range(40)]
            for sock in storm:
                sock.close()
        wait_until(lambda: not any(running.resources(name)["cqs"] for name in names))
        with tenants((running, "efa_0"), (running, "efa_1")) as (left, right):
            exchange(left, right, number=1, ah=left.handle(right))


def _connecting(running: Card) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    sock.connect_ex(str(running.socket("efa_0")))
    return sock


def test_a_storm_of_connections_harms_nobody(cards: tuple[Card, Card]) -> None:
    first, second = cards
    with tenants((first, "efa_0"), (second, "efa_0")) as (left, right):
        ah = left.handle(right)
        before = first.settled_descriptors()
        for number in range(1, 6):
            storm = [_connecting(first) for _ in range(200)]
            exchange(left, right, number=number, ah=ah)
            for sock in storm:
                sock.close()
        wait_until(lambda: len(first.programs("efa_0")) == 1)  # the end of the others
        wait_until(lambda: first.descriptors() <= before)


def test_a_card_without_address_space_refuses_and_serves_the_others(tmp_path: Path) -> None:
    with card(tmp_path / "a", limits="max_mr_bytes: 64G", prefix=limited("RLIMIT_AS", 2 << 30)) as running:
        with tenants((running, "efa_0"), (running, "efa_0")) as (left, right):
            ah = left.handle(right)
            with _memfd(1 << 30) as fd, RawDevice(running.socket("efa_0")) as greedy:
                greedy.ask(commands.AllocPd())
                pd = [number for number in range(1, 10) if _registers(greedy, number, fd=fd)]
                assert pd, "one GiB fits"
                statuses = [_register(greedy, pd[0], fd=fd) for _ in range(4)]
                assert statuses[-1] is AdminStatus.RESOURCE_ALLOCATION_FAILURE
                exchange(left, right, number=1, ah=ah)
            wait_until(lambda: running.resources("efa_0")["registered_bytes"] == 2 << 16)
            exchange(left, right, number=2, ah=ah)


def _register(device: RawDevice, pd: int, *, fd: int) -> AdminStatus:
    return device.ask(commands.RegMr(pd, 0, 1 << 30, 12, 7, 1, 1 << 32), fds=[fd]).status


def _registers(device: RawDevice, pd: int, *, fd: int) -> bool:
    return _register(device, pd, fd=fd) is AdminStatus.SUCCESS


class _memfd:  # noqa: N801 - a context manager, as a function would be
    """A sealed memfd."""

    def __init__(self, size: int = 1 << 20) -> None:
        self._size = size

    def __enter__(self) -> int:
        self._fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._fd, self._size)
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


# -- tenants that cheat ---------------------------------------------------------------------------------------------


def test_registered_memory_cannot_be_taken_from_under_the_card(cards: tuple[Card, Card]) -> None:
    first, second = cards
    with tenants((first, "efa_0"), (second, "efa_0")) as (left, right):
        assert left.mr.region is not None
        fd = left.mr.region.fd
        for size in (0, PAGE):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(1 << 16)) == 0, "a hole is allowed"
        right.receive(1, right.sge(3000, at=0))
        left.send(left.handle(right), right.qp.number, left.sge(3000))
        assert left.completion().vendor_error == OK
        assert right.completion().vendor_error == OK
        assert not right.bytes[:3000].any(), "a hole is zeros"
        assert (right.bytes[3000:] == GUARD).all()


def test_memory_stays_registered_when_its_descriptor_is_closed(cards: tuple[Card, Card]) -> None:
    first, second = cards
    with tenants((first, "efa_0"), (second, "efa_0")) as (left, right):
        with _memfd() as fd, mmap.mmap(fd, PAGE) as mapped:
            mapped[:] = pattern(1, length=PAGE).tobytes()
            reply = left.context.link.ask(commands.RegMr(left.pd.number, 0, PAGE, 12, 0, 1, 0x10000), fds=[fd])
        right.receive(1, right.sge(PAGE, at=0))
        left.send(left.handle(right), right.qp.number, Sge(0x10000, PAGE, reply.l_key))
        assert left.completion().vendor_error == OK
        right.completion()
        assert (right.bytes[:PAGE] == pattern(1, length=PAGE)).all()


def test_a_program_that_never_reads_its_answers_is_not_served_and_harms_nobody(cards: tuple[Card, Card]) -> None:
    first, second = cards
    with tenants((first, "efa_0"), (second, "efa_0")) as (left, right):
        ah = left.handle(right)
        with RawDevice(first.socket("efa_0")) as silent:
            sent = _send_until_blocked(silent)
            exchange(left, right, number=1, ah=ah)
            wait_until(lambda: first.stats("efa_0")["device"]["no_completion_cmds"] > 0)
            silent.socket.settimeout(PATIENCE_S)
            for number in range(sent):
                data, _ = silent.receive()
                assert data[0] == number & 0xFF, "none is lost, and they are in order"
                assert data[2] == AdminStatus.SUCCESS
        exchange(left, right, number=2, ah=ah)


def _send_until_blocked(device: RawDevice) -> int:
    """Send commands until the card takes no more; return how many."""
    device.socket.settimeout(0)
    before = device.count
    with suppress(BlockingIOError):
        while device.count < 100_000:
            device.send(device.entry(commands.GetFeature(feature_id=enums.Feature.DEVICE_ATTR)))
    assert device.count < 100_000
    return device.count - before


def test_a_program_that_never_polls_breaks_its_own_queue_pairs_only(cards: tuple[Card, Card]) -> None:
    first, second = cards
    with tenants((second, "efa_0")) as (right,), tenants((first, "efa_0")) as (left,):
        with tenants((first, "efa_0"), cq_depth=4) as (lazy,):
            ah = left.handle(right)
            lazy_ah = lazy.handle(right)
            for number in range(6):
                lazy.send(lazy_ah, 0xFFF, lazy.sge(8), wr_id=number)
            wait_until(lambda: lazy.qp.query().qp_state == QpState.ERR)
            wait_until(lambda: AenqGroup.WARNING in [event.group for event in lazy.context.take_events()])
            exchange(left, right, number=1, ah=ah)
            left.send(ah, lazy.qp.number, left.sge(8), wr_id=9)  # another number at the second card
            left.completion()
        exchange(left, right, number=2, ah=ah)


def test_descriptors_that_wait_do_not_stop_the_card(cards: tuple[Card, Card]) -> None:
    """A program has all its descriptors' flags in its hands: those of the open file, which the card shares."""
    first, second = cards
    with tenants((first, "efa_0"), (second, "efa_0")) as (left, right):
        ah = left.handle(right)
        with RawDevice(first.socket("efa_0")) as evil:
            uar = evil.ask(commands.AllocUar())
            evil.ask(
                commands.SetFeature(feature_id=enums.Feature.AENQ_CONFIG, enabled_groups=1 << AenqGroup.KEEP_ALIVE)
            )
            for fd in uar.fds[2:]:
                os.set_blocking(fd, False)
                _fill(fd)
                os.set_blocking(fd, True)
            for number in range(1, 4):
                keep_alives = _keep_alives(uar.fds[1])
                wait_until(lambda before=keep_alives: _keep_alives(uar.fds[1]) > before)  # type: ignore[misc]
                exchange(left, right, number=number, ah=ah)
            close_all(uar.fds)


def _fill(fd: int) -> None:
    try:
        os.eventfd_write(fd, (1 << 64) - 2)
    except OSError:
        return


def _keep_alives(status_fd: int) -> int:
    """How many of the first events there are."""
    page = map_and_close(os.dup(status_fd), writable=False)
    entries = [memory.AENQ_OFFSET + index * admin.ENTRY_BYTES for index in range(memory.AENQ_DEPTH)]
    return sum(page[at + 4] & 1 for at in entries)


def test_garbage_in_the_rings_breaks_that_queue_pair_only(cards: tuple[Card, Card]) -> None:
    first, second = cards
    with tenants((first, "efa_0"), (second, "efa_0")) as (left, right), tenants((first, "efa_0")) as (evil,):
        ah = left.handle(right)
        queue = evil.qp.send_queue
        queue._ring[: queue.depth * queue.wqe_bytes] = b"\xff" * queue.depth * queue.wqe_bytes
        queue._doorbell.ring(queue.depth)
        wait_until(lambda: evil.cq._ring[(queue.depth - 1) * evil.cq.entry_bytes + 3] & 1 == 1)
        exchange(left, right, number=1, ah=ah)
        queue._doorbell.ring(0x7FFF)
        wait_until(lambda: evil.qp.query().qp_state == QpState.ERR)
        exchange(left, right, number=2, ah=ah)
        evil.qp.modify(QpState.RESET)
        evil.cq._consumed = queue.depth
        evil.cq._store_consumed()
        evil.qp.to_rts(qkey=QKEY)
        evil.qp.post_recv(RecvRequest(3, (evil.sge(3000),)))
        assert evil.qp.query().qp_state == QpState.RTS, "it begins anew"
        exchange(left, right, number=3, ah=ah)
