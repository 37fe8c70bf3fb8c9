"""A card in this process: what an internal error of one virtual function does to the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nitro_emu.abi.admin import AdminStatus, AllocPd, AllocUar
from nitro_emu.config import CardConfig
from nitro_emu.device.card import Card
from nitro_emu.vf_config import SecurityFields, VfConfig
from scripts.benches.card_fuzz.raw_device import RawDevice, close_all
from tests.nitro_emu.processes import loopback_address
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.sources  # breaks parts of the code

NAMES = ("efa_0", "efa_1")


def fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a bug")


@asynccontextmanager
async def started(directory: Path) -> AsyncIterator[Card]:
    plain = SecurityFields(mode="plain")
    vfs = tuple(VfConfig(name=name, address=loopback_address(), security=plain) for name in NAMES)
    card = Card(CardConfig(name="card", run_dir=directory, vfs=vfs, confine=False, audit_log=directory / "audit"))
    try:
        await card.start()
        yield card
    finally:
        card.close()


def opened(card: Card, name: str) -> RawDevice:
    device = RawDevice(card.config.run_dir / f"{name}.sock")
    close_all(device.ask(AllocUar()).fds)
    return device


def works(device: RawDevice) -> bool:
    return device.ask(AllocPd()).status is AdminStatus.SUCCESS


def hears_its_end(device: RawDevice) -> None:
    with pytest.raises(ConnectionResetError):
        device.receive()


def break_turn(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = card._devices[0].vf.engine()
    monkeypatch.setattr(engine._core, "poll_transmit", fail)
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    engine._driver.wake()


def break_keep_alive(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    (connection,) = card._devices[0].connections
    assert connection.context.uar is not None
    monkeypatch.setattr(connection.context.uar.events, "push", fail)
    card._on_keep_alive()


def break_new_mapping(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card._devices[0].vf.endpoint.introducer, "end_what_is_not_allowed", fail)
    card._on_new_mapping()


def break_counters(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card._devices[0].vf, "counters", fail)
    assert list(card.stats()["vfs"]) == ["efa_1"]


@pytest.mark.parametrize("breaks", [break_turn, break_keep_alive, break_new_mapping, break_counters])
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


async def test_a_card_without_any_virtual_function_left_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with started(tmp_path) as card:
        for device in list(card._devices):
            assert not card.failed.is_set()
            monkeypatch.setattr(device.vf, "counters", fail)
            card.stats()
        assert (card.failed.is_set(), card.failure[:23]) == (True, "efa_1: internal error: ")
