"""How a writer takes a volume: an epoch that a majority promises, what they have, and one decision for all.

    STATUS      of all replicas: the epochs, and who has them
    PROMISE     the next epoch, by a majority at least
    DIGESTS     of each of those; where they differ, or something is absent, ENTRIES
    HELD        where nobody has the data of what `view.decide` has decided: `view.roll_back`
    ADOPT       what was decided
    MARK        from then on they read and write

All of it happens at the attachment, and again whenever a server has come back. Without a majority it is tried again.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np

from nitro_emu.ebs.capsule import BLANK, MAX_DIGESTS, CapsuleCommand, CapsuleOpcode, CapsuleOutcome, CapsuleReply
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.link import BufferMemory, LinkError, ServerLink
from nitro_emu.ebs.server.entries import (
    ENTRY_BYTES,
    EXTENT_BLOCKS,
    MAX_EPOCH,
    U64,
    BlockKind,
    Entries,
    epoch_of,
)
from nitro_emu.ebs.server.store import DIGEST_BYTES
from nitro_emu.ebs.view import View, adoptions, decide, majority, missing, roll_back, uncertain

GRACE_S: Final = 0.05
"""How long a majority that has answered waits for the rest."""
LATE_S: Final = 0.15
"""How long a majority that has done a step waits for the rest, which failing would have them begin again: more than a
path that has died delays an answer, and so short that a server that has died is hardly noticed."""
ANSWER_S: Final = 0.5
"""How long there may be no majority that answers before all are asked again."""
_COMPARED_AT_ONCE: Final = 16
"""Extents, so that many round trips pass at the same time."""
ADOPTING_S: Final = 5.0
"""How long requests may wait for replicas that adopt what they have missed, a command for each write: a quarter of the
time that they have. What was adopted until then need not be adopted again."""
_ADOPTED_AT_ONCE: Final = 8
"""Commands to a replica for an extent, which it answers within LATE_S beside those for others."""
T = TypeVar("T")


class NotFormedError(VolumeError):
    """There is no majority now; the message says why. `failed`: the replica that has failed, if it is one."""

    def __init__(self, reason: str, *, failed: int | None = None) -> None:
        super().__init__(reason)
        self.failed = failed


class BusyError(NotFormedError):
    """Another writer has a lease, until the time `until_at`."""

    def __init__(self, until_at: float) -> None:
        super().__init__("another writer has it: detach it there, or wait for 2 s after its end")
        self.until_at = until_at


class TakenError(VolumeError):
    """A majority has promised another writer a later epoch."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"another writer has attached it (epoch {epoch})")
        self.epoch = epoch


class ReplacedError(TakenError):
    """A server of the volume was replaced, and this writer does not know by whom."""

    def __init__(self) -> None:
        VolumeError.__init__(self, "one of its servers was replaced: the catalog of whoever did that has the new one")


class RefusedError(VolumeError):
    """A replica did not do a command."""

    def __init__(self, server: str, reply: CapsuleReply) -> None:
        is_known = reply.outcome is CapsuleOutcome.FAILED and reply.value in errno.errorcode
        super().__init__(f"{server}: {reply.outcome.name}{f': {os.strerror(reply.value)}' if is_known else ''}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The servers of a volume, as one writer reaches them."""

    volume: int
    size_bytes: int
    owner: int
    links: tuple[ServerLink, ...]
    memory: BufferMemory
    roster: int
    """How many servers had been replaced when these were the volume's."""

    def command(self, opcode: CapsuleOpcode, **fields: Any) -> CapsuleCommand:
        """Return a command of this writer."""
        return CapsuleCommand(opcode=opcode, volume=self.volume, owner=self.owner, **fields)

    async def call(self, number: int, command: CapsuleCommand) -> CapsuleReply:
        """Have a replica do a command without data. Raises LinkError, RefusedError."""
        reply = await self.links[number].call(command)
        if reply.outcome is not CapsuleOutcome.OK:
            raise RefusedError(self.links[number].name, reply)
        return reply

    async def fetch(self, number: int, command: CapsuleCommand, *, length_bytes: int) -> bytes:
        """Return what a replica writes for a command, up to URGENT_BYTES. Raises LinkError, RefusedError."""
        buffer = await self.memory.take_urgent()
        try:
            reply = await self.links[number].call(command, buffer=buffer)
            if reply.outcome is not CapsuleOutcome.OK:
                raise RefusedError(self.links[number].name, reply)
            return bytes(buffer.view[:length_bytes])
        finally:
            buffer.give_back()

    async def entries(
        self, number: int, *, epoch: int, first: int, count: int, opcode: CapsuleOpcode = CapsuleOpcode.ENTRIES
    ) -> Entries:
        """Return what a replica has of blocks; `opcode`: or HELD. Raises LinkError, RefusedError."""
        command = self.command(opcode, epoch=epoch, offset=first * BLOCK_BYTES, length=count * BLOCK_BYTES)
        raw = await self.fetch(number, command, length_bytes=count * ENTRY_BYTES)
        entries = Entries.decode_untrusted(raw, first_block=first)
        if epoch_of(int(entries.version.max())) > epoch:  # others would end a writer that asks them for such a version
            raise LinkError(f"{self.links[number].name}: has blocks of an epoch that has not begun")
        return entries

    async def ask(
        self, numbers: Iterable[int], command: CapsuleCommand, *, enough: int, within_s: float = math.inf
    ) -> dict[int, CapsuleReply]:
        """Return the replies, of all, or of `enough` once GRACE_S has passed since; none of a server that fails.

        After `within_s` those that there are.
        """
        calls = {number: self.links[number].call(command) for number in numbers}
        replies = dict[int, CapsuleReply]()
        async with aclosing(_ended(calls, enough=enough, grace_s=GRACE_S, within_s=within_s)) as ended:
            async for number, call in ended:
                if call is not None and not call.exception():
                    replies[number] = call.result()
        return replies

    async def all(
        self, works: Mapping[int, Awaitable[T]], *, went_on_at: Callable[[], float] = lambda: -math.inf
    ) -> dict[int, T]:
        """Return what comes of work at each replica. Raises NotFormedError when one fails, or is late.

        `went_on_at`: when work of many steps last did one; its next one may take as long as other work.
        """
        results, enough = dict[int, T](), majority(len(self.links))
        async with aclosing(_ended(works, enough=enough, grace_s=LATE_S, went_on_at=went_on_at)) as ended:
            async for number, work in ended:
                if work is None:
                    raise NotFormedError(f"{self.links[number].name}: is too slow", failed=number)
                if (error := work.exception()) is not None:
                    raise NotFormedError(str(error), failed=number) from error
                results[number] = work.result()
        return {number: results[number] for number in works}


async def _ended(
    works: Mapping[int, Awaitable[T]],
    *,
    enough: int,
    grace_s: float,
    within_s: float = math.inf,
    went_on_at: Callable[[], float] = lambda: -math.inf,
) -> AsyncGenerator[tuple[int, asyncio.Future[T] | None]]:
    """Yield numbers and works as these end; None for those which have not, `grace_s` after `enough` of them have.

    Work of many steps has `grace_s` from its last step on (`went_on_at`). Works that have not ended are cancelled.
    """
    numbers = {asyncio.ensure_future(work): number for number, work in works.items()}
    waiting, give_up_at = set(numbers), time_now() + within_s
    try:
        while waiting:
            if len(numbers) - len(waiting) >= enough:
                give_up_at = min(give_up_at, time_now() + grace_s)
            timeout_s = None if give_up_at == math.inf else give_up_at - time_now()
            done, waiting = await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not done and (give_up_at := went_on_at() + grace_s) > time_now():
                continue
            for work in done or waiting:
                yield numbers[work], work if done else None
            if not done:
                return
    finally:
        for work in numbers:
            work.cancel()
            work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody may have looked


def time_now() -> float:
    """Return the event loop's time, in seconds."""
    return asyncio.get_running_loop().time()


async def form(replicas: Replicas, *, last_epoch: int, without: int | None = None) -> View:
    """Return a new view; `last_epoch`: of this writer, 0 before its first.

    `without` a replica that has just failed, unless there is no majority without it.

    Raises NotFormedError, TakenError.
    """
    count = len(replicas.links)
    enough = majority(count)
    known = await replicas.ask(range(count), replicas.command(CapsuleOpcode.STATUS), enough=enough, within_s=ANSWER_S)
    known = {
        number: reply
        for number, reply in known.items()
        if reply.outcome is CapsuleOutcome.OK and reply.epoch < MAX_EPOCH  # else it has no other epoch to promise
    }
    if len(known.keys() - {without}) >= enough:
        known = {number: reply for number, reply in known.items() if number != without}
    _require(replicas, known, "answer")
    later = [each.epoch for each in known.values() if each.epoch > last_epoch and each.owner != replicas.owner]
    if last_epoch and len(later) >= enough:
        raise TakenError(max(later))
    epoch = max(last_epoch, *(reply.epoch for reply in known.values())) + 1
    promise = replicas.command(CapsuleOpcode.PROMISE, epoch=epoch, length=replicas.roster)
    answers = await replicas.ask(known, promise, enough=enough)
    if any(reply.outcome is CapsuleOutcome.CHANGED for reply in answers.values()):
        raise ReplacedError
    promised = {number: reply.mark for number, reply in answers.items() if reply.outcome is CapsuleOutcome.OK}
    blank = {number for number, mark in promised.items() if mark == BLANK}
    busy_us = [reply.value for reply in answers.values() if reply.outcome is CapsuleOutcome.BUSY]
    if busy_us and len(promised) < enough:
        raise BusyError(time_now() + max(busy_us) / 1e6)
    _require(replicas, promised.keys() - blank, "promise an epoch, and have kept what they had")
    promised |= dict.fromkeys(blank, -1)
    view = View(epoch, replicas=count, members=promised)
    await _reconcile(replicas, view, marks=promised)
    await replicas.all(
        {each: replicas.call(each, replicas.command(CapsuleOpcode.MARK, epoch=epoch)) for each in promised}
    )
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
    differing = list[int]()
    for first in range(0, extents, MAX_DIGESTS):
        count = min(MAX_DIGESTS, extents - first)
        command = replicas.command(CapsuleOpcode.DIGESTS, epoch=view.epoch, offset=first, length=count)
        found = await replicas.all(
            {each: replicas.fetch(each, command, length_bytes=count * DIGEST_BYTES) for each in marks}
        )
        for at in range(0, count * DIGEST_BYTES, DIGEST_BYTES):
            digests = {raw[at : at + DIGEST_BYTES] for raw in found.values()}
            if len(digests) > 1 or any(digest[-1] & 1 for digest in digests):
                differing.append(first + at // DIGEST_BYTES)
    left, until_at = iter(differing), time_now() + ADOPTING_S

    async def compare() -> None:
        for extent in left:
            await _reconcile_extent(replicas, view, extent=extent, marks=marks, until_at=until_at)

    comparing = [asyncio.ensure_future(compare()) for _ in range(_COMPARED_AT_ONCE)]
    try:
        await asyncio.gather(*comparing)
    finally:
        for each in comparing:
            each.cancel()


async def _reconcile_extent(
    replicas: Replicas, view: View, *, extent: int, marks: dict[int, int], until_at: float
) -> None:
    first = extent * EXTENT_BLOCKS
    count = min(EXTENT_BLOCKS, replicas.size_bytes // BLOCK_BYTES - first)
    tables = await replicas.all(
        {each: replicas.entries(each, epoch=view.epoch, first=first, count=count) for each in marks}
    )
    decided, held = decide(tables, marks=marks), tables
    if (decided.kind == BlockKind.ABSENT).any():
        held = await replicas.all(
            {
                each: replicas.entries(each, epoch=view.epoch, first=first, count=count, opcode=CapsuleOpcode.HELD)
                for each in marks
            }
        )
        able = {number: each for number, each in held.items() if marks[number] >= 0}
        decided = roll_back(decided, held=able, replicas=len(replicas.links))

    commands = {
        number: [
            replicas.command(
                CapsuleOpcode.ADOPT, epoch=view.epoch, version=each.version, kind=each.kind,
                offset=(first + each.first) * BLOCK_BYTES, length=each.count * BLOCK_BYTES,
            )
            for each in adoptions(decided, table, held=held[number])
        ]
        for number, table in tables.items()
    }  # fmt: skip

    went_on_at = -math.inf

    async def adopt(number: int) -> None:
        nonlocal went_on_at
        for at in range(0, len(commands[number]), _ADOPTED_AT_ONCE):
            some = commands[number][at : at + _ADOPTED_AT_ONCE]
            await asyncio.gather(*(replicas.call(number, command) for command in some))
            if time_now() < until_at:
                went_on_at = time_now()

    await replicas.all({number: adopt(number) for number in tables}, went_on_at=lambda: went_on_at)
    lacking = dict[int, U64]()
    for number in tables:
        lacks = lacking[number] = np.zeros(EXTENT_BLOCKS, np.uint64)
        lacks[:count] = missing(decided, held[number])
        if lacks.any():
            view.members[number].missing[extent] = lacks
    if (unsure := uncertain(lacking.values(), majority=view.majority)).any():
        view.uncertain[extent] = unsure
