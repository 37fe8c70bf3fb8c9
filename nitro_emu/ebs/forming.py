"""How a writer takes a volume: an epoch that a majority promises, what they have, and one decision for all.

    STATUS      of all replicas: the epochs, and who has them
    PROMISE     the next epoch, by a majority at least
    DIGESTS     of each of those; where they differ, ENTRIES
    ADOPT       what `view.decide` has decided
    MARK        from then on they read and write

All of it happens at the attachment, and again whenever a server has come back. Without a majority it is tried again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nitro_emu.ebs.capsule import BLANK, Command, Opcode, Outcome, Reply
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.link import URGENT_BYTES, Link, LinkError, Memory
from nitro_emu.ebs.server.entries import ENTRY_BYTES, EXTENT_BLOCKS, U64, Entries
from nitro_emu.ebs.server.store import DIGEST_BYTES
from nitro_emu.ebs.view import View, adoptions, decide, majority, missing

GRACE_S: Final = 0.05
"""How long a majority that has answered waits for the rest."""
_COMPARED_AT_ONCE: Final = 16
"""Extents, so that many round trips pass at the same time."""


class NotFormedError(VolumeError):
    """There is no majority now; the message says why. `failed`: the replica that has failed, if it is one."""

    def __init__(self, reason: str, *, failed: int | None = None) -> None:
        super().__init__(reason)
        self.failed = failed


class TakenError(VolumeError):
    """A majority has promised another writer a later epoch."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"another writer has attached it (epoch {epoch})")
        self.epoch = epoch


class RefusedError(VolumeError):
    """A replica did not do a command."""

    def __init__(self, server: str, reply: Reply) -> None:
        why = f": {os.strerror(reply.value)}" if reply.outcome is Outcome.FAILED and reply.value else ""
        super().__init__(f"{server}: {reply.outcome.name}{why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The servers of a volume, as one writer reaches them."""

    volume: int
    size_bytes: int
    owner: int
    links: tuple[Link, ...]
    memory: Memory

    def command(self, opcode: Opcode, **fields: Any) -> Command:
        """Return a command of this writer."""
        return Command(opcode=opcode, volume=self.volume, owner=self.owner, **fields)

    async def call(self, number: int, command: Command) -> Reply:
        """Have a replica do a command without data, for a view. Raises NotFormedError."""
        try:
            reply = await self.links[number].call(command)
        except LinkError as error:
            raise NotFormedError(str(error), failed=number) from error
        if reply.outcome is not Outcome.OK:
            raise NotFormedError(str(RefusedError(self.links[number].name, reply)), failed=number)
        return reply

    async def fetch(self, number: int, command: Command, *, length_bytes: int) -> bytes:
        """Return what a replica writes for a command, up to URGENT_BYTES. Raises LinkError, RefusedError."""
        buffer = await self.memory.take_urgent()
        is_quiet = False
        try:
            reply = await self.links[number].call(command, buffer=buffer)
            is_quiet = True
            if reply.outcome is not Outcome.OK:
                raise RefusedError(self.links[number].name, reply)
            return bytes(buffer.view[:length_bytes])
        finally:
            buffer.give_back(is_quiet=is_quiet)

    async def entries(self, number: int, *, epoch: int, first: int, count: int) -> Entries:
        """Return what a replica has of blocks. Raises LinkError, RefusedError."""
        command = self.command(Opcode.ENTRIES, epoch=epoch, offset=first * BLOCK_BYTES, length=count * BLOCK_BYTES)
        raw = await self.fetch(number, command, length_bytes=count * ENTRY_BYTES)
        return Entries.decode_untrusted(raw, first_block=first)

    async def ask(self, numbers: Iterable[int], command: Command, *, enough: int) -> dict[int, Reply]:
        """Return the replies, of all, or of `enough` once GRACE_S has passed since; none of a server that fails."""
        calls = {asyncio.ensure_future(self.links[number].call(command)): number for number in numbers}
        waiting, replies = set(calls), dict[int, Reply]()
        give_up_at: float | None = None
        try:
            while waiting:
                if give_up_at is None and len(replies) >= enough:
                    give_up_at = time_now() + GRACE_S
                timeout_s = None if give_up_at is None else give_up_at - time_now()
                done, waiting = await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
                replies |= {
                    number: call.result() for call, number in calls.items() if call in done and not call.exception()
                }
        finally:
            for call in waiting:
                call.cancel()
        return replies


def time_now() -> float:
    """Return the event loop's time, in seconds."""
    return asyncio.get_running_loop().time()


async def form(replicas: Replicas, *, last_epoch: int, without: int | None = None) -> View:
    """Return a new view; `last_epoch`: of this writer, 0 before its first; `without` a replica that has just failed.

    Raises NotFormedError, TakenError.
    """
    count = len(replicas.links)
    enough = majority(count)
    asked = [number for number in range(count) if number != without]
    known = await replicas.ask(asked, replicas.command(Opcode.STATUS), enough=enough)
    known = {number: reply for number, reply in known.items() if reply.outcome is Outcome.OK}
    _require(replicas, known, "answer")
    later = [each.epoch for each in known.values() if each.epoch > last_epoch and each.owner != replicas.owner]
    if last_epoch and len(later) >= enough:
        raise TakenError(max(later))
    epoch = max(last_epoch, *(reply.epoch for reply in known.values())) + 1
    promise = replicas.command(Opcode.PROMISE, epoch=epoch)
    answers = await replicas.ask(known, promise, enough=enough)
    promised = {number: reply.mark for number, reply in answers.items() if reply.outcome is Outcome.OK}
    blank = {number for number, mark in promised.items() if mark == BLANK}
    busy = [reply for reply in answers.values() if reply.outcome is Outcome.BUSY]
    if busy and len(promised) < enough:
        raise NotFormedError("another writer has it: detach it there, or wait for 2 s after its end")
    _require(replicas, promised.keys() - blank, "promise an epoch, and have kept what they had")
    promised |= dict.fromkeys(blank, -1)
    view = View(epoch, replicas=count, members=promised)
    await _reconcile(replicas, view, marks=promised)
    await asyncio.gather(*(replicas.call(each, replicas.command(Opcode.MARK, epoch=epoch)) for each in promised))
    return view


def _require(replicas: Replicas, these: Iterable[int], what: str) -> None:
    """Raise NotFormedError unless they are a majority."""
    names, count = [replicas.links[number].name for number in these], len(replicas.links)
    if len(names) < majority(count):
        listed = f" ({', '.join(names)})" if names else ""
        needed = f"{majority(count)} are needed: start the others"
        raise NotFormedError(f"{len(names)} of {count} servers {what}{listed}; {needed}")


async def _reconcile(replicas: Replicas, view: View, *, marks: dict[int, int]) -> None:
    """Have all members adopt one decision. Raises NotFormedError."""
    extents = -(-replicas.size_bytes // (EXTENT_BLOCKS * BLOCK_BYTES))
    found = await asyncio.gather(*(_digests(replicas, number, view=view, count=extents) for number in marks))
    digests = dict(zip(marks, found, strict=True))
    gate = asyncio.Semaphore(_COMPARED_AT_ONCE)

    async def compare(extent: int) -> None:
        async with gate:
            await _reconcile_extent(replicas, view, extent=extent, marks=marks)

    differing = [extent for extent in range(extents) if len({each[extent] for each in digests.values()}) > 1]
    await asyncio.gather(*map(compare, differing))


async def _digests(replicas: Replicas, number: int, *, view: View, count: int) -> list[bytes]:
    most, found = URGENT_BYTES // DIGEST_BYTES, list[bytes]()
    for first in range(0, count, most):
        length = min(most, count - first)
        command = replicas.command(Opcode.DIGESTS, epoch=view.epoch, offset=first, length=length)
        try:
            raw = await replicas.fetch(number, command, length_bytes=length * DIGEST_BYTES)
        except (LinkError, RefusedError) as error:
            raise NotFormedError(str(error), failed=number) from error
        found += [raw[at : at + DIGEST_BYTES] for at in range(0, len(raw), DIGEST_BYTES)]
    return found


async def _reconcile_extent(replicas: Replicas, view: View, *, extent: int, marks: dict[int, int]) -> None:
    first = extent * EXTENT_BLOCKS
    count = min(EXTENT_BLOCKS, replicas.size_bytes // BLOCK_BYTES - first)

    async def table_of(number: int) -> Entries:
        try:
            return await replicas.entries(number, epoch=view.epoch, first=first, count=count)
        except (LinkError, RefusedError) as error:
            raise NotFormedError(str(error), failed=number) from error

    found = await asyncio.gather(*map(table_of, marks))
    tables = dict(zip(marks, found, strict=True))
    decided = decide(tables, marks=marks)
    for number, table in tables.items():
        for each in adoptions(decided, table):
            await replicas.call(
                number,
                replicas.command(
                    Opcode.ADOPT, epoch=view.epoch, version=each.version, kind=each.kind,
                    offset=(first + each.first) * BLOCK_BYTES, length=each.count * BLOCK_BYTES,
                ),
            )  # fmt: skip
        lacks: U64 = np.zeros(EXTENT_BLOCKS, np.uint64)
        lacks[:count] = missing(decided, table)
        if lacks.any():
            view.members[number].missing[extent] = lacks
