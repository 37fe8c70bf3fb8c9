"""The admin queue of a real card: every opcode, every status, every limit, and whose objects are whose."""

# ruff: noqa: ARG005 - the commands in a table take what they need

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from devmem.region import huge_page_bytes
from nitro_emu.card.card import Card as InProcess
from nitro_emu.card.config import CardConfig
from nitro_emu.efa.abi import admin, commands, enums, io, limits, memory, replies
from nitro_emu.efa.abi.enums import AdminStatus, Feature, QpState, StatsType
from nitro_emu.efa.card.config import EfaConfig
from nitro_emu.peers.vf_config import SecurityFields
from scripts.benches.card_fuzz.raw_device import RawAnswer, RawDevice, close_all
from tests.nitro_emu.cards import Card, card
from tests.patience import wait_until
from tests.programs import run_to_end

pytestmark = pytest.mark.compiled  # cards as processes

LIMITS = "max_qps: 3, max_cqs: 2, max_mrs: 2, max_pds: 3, max_ahs: 2, max_connections: 3, max_mr_bytes: 64K"
PAGE = memory.PAGE_BYTES
(
    SUCCESS, RESOURCE_ALLOCATION_FAILURE, BAD_OPCODE, UNSUPPORTED_OPCODE, MALFORMED_REQUEST, ILLEGAL_PARAMETER,
    UNKNOWN_ERROR, RESOURCE_BUSY,
) = AdminStatus  # fmt: skip


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Card]:
    with card(tmp_path_factory.mktemp("card"), vfs=("efa_0", "efa_1"), limits=LIMITS) as running:
        yield running


@pytest.fixture
def device(running: Card) -> Iterator[Device]:
    """A device with one of everything; the next test waits until the card has forgotten it."""
    with Device(running) as device:
        yield device
    wait_until(lambda: not any(running.resources("efa_0").values()))
    wait_until(lambda: not running.programs("efa_0"))


class Device(RawDevice):
    """A connection, with shorthands."""

    def __init__(self, running: Card, name: str = "efa_0") -> None:
        super().__init__(running.socket(name))
        self.gid = b""

    def ok(self, command: commands.Command, *, fds: tuple[int, ...] = ()) -> RawAnswer:
        answer = self.ask(command, fds=fds)
        assert answer.status is SUCCESS
        return answer

    def status(self, command: commands.Command, *, fds: tuple[int, ...] = ()) -> AdminStatus:
        answer = self.ask(command, fds=fds)
        close_all(answer.fds)
        assert answer.status is SUCCESS or not answer.fds
        return answer.status

    def make(self, command: commands.Command, *, fds: tuple[int, ...] = ()) -> int:
        """Create an object; return its number, which comes first in the reply."""
        answer = self.ok(command, fds=fds)
        close_all(answer.fds)
        assert answer.reply is not None
        return int(getattr(answer.reply, fields(answer.reply)[0].name))

    def uar(self) -> None:
        self.make(commands.AllocUar())

    def cq(self, **changes: int) -> commands.CreateCq:
        caps_1, caps_2 = commands.cq_caps(entry_bytes=32)
        return commands.CreateCq(**{"caps_1": caps_1, "caps_2": caps_2, "cq_depth": 16, "uar": 1, **changes})

    def qp(self, pd: int, cq: int, **changes: int) -> commands.CreateQp:
        values = {
            "pd": pd, "qp_type": enums.QpType.SRD, "send_cq_idx": cq, "recv_cq_idx": cq, "send_queue_depth": 4,
            "send_queue_ring_size": 256, "recv_queue_depth": 4, "recv_queue_ring_size": 64, "uar": 1,
        }  # fmt: skip
        return commands.CreateQp(**{**values, **changes})

    def mr(self, pd: int, **changes: int) -> commands.RegMr:
        values = {
            "pd": pd, "memory_offset": 0, "mr_length": PAGE, "flags": 12, "permissions": 7, "page_num": 1,
            "iova": 0x10000,
        }  # fmt: skip
        return commands.RegMr(**{**values, **changes})

    def ah(self, pd: int, *, gid: bytes | None = None) -> commands.CreateAh:
        reply = self.ok(commands.GetFeature(feature_id=Feature.NETWORK_ATTR)).reply
        assert isinstance(reply, replies.NetworkAttr)
        return commands.CreateAh(reply.addr if gid is None else gid, pd)


@pytest.fixture
def memfd() -> Iterator[int]:
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 1 << 20)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    yield fd
    os.close(fd)


# -- every opcode ---------------------------------------------------------------------------------------------------


def test_every_opcode_succeeds_or_is_not_supported(device: Device, memfd: int) -> None:
    done: set[int] = set()

    def make(command: commands.Command, *, fds: tuple[int, ...] = ()) -> int:
        done.add(command.OPCODE)
        return device.make(command, fds=fds)

    def run(command: commands.Command) -> None:
        done.add(command.OPCODE)
        close_all(device.ok(command).fds)

    make(commands.AllocUar())
    pd, cq = make(commands.AllocPd()), make(device.cq())
    qp = make(device.qp(pd, cq))
    lkey, ah = make(device.mr(pd), fds=(memfd,)), make(device.ah(pd))
    run(commands.ModifyQp(enums.ModifyMask.QP_STATE | enums.ModifyMask.QKEY, qp, QpState.INIT, qkey=9))
    reply = device.ok(commands.QueryQp(qp)).reply
    done.add(commands.QueryQp.OPCODE)
    assert isinstance(reply, replies.QueryQpReply)
    assert (reply.qp_state, reply.qkey) == (QpState.INIT, 9)
    for feature in replies.FEATURES:
        run(commands.GetFeature(feature_id=feature))
    run(commands.SetFeature(feature_id=Feature.AENQ_CONFIG, enabled_groups=1 << enums.AenqGroup.WARNING))
    for stats in StatsType:
        run(commands.GetStats(stats_type=stats))
    ending: tuple[commands.Command, ...] = (
        commands.DestroyQp(qp), commands.DestroyCq(cq), commands.DestroyAh(ah, pd), commands.DeregMr(lkey),
        commands.DeallocPd(pd), commands.DeallocUar(1),
    )  # fmt: skip
    for command in ending:
        run(command)
    for opcode in admin.UNSUPPORTED:
        entry = bytearray(device.entry(commands.AllocPd()))
        entry[2] = opcode
        assert device.exchange(bytes(entry))[0][2] == UNSUPPORTED_OPCODE
    assert done | admin.UNSUPPORTED == set(range(1, 21))


def test_the_replies_of_a_command_that_makes_memory_have_its_descriptors(device: Device) -> None:
    uar = device.ok(commands.AllocUar())
    pd = device.make(commands.AllocPd())
    plain = device.ok(device.cq())
    interrupts = device.ok(device.cq(caps_1=enums.CqCaps1.INTERRUPT_MODE))
    assert isinstance(plain.reply, replies.CreateCqReply)
    qp = device.ok(device.qp(pd, plain.reply.cq_idx))
    assert [len(each.fds) for each in (uar, plain, interrupts, qp)] == [4, 1, 2, 1]
    for each in (uar, plain, interrupts, qp):
        close_all(each.fds)


# -- every status ---------------------------------------------------------------------------------------------------


@pytest.mark.sources
async def test_unknown_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An error of the card's own is a status, too, and the next command is served."""
    host = f"127.{os.getpid() >> 8 & 127 | 128}.{os.getpid() & 255}.77"
    vf = EfaConfig(name="efa_0", address=host, security=SecurityFields(mode="plain"))
    served = InProcess(CardConfig(name="card", run_dir=tmp_path, vfs=(vf,)))
    await served.start()

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("in the card")

    def ask() -> list[AdminStatus]:
        with RawDevice(tmp_path / "efa_0.sock") as device:
            return [device.ask(command).status for command in (commands.GetStats(), commands.AllocPd())]

    monkeypatch.setattr("nitro_emu.efa.card.admin_commands.stats", broken)
    try:
        assert await asyncio.to_thread(ask) == [UNKNOWN_ERROR, SUCCESS]
    finally:
        served.close()
    assert "internal error" in caplog.text


@pytest.mark.parametrize("opcode", [0, 21, 255])
def test_bad_opcode(device: Device, opcode: int) -> None:
    data, _ = device.exchange(bytes([5, 0, opcode, 1]) + bytes(60))
    assert (data[0], data[2]) == (5, BAD_OPCODE)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:63],
        lambda data: data + b"\0",
        lambda data: data[:1],
        lambda data: data[:3] + bytes([data[3] ^ 1]) + data[4:],  # the phase
        lambda data: data[:3] + bytes([data[3] | 2]) + data[4:],  # a control buffer
        lambda data: data[:3] + bytes([data[3] | 0x80]) + data[4:],
        lambda data: data[:1] + b"\x10" + data[2:],  # a command id of 13 bits
        lambda data: data[:40] + b"\1" + data[41:],  # reserved bytes
    ],
)
def test_malformed_request(device: Device, change: Callable[[bytes], bytes]) -> None:
    data, _ = device.exchange(change(device.entry(commands.AllocPd())))
    assert data[2] == MALFORMED_REQUEST
    assert device.status(commands.AllocPd()) is SUCCESS, "the connection goes on"


def test_memory_comes_with_exactly_one_descriptor(device: Device, memfd: int) -> None:
    pd = device.make(commands.AllocPd())
    for fds in ((), (memfd, memfd), (memfd,) * 4):
        assert device.status(device.mr(pd), fds=fds) is MALFORMED_REQUEST


ILLEGAL: list[Callable[[Device, int, int, int], commands.Command]] = [
    lambda d, pd, cq, qp: d.qp(pd + 1, cq),
    lambda d, pd, cq, qp: d.qp(pd, cq + 1),
    lambda d, pd, cq, qp: d.qp(pd, cq, recv_cq_idx=0xFFFF),
    lambda d, pd, cq, qp: d.qp(pd, cq, uar=2),
    lambda d, pd, cq, qp: d.qp(pd, cq, qp_type=enums.QpType.UD),
    lambda d, pd, cq, qp: d.qp(pd, cq, flags=enums.CreateQpFlag.SQ_VIRT),
    lambda d, pd, cq, qp: d.qp(pd, cq, send_queue_depth=3, send_queue_ring_size=192),
    lambda d, pd, cq, qp: d.qp(pd, cq, send_queue_ring_size=255),
    lambda d, pd, cq, qp: d.qp(pd, cq, send_queue_ring_size=4 * 96),
    lambda d, pd, cq, qp: d.qp(pd, cq, send_queue_depth=8192, send_queue_ring_size=8192 * 64),
    lambda d, pd, cq, qp: d.qp(pd, cq, send_queue_depth=4096, send_queue_ring_size=4096 * 128),
    lambda d, pd, cq, qp: d.qp(pd, cq, recv_queue_depth=3, recv_queue_ring_size=48),
    lambda d, pd, cq, qp: d.qp(pd, cq, recv_queue_ring_size=63),
    lambda d, pd, cq, qp: d.qp(pd, cq, recv_queue_depth=65536, recv_queue_ring_size=65536 * 16),
    lambda d, pd, cq, qp: d.cq(cq_depth=0),
    lambda d, pd, cq, qp: d.cq(cq_depth=12),
    lambda d, pd, cq, qp: d.cq(cq_depth=32769),
    lambda d, pd, cq, qp: d.cq(caps_2=5),
    lambda d, pd, cq, qp: d.cq(caps_2=4 | enums.CqCaps2.SET_SRC_ADDR),
    lambda d, pd, cq, qp: d.cq(num_sub_cqs=2),
    lambda d, pd, cq, qp: d.cq(uar=0),
    lambda d, pd, cq, qp: commands.ModifyQp(1, qp + 1, QpState.INIT),
    lambda d, pd, cq, qp: commands.ModifyQp(1, qp, QpState.RTS),
    lambda d, pd, cq, qp: commands.ModifyQp(1, qp, 7),
    lambda d, pd, cq, qp: commands.ModifyQp(enums.ModifyMask.RNR_RETRY, qp, rnr_retry=8),
    lambda d, pd, cq, qp: commands.QueryQp(qp + 1),
    lambda d, pd, cq, qp: commands.DestroyQp(0),
    lambda d, pd, cq, qp: commands.DestroyCq(cq + 1),
    lambda d, pd, cq, qp: commands.DeallocPd(pd + 1),
    lambda d, pd, cq, qp: commands.DeallocUar(2),
    lambda d, pd, cq, qp: commands.DeregMr(1),
    lambda d, pd, cq, qp: commands.DestroyAh(1, pd),
    lambda d, pd, cq, qp: d.ah(pd + 1),
    lambda d, pd, cq, qp: d.ah(pd, gid=bytes(16)),
    lambda d, pd, cq, qp: d.ah(pd, gid=b"\xfd" + bytes(14) + b"\1"),  # IPv6, and the device has IPv4
    lambda d, pd, cq, qp: commands.GetFeature(feature_id=Feature.HOST_INFO),
    lambda d, pd, cq, qp: commands.GetFeature(feature_id=99),
    lambda d, pd, cq, qp: commands.SetFeature(feature_id=Feature.QUEUE_ATTR),
    lambda d, pd, cq, qp: commands.SetFeature(feature_id=Feature.AENQ_CONFIG, enabled_groups=1),
    lambda d, pd, cq, qp: commands.GetStats(stats_type=5),
    lambda d, pd, cq, qp: commands.GetStats(stats_type=0, scope=enums.StatsScope.QUEUE),
]


@pytest.mark.parametrize("command", ILLEGAL)
def test_illegal_parameter(device: Device, command: Callable[[Device, int, int, int], commands.Command]) -> None:
    device.uar()
    pd, cq = device.make(commands.AllocPd()), device.make(device.cq())
    qp = device.make(device.qp(pd, cq))
    assert device.status(command(device, pd, cq, qp)) is ILLEGAL_PARAMETER


@pytest.mark.parametrize(
    "changes",
    [
        {"mr_length": 0},
        {"mr_length": 0, "iova": 8},
        {"memory_offset": 1},
        {"memory_offset": 1 << 20},
        {"mr_length": 4097, "memory_offset": (1 << 20) - PAGE},
        {"iova": (1 << 64) - 1, "mr_length": 2},
        {"pd": 77},
    ],
)
def test_illegal_memory(device: Device, memfd: int, changes: dict[str, int]) -> None:
    pd = device.make(commands.AllocPd())
    assert device.status(device.mr(**{"pd": pd, **changes}), fds=(memfd,)) is ILLEGAL_PARAMETER


def test_resource_busy(device: Device, memfd: int) -> None:
    device.uar()
    pd, cq = device.make(commands.AllocPd()), device.make(device.cq())
    assert device.status(commands.DeallocUar(1)) is RESOURCE_BUSY
    qp = device.make(device.qp(pd, cq))
    assert device.status(commands.DestroyCq(cq)) is RESOURCE_BUSY
    assert device.status(commands.DeallocPd(pd)) is RESOURCE_BUSY
    device.ok(commands.DestroyQp(qp))
    lkey = device.make(device.mr(pd), fds=(memfd,))
    assert device.status(commands.DeallocPd(pd)) is RESOURCE_BUSY
    device.ok(commands.DeregMr(lkey))
    ah = device.make(device.ah(pd))
    assert device.status(commands.DeallocPd(pd)) is RESOURCE_BUSY
    device.ok(commands.DestroyAh(ah, pd))
    for command in (commands.DestroyCq(cq), commands.DeallocPd(pd), commands.DeallocUar(1)):
        assert device.status(command) is SUCCESS


def test_resource_allocation_failure_at_each_limit(device: Device, memfd: int) -> None:
    device.uar()
    assert device.status(commands.AllocUar()) is RESOURCE_ALLOCATION_FAILURE, "a connection has one"
    pds = [device.make(commands.AllocPd()) for _ in range(3)]
    cqs = [device.make(device.cq()) for _ in range(2)]
    qps = [device.make(device.qp(pds[0], cqs[0])) for _ in range(3)]
    keys = [device.make(device.mr(pds[0]), fds=(memfd,)) for _ in range(2)]
    ahs = [device.make(device.ah(pds[0])) for _ in range(2)]
    refused: list[tuple[commands.Command, tuple[int, ...], commands.Command]] = [
        (device.qp(pds[0], cqs[0]), (), commands.DestroyQp(qps[0])),
        (device.mr(pds[0]), (memfd,), commands.DeregMr(keys[0])),
        (device.ah(pds[0]), (), commands.DestroyAh(ahs[0], pds[0])),
        (device.cq(), (), commands.DestroyCq(cqs[1])),
        (commands.AllocPd(), (), commands.DeallocPd(pds[1])),
    ]
    for command, fds, destroy in refused:
        assert device.status(command, fds=fds) is RESOURCE_ALLOCATION_FAILURE
        device.ok(destroy)
        assert device.status(command, fds=fds) is SUCCESS


def test_registered_memory_has_a_limit_in_all(device: Device, memfd: int) -> None:
    pd = device.make(commands.AllocPd())
    assert device.status(device.mr(pd, mr_length=(64 << 10) + 1), fds=(memfd,)) is RESOURCE_ALLOCATION_FAILURE
    lkey = device.make(device.mr(pd, mr_length=64 << 10), fds=(memfd,))
    assert device.status(device.mr(pd, mr_length=1), fds=(memfd,)) is RESOURCE_ALLOCATION_FAILURE
    device.ok(commands.DeregMr(lkey))
    assert device.status(device.mr(pd, mr_length=1), fds=(memfd,)) is SUCCESS


def test_the_phase_flips_after_each_round_of_the_queue(device: Device) -> None:
    for number in range(3 * admin.QUEUE_DEPTH):
        answer = device.ask(commands.GetFeature(feature_id=Feature.DEVICE_ATTR))
        assert answer.status is SUCCESS
        assert answer.command_id == number
        assert answer.phase == number // admin.QUEUE_DEPTH & 1 ^ 1


def test_failures_are_counted(running: Card, device: Device) -> None:
    before = running.stats("efa_0")["device"]
    device.make(commands.AllocPd())
    device.status(device.cq())
    device.status(commands.CreateQp(1, 2))
    device.status(device.mr(99))
    device.status(commands.CreateAh(bytes(16), 1))
    after = running.stats("efa_0")["device"]
    names = (
        "submitted_cmds",
        "completed_cmds",
        "cmds_err",
        "create_cq_err",
        "create_qp_err",
        "reg_mr_err",
        "create_ah_err",
    )
    assert [after[name] - before[name] for name in names] == [5, 5, 4, 1, 1, 1, 1]


# -- whose objects are whose ----------------------------------------------------------------------------------------


def test_objects_of_another_connection_cannot_be_named(running: Card, device: Device, memfd: int) -> None:
    device.uar()
    pd, cq = device.make(commands.AllocPd()), device.make(device.cq())
    qp, lkey, ah = (
        device.make(device.qp(pd, cq)),
        device.make(device.mr(pd), fds=(memfd,)),
        device.make(device.ah(pd)),
    )
    with Device(running) as other:
        other.uar()
        mine, my_cq = other.make(commands.AllocPd()), other.make(other.cq())
        for command, fds in (
            (commands.QueryQp(qp), ()),
            (commands.ModifyQp(1, qp, QpState.INIT), ()),
            (commands.DestroyQp(qp), ()),
            (commands.DestroyCq(cq), ()),
            (commands.DeallocPd(pd), ()),
            (commands.DeregMr(lkey), ()),
            (commands.DestroyAh(ah, pd), ()),
            (commands.DestroyAh(ah, mine), ()),
            (other.qp(pd, my_cq), ()),
            (other.qp(mine, cq), ()),
            (other.mr(pd), (memfd,)),
            (other.ah(pd), ()),
        ):
            assert other.status(command, fds=fds) is ILLEGAL_PARAMETER
    assert device.status(commands.QueryQp(qp)) is SUCCESS


def test_another_device_has_tables_of_its_own(running: Card, device: Device) -> None:
    for _ in range(3):
        device.make(commands.AllocPd())
    with Device(running, "efa_1") as other:
        assert other.status(commands.AllocPd()) is SUCCESS
        assert running.resources("efa_1")["pds"] == 1
    wait_until(lambda: not running.resources("efa_1")["pds"])


def test_too_many_connections_are_closed(running: Card) -> None:
    opened = [Device(running) for _ in range(3)]
    for each in opened:
        each.ok(commands.AllocPd())
    with Device(running) as refused, pytest.raises((ConnectionResetError, BrokenPipeError)):
        refused.ask(commands.AllocPd())
    assert opened[0].status(commands.AllocPd()) is RESOURCE_ALLOCATION_FAILURE, "3 of 3: nothing leaked, others go on"
    for each in opened:
        each.close()
    wait_until(lambda: not running.programs("efa_0"))


# -- who may open a device ------------------------------------------------------------------------------------------

OPEN = """
import os, socket, sys
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.settimeout(60)
try:
    sock.connect(sys.argv[1])
    sock.send(bytes([0, 0, 14, 1]) + bytes(60))
    print(len(sock.recv(64)))
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_only_the_devices_user_may_open_it() -> None:
    def opened_by(running: Card, uid: int) -> str:
        running.run_dir.chmod(0o755)
        script = [sys.executable, "-c", OPEN, str(running.socket("efa_0")), str(uid)]
        return run_to_end(script, cwd="/", check=True).stdout.strip()

    with TemporaryDirectory(prefix="nitro-card-test-") as name:  # pytest's own directories are closed to other users
        directory = Path(name)
        directory.chmod(0o755)
        with card(directory / "a", limits="uid: 4242") as running:
            assert opened_by(running, 4242) == "64"
            assert opened_by(running, 4243) == "PermissionError"
            assert opened_by(running, 0) == "64"
            running.socket("efa_0").chmod(0o666)  # as of a card that is not root, which cannot give it away
            assert opened_by(running, 4243) in {"ConnectionResetError", "BrokenPipeError"}
            wait_until(lambda: running.stats("efa_0")["device"]["alloc_ucontext_err"] == 1)
        with card(directory / "b") as running:
            assert opened_by(running, 4242) == "PermissionError"


# -- what a host may not write --------------------------------------------------------------------------------------


def test_a_host_cannot_write_what_only_the_card_writes(device: Device) -> None:
    """Nor by another way: test_shared.py."""
    uar = device.ok(commands.AllocUar())
    cq = device.ok(device.cq())
    for fd in (uar.fds[1], cq.fds[0]):
        with pytest.raises(PermissionError):
            mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    close_all([*uar.fds, *cq.fds])


def test_what_the_host_writes_cannot_be_shrunk(device: Device) -> None:
    uar = device.ok(commands.AllocUar())
    pd, cq = device.make(commands.AllocPd()), device.make(device.cq())
    qp = device.ok(device.qp(pd, cq))
    for fd in (uar.fds[0], qp.fds[0]):
        for size in (0, os.fstat(fd).st_size + PAGE):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
    close_all([*uar.fds, *qp.fds])


def test_depths_up_to_the_limits(device: Device) -> None:
    device.uar()
    pd = device.make(commands.AllocPd())
    cq = device.make(device.cq(cq_depth=limits.MAX_CQ_DEPTH))
    for depth, wqe_bytes in ((limits.MAX_SQ_DEPTH, 64), (limits.MAX_WIDE_SQ_DEPTH, 128)):
        command = device.qp(
            pd, cq, send_queue_depth=depth, send_queue_ring_size=depth * wqe_bytes,
            recv_queue_depth=limits.MAX_RQ_DEPTH, recv_queue_ring_size=limits.MAX_RQ_DEPTH * io.RX_DESC_BYTES,
        )  # fmt: skip
        answer = device.ok(command)
        assert os.fstat(answer.fds[0]).st_size == memory.ring_bytes(
            sq_depth=depth, wqe_bytes=wqe_bytes, rq_depth=limits.MAX_RQ_DEPTH
        )
        close_all(answer.fds)
    empty = device.qp(pd, cq, send_queue_depth=0, send_queue_ring_size=0, recv_queue_depth=0, recv_queue_ring_size=0)
    assert device.status(empty) is SUCCESS


def test_an_empty_message_ends_the_connection(device: Device) -> None:
    device.socket.send(b"")
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        device.receive()


def test_unused_descriptors_are_closed(running: Card, device: Device, memfd: int) -> None:
    device.ok(commands.AllocPd())
    before = running.descriptors()
    for _ in range(20):
        device.status(commands.AllocPd(), fds=(memfd, memfd))
    wait_until(lambda: running.descriptors() == before)  # those of the last command, closed after its answer


def test_a_descriptor_whose_close_may_block_ends_the_connection(running: Card, device: Device) -> None:
    """A socket with SO_LINGER and a file in user space may: the card closes them beside its loop."""
    device.ok(commands.AllocPd())
    left, right = socket.socketpair()
    device.send(device.entry(commands.AllocPd()), fds=(left.fileno(),))
    left.close()
    right.settimeout(60)
    assert right.recv(1) == b"", "nobody has the other end any more"
    right.close()
    with Device(running) as other:
        other.ok(commands.AllocPd())


def test_huge_pages_are_refused(device: Device) -> None:
    """Those of a hole may not be there again: an access to them would be SIGBUS."""
    pd = device.make(commands.AllocPd())
    try:
        fd = os.memfd_create("huge", os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
    except OSError as error:
        pytest.skip(f"this kernel has no huge pages ({error.strerror})")
    try:
        os.ftruncate(fd, huge_page_bytes())
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        assert device.status(device.mr(pd), fds=(fd,)) is ILLEGAL_PARAMETER
    finally:
        os.close(fd)
