"""Which GID an address handle's number is for: while it is made, while it exists, and after its end."""

from __future__ import annotations

import asyncio

from nitro_emu.abi.gid import gid_of
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


async def test_gid_of__is_never_that_of_a_handle_that_is_made_later(card: FakeCard) -> None:
    async with asyncio.timeout(PATIENCE_S):
        with Context("efa_0", directory=card.directory) as context:
            handles = Handles(ProtectionDomain(context))
            gids = {}
            for number in range(300):
                gid = gid_of("10.0.1.1", port=number + 1)
                remote = await handles.remote(QpAddress(gid, 7, 1))
                assert remote.handle is not None
                gids[remote.handle.number] = gid
                await remote.close()
            card.hold.clear()
            making = asyncio.ensure_future(handles.remote(QpAddress(GID, 7, 1)))
            await asyncio.sleep(0)
            assert {number: handles.gid_of(number) for number in gids} == gids
            card.hold.set()
            await making
            assert {number: handles.gid_of(number) for number in gids} == gids
