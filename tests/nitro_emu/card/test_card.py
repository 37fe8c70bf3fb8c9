"""A card in this process: what an error, or a program, of one virtual function does to the others."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from nitro_emu.card.card import Card
from nitro_emu.card.config import CardConfig
from nitro_emu.card.control import CardControlServer
from nitro_emu.efa.abi.commands import AllocPd, AllocUar, DeregMr, RegMr
from nitro_emu.efa.abi.enums import AdminStatus
from nitro_emu.efa.card.closer import THREAD
from nitro_emu.efa.card.config import EfaConfig
from nitro_emu.efa.card.device import EfaDevice
from nitro_emu.efa.card.mapped_memory import MappedMemory
from nitro_emu.efa.card.objects import CardAddressHandle, CardProtectionDomain
from nitro_emu.errors import CardError
from nitro_emu.gid import gid_of
from nitro_emu.log_ring import LogRing
from nitro_emu.peers.vf_config import SecurityFields
from scripts.benches.card_fuzz.raw_device import RawDevice, close_all
from tests.nitro_emu.card.lingering import lingering
from tests.nitro_emu.processes import loopback_address
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.sources  # breaks parts of the code

NAMES = ("efa_0", "efa_1")


def fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a bug")


@asynccontextmanager
async def started(directory: Path) -> AsyncIterator[Card]:
    plain = SecurityFields(mode="plain")
    vfs = tuple(EfaConfig(name=name, address=loopback_address(), security=plain) for name in NAMES)
    card = Card(CardConfig(name="card", run_dir=directory, vfs=vfs, confine=False, audit_log=directory / "audit"))
    try:
        await card.start()
        yield card
    finally:
        card.close()


async def test_a_card_of_which_one_function_cannot_be_had_has_none(tmp_path: Path) -> None:
    address, plain = loopback_address(), SecurityFields(mode="plain")
    vfs = tuple(EfaConfig(name=name, address=address, port=port, security=plain) for port, name in enumerate(NAMES, 1))
    card = Card(CardConfig(name="card", run_dir=tmp_path, vfs=vfs, confine=False, audit_log=tmp_path / "audit"))
    (tmp_path / f"{NAMES[1]}.sock").mkdir()
    with pytest.raises(CardError, match="cannot listen"):
        await card.start()
    assert not card._functions
    assert not (tmp_path / f"{NAMES[0]}.sock").exists()


def opened(card: Card, name: str) -> RawDevice:
    device = RawDevice(card.config.run_dir / f"{name}.sock")
    close_all(device.ask(AllocUar()).fds)
    return device


def devices(card: Card) -> list[EfaDevice]:
    return [function for function in card._functions.values() if isinstance(function, EfaDevice)]


def works(device: RawDevice) -> bool:
    return device.ask(AllocPd()).status is AdminStatus.SUCCESS


def hears_its_end(device: RawDevice) -> None:
    with pytest.raises(ConnectionResetError):
        device.receive()


def break_turn(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = devices(card)[0].vf.engine()
    monkeypatch.setattr(engine.core, "poll_transmit", fail)
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    engine.driver.wake()


def break_keep_alive(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    (connection,) = devices(card)[0].connections
    assert connection.context.uar is not None
    monkeypatch.setattr(connection.context.uar.events, "push", fail)
    card._on_keep_alive()


def break_new_mapping(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices(card)[0].vf.endpoint, "on_new_mapping", fail)
    card._on_new_mapping()


def break_counters(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices(card)[0].vf, "counters", fail)
    assert list(card.stats()["vfs"]) == ["efa_1"]


def break_work_of_a_pass(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices(card)[0].vf, "poll", fail)
    devices(card)[0].vf.run_soon(fail)


def break_admin_work(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    (connection,) = devices(card)[0].connections
    monkeypatch.setattr(connection, "_try_send", fail)
    connection._in_turn(connection._on_writable)


BREAKS = [break_turn, break_keep_alive, break_new_mapping, break_counters, break_work_of_a_pass, break_admin_work]


@pytest.mark.parametrize("breaks", BREAKS)
async def test_an_internal_error_ends_its_virtual_function_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: Callable[[Card, pytest.MonkeyPatch], None]
) -> None:
    async with started(tmp_path) as card:
        first, second = [await asyncio.to_thread(opened, card, name) for name in NAMES]
        with first, second, monkeypatch.context() as patch:
            breaks(card, patch)
            await asyncio.wait_for(asyncio.to_thread(hears_its_end, first), PATIENCE_S)
            assert await asyncio.to_thread(works, second)
            found = card.status()
            assert "ZeroDivisionError" in found["vfs"]["efa_0"]["failed"]
            assert (found["state"], found["vfs"]["efa_1"]["peers"], card.failed.is_set()) == ("ready", 0, False)
            assert not (tmp_path / "efa_0.sock").exists()
            assert card.alarms.counts["device"] == 1
            card._on_keep_alive()
            assert await asyncio.to_thread(works, second)


async def test_an_internal_error_is_logged_once_however_often_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(tmp_path) as card:
        vf = devices(card)[0].vf

        def fail_again() -> None:
            vf.run_soon(fail_again)
            fail()

        vf.run_soon(fail_again)
        await until(lambda: len(card._functions) == 1)
        (logged,) = [record for record in caplog.records if record.exc_info]
        assert (logged.name, logged.message) == ("nitro_emu.vf.efa_0", "internal error")


async def test_a_card_without_any_virtual_function_left_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with started(tmp_path) as card:
        for device in devices(card):
            assert not card.failed.is_set()
            monkeypatch.setattr(device.vf, "counters", fail)
            card.stats()
        assert (card.failed.is_set(), card.failure[:23]) == (True, "efa_1: internal error: ")


# -- what takes long to close -----------------------------------------------------------------------------------------


def sent(path: Path, *messages: list[int]) -> RawDevice:
    """Send entries with descriptors of which the card then has the last copies; in its own thread, so all at once."""
    device = RawDevice(path)
    for descriptors in messages:
        device.send(device.entry(AllocPd()), fds=descriptors)
        close_all(descriptors)
    return device


@pytest.mark.parametrize(
    "counts", [(4,), (5,), (4, 4)], ids=["no memfds", "too many to be taken", "unread when it ends"]
)
async def test_descriptors_that_are_long_in_closing_stop_no_one_else(tmp_path: Path, counts: tuple[int, ...]) -> None:
    async with started(tmp_path) as card:
        with lingering(4 * sum(counts)) as made:
            second = await asyncio.to_thread(opened, card, "efa_1")
            for _ in range(4):
                messages = [[made.pop() for _ in range(count)] for count in counts]
                with sent(tmp_path / "efa_0.sock", *messages) as first:
                    await asyncio.wait_for(asyncio.to_thread(hears_its_end, first), PATIENCE_S)
                assert await asyncio.to_thread(works, second)
            second.close()
            assert sum(thread.name == THREAD for thread in threading.enumerate()) == 1


async def test_a_tenant_whose_descriptors_are_not_closed_yet_waits_alone(tmp_path: Path) -> None:
    async with started(tmp_path) as card:
        go_on = threading.Event()

        def wait() -> None:
            go_on.wait(PATIENCE_S)

        for _ in range(64):
            devices(card)[0].vf.closer.run(wait)
        first = RawDevice(tmp_path / "efa_0.sock")  # waits to be accepted
        first.send(first.entry(AllocPd()))
        second = await asyncio.to_thread(opened, card, "efa_1")
        assert await asyncio.to_thread(works, second)
        assert not devices(card)[0].connections
        go_on.set()
        await asyncio.to_thread(first.receive)
        first.close()
        second.close()


async def test_the_card_reads_no_descriptor_where_it_wants_none(tmp_path: Path) -> None:
    async with started(tmp_path) as card:
        control = CardControlServer(card, log=LogRing(), image="")
        await control.start()
        with lingering(2) as made, RawDevice(tmp_path / "efa_0.sock") as device:
            fds = (await asyncio.to_thread(device.ask, AllocUar())).fds
            with socket.socket(fileno=fds.pop()) as events, pytest.raises(BrokenPipeError):
                socket.send_fds(events, [b"x"], made)
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(tmp_path / "control.sock"))
                with pytest.raises(PermissionError):  # Linux 6.16
                    socket.send_fds(client, [b"x"], made)
        close_all([*fds, *made])
        await control.close()


async def test_memory_is_not_freed_in_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 0.2 s a GiB."""
    closed = asyncio.Event()
    threads: list[threading.Thread] = []
    close = MappedMemory.close

    def noted(memory: MappedMemory) -> None:
        threads.append(threading.current_thread())
        close(memory)
        loop.call_soon_threadsafe(closed.set)

    monkeypatch.setattr(MappedMemory, "close", noted)
    loop = asyncio.get_running_loop()
    async with started(tmp_path) as card:
        device = await asyncio.to_thread(opened, card, "efa_0")
        assert await asyncio.to_thread(works, device)
        fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, 4096)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        await asyncio.to_thread(device.ask, RegMr(1, 0, 4096, 12, 7, 1, 0x10000), fds=[fd])
        os.close(fd)
        await asyncio.to_thread(device.ask, DeregMr(1))
        await asyncio.wait_for(closed.wait(), PATIENCE_S)
        assert threads != [threading.main_thread()]
        device.close()


async def test_what_a_program_has_made_is_destroyed_in_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue pairs may have a million requests open."""
    monkeypatch.setattr("nitro_emu.efa.card.connection.DESTROY_SHARE_S", 0.0)
    async with started(tmp_path) as card:
        device = await asyncio.to_thread(opened, card, "efa_0")
        for _ in range(5):
            assert await asyncio.to_thread(works, device)
        (connection,) = devices(card)[0].connections
        connection._in_turn(connection._end)
        assert (len(connection.context.objects), connection.context.uar is None) == (4, False)
        await asyncio.wait_for(asyncio.to_thread(hears_its_end, device), PATIENCE_S)
        await until(lambda: not devices(card)[0].connections)
        assert (len(connection.context.objects), connection.context.uar) == (0, None)
        device.close()


async def test_requests_of_a_handle_that_is_destroyed_end_in_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nitro_emu.efa.card.function.CANCEL_SHARE", 2)
    async with started(tmp_path) as card:
        vf, pd = devices(card)[0].vf, CardProtectionDomain(1)
        gid = gid_of("127.0.0.1", port=1)
        handle = CardAddressHandle(1, pd, gid, vf.remote(gid), open_requests=dict.fromkeys(range(5)))
        pd.by_gid[gid] = {1: None}
        shares: list[list[int]] = []
        monkeypatch.setattr(vf.requester, "cancel", shares.append)
        vf.drop_handle(handle)
        assert (shares, handle.remote.users) == ([[0, 1]], 1)
        await until(lambda: handle.remote.users == 0)
        assert shares == [[0, 1], [2, 3], [4]]


def test_admin_commands_of_one_tenant_leave_time_to_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On uvloop, whose own clock stands still meanwhile."""
    uvloop.run(_leaves_time(tmp_path, monkeypatch))


async def _leaves_time(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with started(directory) as card:
        vf = devices(card)[0].vf
        first = await asyncio.to_thread(opened, card, "efa_0")
        vf.note_admin(60)
        assert vf.admin_wait_s() <= 0, "there is nobody else"
        second = await asyncio.to_thread(opened, card, "efa_1")
        with monkeypatch.context() as patch:
            taken_s: list[float] = []
            patch.setattr(vf, "note_admin", taken_s.append)
            assert await asyncio.to_thread(works, first)
            assert taken_s[0] > 0
        vf.note_admin(10 * PATIENCE_S)
        first.send(first.entry(AllocPd()))
        for _ in range(3):
            assert await asyncio.to_thread(works, second)
        assert not select.select([first.socket], [], [], 0)[0]
        first.close()
        second.close()
