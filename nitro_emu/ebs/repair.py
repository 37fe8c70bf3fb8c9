"""Members of a view are given what they lack, at a rate: what hosts read and write comes first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from netns.base.token_bucket import TokenBucket
from nitro_emu.ebs.calls import Calls, Use
from nitro_emu.ebs.capsule import CapsuleOpcode, CapsuleOutcome
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.forming import RefusedError, time_now
from nitro_emu.ebs.link import LinkError
from nitro_emu.ebs.server.entries import BlockKind

AGAIN_S: Final = 0.25
"""After a block that no member has now."""


class Repair:
    """The repair of one view; `run` it until the view is over."""

    def __init__(self, calls: Calls, *, rate: TokenBucket, on_whole: Callable[[], None]) -> None:
        """`on_whole` is called when nothing is missing any more."""
        self._calls = calls
        self._view = calls.view
        self._rate = rate
        self._on_whole = on_whole
        self._has_gap = asyncio.Event()
        self._has_gap.set()

    async def run(self) -> None:
        """Give members what they lack."""
        while True:
            await self._has_gap.wait()
            self._has_gap.clear()
            while (gap := self._gap()) is not None:
                member, first, count, version = gap
                now = time_now()
                self._rate.charge(count * BLOCK_BYTES, now=now)
                await asyncio.sleep(self._rate.delay_s(now))
                if await self._give(member, first=first, count=count, version=version) is False:
                    await asyncio.sleep(AGAIN_S)
            self._on_whole()

    async def settle(self, first: int, end: int) -> bool:
        """Have a majority get what was decided of blocks, at once: a read waits. Return whether it has it."""
        view = self._view
        while view.is_uncertain(first, end) and not view.is_over and (gap := view.gap(first, end)) is not None:
            member, begin, count, version = gap
            self._rate.charge(count * BLOCK_BYTES, now=time_now())
            if not await self._give(member, first=begin, count=count, version=version):
                return False
        return not view.is_uncertain(first, end)

    def _gap(self) -> tuple[int, int, int, int] | None:
        """Return a member, and first block, count and version of what it lacks."""
        gaps = ((number, member.to_repair()) for number, member in self._view.members.items())
        return next(((number, *gap) for number, gap in gaps if gap is not None), None)

    async def note_absent(self, member: int, *, block: int) -> None:
        """Have a block that a member has lost be repaired."""
        try:
            entries = await self._calls.replicas.entries(member, epoch=self._view.epoch, first=block, count=1)
        except (LinkError, RefusedError) as error:
            self._calls.drop(member, error)
            return
        if entries.kind[0] != BlockKind.ABSENT or (found := self._view.members.get(member)) is None:
            return
        name = self._calls.replicas.links[member].name
        if not (version := int(entries.version[0])):  # the next view decides it
            self._calls.drop(member, LinkError(f"{name}: has lost which version of block {block} it had"))
            return
        self._calls.log.warning("%s: block %d was corrupt, and is repaired", name, block)
        found.lacks(block, version=version)
        self._has_gap.set()

    async def _give(self, member: int, *, first: int, count: int, version: int) -> bool | None:
        """Copy blocks to a member; return whether it has them, None: a later write is on its way to all members."""
        source = next((number for number in self._view.readers(first, first + count) if number != member), None)
        if source is None:
            return False if count == 1 else await self._give(member, first=first, count=1, version=version)
        place = {"offset": first * BLOCK_BYTES, "length": count * BLOCK_BYTES, "version": version}
        use = Use(await self._calls.replicas.memory.take(count * BLOCK_BYTES))
        try:
            reply = await self._calls.call(source, self._calls.command(CapsuleOpcode.READ, **place), use)
            if reply is None:
                return False
            if reply.outcome is CapsuleOutcome.ABSENT and first <= reply.value < first + count:
                await self.note_absent(source, block=reply.value)
                return False
            if reply.outcome is CapsuleOutcome.CHANGED:
                return None if count == 1 else await self._give(member, first=first, count=1, version=version)
            if reply.outcome is not CapsuleOutcome.OK:
                self._calls.refused(source, reply)
                return False
            write = self._calls.command(CapsuleOpcode.WRITE, kind=BlockKind.DATA, **place)
            reply = await self._calls.call(member, write, use)
            if reply is None:
                return False
            if reply.outcome is not CapsuleOutcome.OK:
                self._calls.refused(member, reply)
                return False
            self._view.has_got(member, first, first + count, version=version)
            return True
        finally:
            use.end()
