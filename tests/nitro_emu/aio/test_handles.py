"""Which GID an address handle's number is for: while it is made, while it exists, and after its end."""

from __future__ import annotations

import asyncio

import pytest

from nitro_emu.abi.io import UNKNOWN_AH
from nitro_emu.aio import QpAddress
from nitro_emu.aio.handles import Handles
from nitro_emu.verbs import Context, ProtectionDomain
from tests.nitro_emu.verbs.fake_card import GID, FakeCard
from tests.patience import PATIENCE_S


async def test_gid_of__from_the_command_to_the_last_completion(card: FakeCard) -> None:
    async with asyncio.timeout(PATIENCE_S):
        with Context("efa_0", directory=card.directory) as context:
            handles = Handles(ProtectionDomain(context))
            assert handles.gid_of(1) is None
            card.hold.clear()
            making = asyncio.ensure_future(handles.remote(QpAddress(GID, 7, 1)))
            await asyncio.sleep(0)
            assert (handles.gid_of(1), handles.gid_of(UNKNOWN_AH)) == (GID, None)
            card.hold.set()
            remote = await making
            assert remote.handle is not None
            number = remote.handle.number
            assert (handles.gid_of(number), handles.gid_of(number + 1)) == (GID, None)
            closing = asyncio.ensure_future(remote.close())
            await asyncio.sleep(0)
            assert handles.gid_of(number) == GID
            await closing
            assert handles.gid_of(number) == GID


async def test_gid_of__forgets_the_oldest_in_the_end(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nitro_emu.aio.handles._KEPT", 2)
    async with asyncio.timeout(PATIENCE_S):
        with Context("efa_0", directory=card.directory) as context:
            handles = Handles(ProtectionDomain(context))
            numbers = []
            for _ in range(3):
                remote = await handles.remote(QpAddress(GID, 7, 1))
                assert remote.handle is not None
                numbers.append(remote.handle.number)
                await remote.close()
            assert [handles.gid_of(number) for number in numbers] == [None, GID, GID]
