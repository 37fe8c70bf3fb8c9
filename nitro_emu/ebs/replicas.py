"""A volume on servers: a block device whose every write is on a majority of its replicas before it returns.

Theory of operation. Each write gets a version when it begins, and keeps it: what is sent again to the same or another
server, also in a later epoch, is the same write. It returns when a majority has it. Who does not do a command is no
member any more (`calls`); a majority that is left goes on. When a server is back, or no majority is left, a new view is
formed of all that answer (`forming`); requests wait for it, and begin again. What a member lacks it is given in the
background (`repair`).

A read asks one member, and another one when there is no answer (`hedge`); the first answer counts. It returns if a
majority's lease lasts, or a majority says that the epoch does: else another writer could have written meanwhile.

Every request ends within IO_BOUND_S, in success or with a DeviceError.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from netns.base.token_bucket import TokenBucket
from nitro_emu.ebs.calls import Calls, Use, reply_of
from nitro_emu.ebs.capsule import (
    MAX_IO_BYTES,
    MAX_ZERO_BYTES,
    CapsuleCommand,
    CapsuleOpcode,
    CapsuleOutcome,
    CapsuleReply,
)
from nitro_emu.ebs.device import BLOCK_BYTES, BlockExtent
from nitro_emu.ebs.errors import DeviceError, VolumeError
from nitro_emu.ebs.forming import BusyError, NotFormedError, RefusedError, Replicas, TakenError, form, time_now
from nitro_emu.ebs.hedge import Hedge
from nitro_emu.ebs.link import BufferMemory, LinkError, ServerLink
from nitro_emu.ebs.repair import Repair
from nitro_emu.ebs.server.entries import EXTENT_BLOCKS, BlockKind, Entries, runs, version_of
from nitro_emu.ebs.view import View, ViewMember

IO_BOUND_S: Final = 20.0
"""Two thirds of what Linux gives a disk before it resets it (30 s)."""
ATTACH_BOUND_S: Final = 5.0
"""Two leases and a half of a writer that has died."""
LAG_S: Final = 0.2
"""How long a majority waits for the rest when memory is short; longer than nearly all writes take."""
RETRY_S: Final = 0.25
"""How often a server that is away is asked, and a view tried."""
MAX_PAUSE_S: Final = 10.0
"""From letting a server in to letting one in again, which delays requests: for one that fails again and again."""
RENEW_S: Final = 0.5
"""A third of the writer's lease."""
REPAIR_BYTES_PER_S: Final = 100e6
"""A tenth of 10 Gbit/s: what hosts read and write comes first."""

COMPLETE: Final = "complete"
"""What is said of a replica that has all blocks."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica, as the writer sees it."""

    server: str
    is_member: bool
    missing_blocks: int
    """Of a member; it is given them in the background."""

    def __str__(self) -> str:
        """Return it as a user reads it."""
        if not self.is_member:
            return "away"
        return f"lacks {self.missing_blocks} blocks" if self.missing_blocks else COMPLETE


class InUseError(VolumeError):
    """Another writer has the volume."""


class ReplicatedVolume:
    """A BlockDevice. `async with ReplicatedVolume(...) as volume` attaches it; leaving it detaches.

    Raises VolumeError if it cannot be attached: no majority answers, or another writer has it.
    """

    def __init__(
        self,
        name: str,
        *,
        volume: int,
        size_bytes: int,
        links: Sequence[ServerLink],
        memory: BufferMemory,
        roster: int = 0,
        repair_bytes_per_s: float = REPAIR_BYTES_PER_S,
    ) -> None:
        """`volume`: its id; `links`: to the server of each replica; `roster`: how many have been replaced."""
        self.name = name
        self.size_bytes = size_bytes
        self._links = links
        self._memory = memory
        owner = secrets.randbits(63) | 1
        self._replicas = Replicas(
            volume=volume, size_bytes=size_bytes, owner=owner, links=tuple(links), memory=memory, roster=roster
        )
        self._calls = Calls(name, self._replicas, View(0, replicas=len(links), members=()), on_over=lambda: None)
        self._calls.end()
        self._sequence = 0
        self._hedge = Hedge()
        self._failure: DeviceError | None = None
        self._waiters = dict[asyncio.Future[None], None]()  # see `_wait`; in their order
        self._wanted = asyncio.Event()  # a view is to be formed
        self._pause_s = RETRY_S
        self._lets_in_at = -math.inf
        self._rate = TokenBucket(repair_bytes_per_s, depth_s=0.0)
        self._tasks = dict[asyncio.Task[Any], None]()  # in their order
        self._log = logging.getLogger(f"nitro_emu.volume.{name}")

    # -- attach, detach -----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        give_up_at, failed, leased_until = time_now() + ATTACH_BOUND_S, None, math.inf
        try:
            while self._view.is_over:
                try:
                    self._take(await form(self._replicas, last_epoch=0, without=failed))
                except NotFormedError as error:
                    failed, is_kept = error.failed, False
                    if isinstance(error, BusyError):  # a lease that lasts longer than before is kept by a writer
                        is_kept, leased_until = error.until_at > leased_until + RENEW_S / 2, error.until_at
                    if is_kept or time_now() > give_up_at:
                        kind = InUseError if isinstance(error, BusyError) else VolumeError
                        raise kind(f"{self.name}: cannot be attached: {error}") from error
                    await asyncio.sleep(RETRY_S)
                except TakenError as error:
                    raise VolumeError(f"{self.name}: cannot be attached: {error}") from error
        except BaseException:
            await self._close_links()
            raise
        for work in (self._keep(), self._watch()):
            self._start(work).add_done_callback(self._on_end)
        return self

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """Have no request wait for what does not go on."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("%s: an internal error", self.name, exc_info=error)
            self._fail(DeviceError(errno.EIO, f"{self.name}: an internal error: {error!r}; attach it again"))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fail(DeviceError(errno.ESHUTDOWN, f"{self.name}: is detached"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        view = self._view
        self._calls.end()
        await self._replicas.ask(list(view.members), self._calls.command(CapsuleOpcode.RELEASE), enough=view.majority)
        await self._close_links()

    async def _close_links(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links))

    def status(self) -> list[ReplicaStatus]:
        """Return what is known of its replicas."""
        nobody, members = ViewMember(), self._view.members
        return [
            ReplicaStatus(link.name, number in members, members.get(number, nobody).missing_blocks)
            for number, link in enumerate(self._links)
        ]

    async def wait_whole(self, *, server: int | None = None) -> None:
        """Return once all servers are there, or this one, and have all. Raises DeviceError if it is out."""
        while not (self._view.is_whole if server is None else self._view.has_all(server)):
            if self._failure is not None:
                raise self._failure
            await self._wait()

    @property
    def _view(self) -> View:
        return self._calls.view

    @property
    def epoch(self) -> int:
        """How often the volume was attached, or a server has come back."""
        return self._view.epoch

    # -- BlockDevice --------------------------------------------------------------------------------------------------

    async def read(self, offset: int, *, into: memoryview) -> None:
        """See BlockDevice."""
        self._check(offset, len(into))
        pieces = _pieces(len(into), MAX_IO_BYTES)
        await _together([self._read(offset + at, into=into[at : at + length]) for at, length in pieces])

    async def write(self, offset: int, *, data: memoryview, fua: bool) -> None:  # noqa: ARG002 - all writes are stable
        """See BlockDevice."""
        self._check(offset, len(data))
        pieces = _pieces(len(data), MAX_IO_BYTES)
        await _together([self._write(offset + at, data=data[at : at + length]) for at, length in pieces])

    async def flush(self) -> None:
        """See BlockDevice. What was written is stable: it says whether this one is still the writer."""
        await self._in_a_view(self._confirm)

    async def trim(self, offset: int, *, length_bytes: int) -> None:
        """See BlockDevice."""
        await self._zero(offset, length_bytes, kind=BlockKind.HOLE)

    async def write_zeroes(self, offset: int, *, length_bytes: int, fua: bool, may_trim: bool) -> None:  # noqa: ARG002
        """See BlockDevice."""
        await self._zero(offset, length_bytes, kind=BlockKind.HOLE if may_trim else BlockKind.ZERO)

    async def extents(self, offset: int, *, length_bytes: int) -> list[BlockExtent]:
        """See BlockDevice. At most to the end of 4 MiB."""
        self._check(offset, length_bytes)
        extent_bytes = EXTENT_BLOCKS * BLOCK_BYTES
        length = min(length_bytes, extent_bytes - offset % extent_bytes)
        first, count = offset // BLOCK_BYTES, length // BLOCK_BYTES

        async def ask(calls: Calls) -> Entries | None:
            view = calls.view
            number = (view.readers(first, first + count) or list(view.members))[0]
            try:
                return await self._replicas.entries(number, epoch=view.epoch, first=first, count=count)
            except (LinkError, RefusedError) as error:
                calls.drop(number, error)
                return None

        entries = await self._in_a_view(ask)
        found = [(begin, end, kind) for kind in BlockKind for begin, end in runs(entries.kind == kind)]
        return [
            BlockExtent(
                (end - begin) * BLOCK_BYTES, hole=kind is BlockKind.HOLE, zero=kind in {BlockKind.HOLE, BlockKind.ZERO}
            )
            for begin, end, kind in sorted(found)
        ]

    def _check(self, offset: int, length: int) -> None:
        if offset % BLOCK_BYTES or length % BLOCK_BYTES or length <= 0 or not 0 <= offset <= self.size_bytes - length:
            raise DeviceError(
                errno.EINVAL, f"{self.name}: {length} bytes at {offset} are no blocks of {self.size_bytes} bytes"
            )

    # -- writes -------------------------------------------------------------------------------------------------------

    async def _write(self, offset: int, *, data: memoryview) -> None:
        buffer = await self._memory.take(len(data))
        buffer.view[: len(data)] = data
        command = self._replicas.command(CapsuleOpcode.WRITE, offset=offset, length=len(data), kind=BlockKind.DATA)
        use = Use(buffer)
        try:
            await self._put(command, use)
        finally:
            use.end()

    async def _zero(self, offset: int, length_bytes: int, *, kind: BlockKind) -> None:
        self._check(offset, length_bytes)
        commands = [
            self._replicas.command(CapsuleOpcode.ZERO, offset=offset + at, length=length, kind=kind)
            for at, length in _pieces(length_bytes, MAX_ZERO_BYTES)
        ]
        await _together([self._put(command, None) for command in commands])

    async def _put(self, command: CapsuleCommand, use: Use | None) -> None:
        """Have a majority do a write, at one version however often it is sent."""
        number = version = 0

        async def put(calls: Calls) -> bool | None:
            nonlocal number, version
            if not version:
                self._sequence += 1
                number = self._sequence
                version = version_of(calls.view.epoch, sequence=number)
            return await self._to_all(calls, number, replace(command, epoch=calls.view.epoch, version=version), use)

        await self._in_a_view(put)

    def _to_all(
        self, calls: Calls, number: int, command: CapsuleCommand, use: Use | None
    ) -> asyncio.Future[bool | None]:
        """Send a write to all members; the result is True once a majority has it, None: there is none."""
        loop, view, first = asyncio.get_running_loop(), calls.view, command.offset // BLOCK_BYTES
        members = view.begin_write(number, first=first, end=first + command.length // BLOCK_BYTES)
        ended: asyncio.Future[bool | None] = loop.create_future()
        have, left = 0, len(members)

        def has_ended(member: int, call: asyncio.Future[CapsuleReply]) -> None:
            nonlocal have, left
            left -= 1
            have += self._has_written(calls, number, member, command.version, reply_of(call))
            if ended.done():
                return
            if have >= view.majority:
                ended.set_result(True)
                if left:
                    loop.call_later(LAG_S, self._drop_laggards, calls, number)
            elif have + left < view.majority:
                ended.set_result(None)

        for member in members:
            calls.post(member, command, use).add_done_callback(partial(has_ended, member))
        return ended

    def _has_written(self, calls: Calls, number: int, member: int, version: int, reply: CapsuleReply | None) -> bool:
        """Note how a write to a member has ended; return whether it has it."""
        if reply is None:
            return False
        if reply.outcome is not CapsuleOutcome.OK:
            calls.refused(member, reply)
            return False
        calls.view.acknowledged(number, member=member, version=version)
        self._tell()
        return True

    def _drop_laggards(self, calls: Calls, number: int) -> None:
        """Go on without members that do not have a write by now, if memory is short, which waits for them."""
        if calls.view.is_over or not any(number in found.writing for found in calls.view.members.values()):
            return
        if self._memory.is_short:
            calls.drop_laggards(number)
        else:
            asyncio.get_running_loop().call_later(LAG_S, self._drop_laggards, calls, number)

    # -- reads --------------------------------------------------------------------------------------------------------

    async def _read(self, offset: int, *, into: memoryview) -> None:
        first, end = offset // BLOCK_BYTES, (offset + len(into)) // BLOCK_BYTES

        async def ask(calls: Calls) -> bool | None:
            if end - first > 1 and not calls.view.has_reader(first, end):  # nobody has all of it
                half = (end - first) // 2 * BLOCK_BYTES
                await self._read(offset, into=into[:half])
                await self._read(offset + half, into=into[half:])
                return True
            if not await self._read_of_one(calls, offset, into):
                return None
            return await self._may_return(calls, first, end)

        await self._in_a_view(ask)

    async def _read_of_one(self, calls: Calls, offset: int, into: memoryview) -> bool:
        """Read of one member, and of others while there is no answer; return False: nobody has it now."""
        view, first, end = calls.view, offset // BLOCK_BYTES, (offset + len(into)) // BLOCK_BYTES
        command = calls.command(CapsuleOpcode.READ, offset=offset, length=len(into))
        asked, began_at = dict[asyncio.Future[CapsuleReply], tuple[int, Use]](), time_now()
        try:
            waiting, tried = set[asyncio.Future[CapsuleReply]](), set[int]()
            while True:
                member = next((number for number in view.readers(first, end) if number not in tried), None)
                if member is not None and not (waiting and self._memory.is_short):  # never wait for memory with some
                    use = Use(await self._memory.take(len(into)))
                    future = calls.post(member, command, use)
                    asked[future] = member, use
                    waiting.add(future)
                    tried.add(member)
                if not waiting:
                    return False
                has_others = view.members.keys() - tried  # to which a write may be on its way
                timeout_s = self._hedge.delay_s(len(into)) if has_others else None
                done, waiting = await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                for future in done:
                    member, use = asked[future]
                    if await self._has_read(calls, member, reply_of(future), first=first, end=end):
                        into[:] = use.buffer.view[: len(into)]
                        self._hedge.answered(len(into), took_s=time_now() - began_at)
                        return True
                    del asked[future]
                    use.end()
        finally:
            for _, use in asked.values():
                use.end()

    async def _has_read(self, calls: Calls, member: int, reply: CapsuleReply | None, *, first: int, end: int) -> bool:
        """Return whether a member has answered with data."""
        if reply is None:
            return False
        if reply.outcome is CapsuleOutcome.ABSENT and first <= reply.value < end:
            await self._repair.note_absent(member, block=reply.value)
        elif reply.outcome not in {CapsuleOutcome.OK, CapsuleOutcome.CHANGED}:
            calls.refused(member, reply)
        return reply.outcome is CapsuleOutcome.OK

    async def _may_return(self, calls: Calls, first: int, end: int) -> bool | None:
        """Return True if what was read of a view stays: a majority has it, and no other writer has come; else None."""
        view = calls.view
        while view.is_open(first, end) and not view.is_over and self._failure is None:
            await self._wait()
        if view.is_open(first, end) or not await self._repair.settle(first, end):
            return None
        return view.is_leased(time_now()) or await self._confirm(calls)

    async def _confirm(self, calls: Calls) -> bool | None:
        """Return True if a majority says that the epoch is the last one; None: not now."""
        view, sent_at = calls.view, time_now()
        if view.is_leased(sent_at):
            return True
        replies = await self._replicas.ask(list(view.members), calls.command(CapsuleOpcode.RENEW), enough=view.majority)
        good = [number for number, reply in replies.items() if reply.outcome is CapsuleOutcome.OK]
        for number in good:
            view.renew(number, sent_at=sent_at)
        for number in replies.keys() - good:
            calls.refused(number, replies[number])
        if len(good) < view.majority:
            calls.end()
            return None
        return True

    # -- views --------------------------------------------------------------------------------------------------------

    async def _in_a_view(self, attempt: Callable[[Calls], Awaitable[T | None]]) -> T:
        """Try until it has a result. Raises DeviceError, after IO_BOUND_S at the latest."""
        give_up_at = time_now() + IO_BOUND_S
        while True:
            if self._failure is not None:
                raise self._failure
            calls = self._calls
            if not calls.view.is_over and (result := await attempt(calls)) is not None:
                return result
            left_s = give_up_at - time_now()
            if left_s <= 0:
                raise DeviceError(errno.EIO, f"{self.name}: no majority of its servers in {IO_BOUND_S:g} s")
            if calls is self._calls:
                await self._wait(min(left_s, RETRY_S))

    def _take(self, view: View) -> None:
        """Go on in a new view."""
        self._calls = Calls(self.name, self._replicas, view, on_over=self._view_is_over)
        self._repair = Repair(self._calls, rate=self._rate, on_whole=self._tell)
        self._calls.start(self._repair.run()).add_done_callback(self._on_end)
        self._wanted.clear()
        self._tell()

    def _view_is_over(self) -> None:
        self._wanted.set()
        self._tell()

    async def _wait(self, timeout_s: float | None = None) -> None:
        """Return when there may be another view, a write has ended or a repair, or the end has come."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[told] = None
        await asyncio.wait([told], timeout=timeout_s)
        self._waiters.pop(told, None)

    def _tell(self) -> None:
        """Wake who waits."""
        waiters, self._waiters = self._waiters, {}
        for told in waiters:
            told.set_result(None)

    def _fail(self, failure: DeviceError) -> None:
        self._failure = self._failure or failure
        self._tell()

    async def _keep(self) -> None:
        """Renew leases, and form a view when one is wanted."""
        while True:
            try:
                async with asyncio.timeout(RETRY_S):
                    await self._wanted.wait()
            except TimeoutError:
                if not self._view.is_leased(time_now() + RENEW_S):
                    await self._confirm(self._calls)
                continue
            self._calls.end()
            try:
                self._take(await self._form_again())
            except TakenError as error:
                self._fail(DeviceError(errno.ESHUTDOWN, f"{self.name}: {error}; this one is out: attach it again"))
                return

    async def _form_again(self) -> View:
        """Return another view, once there is one. Raises TakenError."""
        failed, reason = None, ""
        while True:
            try:
                return await form(self._replicas, last_epoch=self.epoch, without=failed)
            except NotFormedError as error:
                if str(error) != reason:
                    reason = str(error)
                    self._log.warning("%s: waits: %s", self.name, reason)
                if failed is not None or error.failed is None:  # without the one that has failed it may be formed now
                    await asyncio.sleep(RETRY_S)
                failed = error.failed

    async def _watch(self) -> None:
        """Have a view be formed when a server is back."""
        while True:
            await asyncio.sleep(RETRY_S)
            if await self._is_one_back():
                self._wanted.set()

    async def _is_one_back(self) -> bool:
        """Whether a server that is no member answers, and it is time to let it in."""
        away = [number for number in range(len(self._links)) if number not in self._view.members]
        now = time_now()
        if not away or now < self._lets_in_at:
            return False
        status = self._replicas.command(CapsuleOpcode.STATUS)
        replies = await self._replicas.ask(away, status, enough=1, within_s=RETRY_S)
        if not any(reply.outcome is CapsuleOutcome.OK for reply in replies.values()):
            return False
        lately = now < self._lets_in_at + MAX_PAUSE_S
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S) if lately else RETRY_S
        self._lets_in_at = now + self._pause_s
        return True

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task


def _pieces(length: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield the parts (offset, length) of a request."""
    for at in range(0, length, most):
        yield at, min(most, length - at)


async def _together(parts: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do the parts of a request; if one fails, do the others to their end before it is raised."""
    if len(parts) == 1:
        await parts[0]
        return
    for result in await asyncio.gather(*parts, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def report_of(device: ReplicatedVolume) -> dict[str, object]:
    """Return what an attachment's status says of its replicas."""
    return {"epoch": device.epoch, "replicas": {replica.server: str(replica) for replica in device.status()}}
