"""A volume on servers: a block device whose every write is on a majority of its replicas before it returns.

Theory of operation. Each write gets a version when it begins, and keeps it: what is sent again to the same or another
server, also in a later epoch, is the same write. It returns when a majority has it. A member that fails a command, or
does not answer in time, is no member any more; a majority that is left goes on. When a server is back, or no majority
is left, a new view is formed of all that answer (`forming`); requests wait for it, and begin again.

A read asks one member, and another one after HEDGE_S; the first answer counts. It returns if a majority's lease lasts,
or a majority says that the epoch does: else another writer could have written meanwhile.

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
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from netns.base.token_bucket import TokenBucket
from nitro_emu.ebs.capsule import MAX_IO_BYTES, MAX_ZERO_BYTES, Command, Opcode, Outcome, Reply
from nitro_emu.ebs.device import BLOCK_BYTES, Extent
from nitro_emu.ebs.errors import DeviceError, VolumeError
from nitro_emu.ebs.forming import NotFormedError, RefusedError, Replicas, TakenError, form, time_now
from nitro_emu.ebs.link import Buffer, Link, LinkError, Memory
from nitro_emu.ebs.server.entries import EXTENT_BLOCKS, Entries, Kind, runs, version_of
from nitro_emu.ebs.view import Member, View

IO_BOUND_S: Final = 20.0
"""Two thirds of what Linux gives a disk before it resets it (30 s)."""
ATTACH_BOUND_S: Final = 5.0
"""Two leases and a half of a writer that has died."""
HEDGE_S: Final = 0.03
"""Longer than nearly all reads take, and so short that a server that has stopped is hardly noticed."""
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

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica, as the writer sees it."""

    server: str
    is_member: bool
    missing_blocks: int
    """Of a member; it is given them in the background."""


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
        links: Sequence[Link],
        memory: Memory,
        repair_bytes_per_s: float = REPAIR_BYTES_PER_S,
    ) -> None:
        """`volume`: its id; `links`: to the server of each replica."""
        self.name = name
        self.size_bytes = size_bytes
        self._links = links
        self._memory = memory
        owner = secrets.randbits(63) | 1
        self._replicas = Replicas(volume=volume, size_bytes=size_bytes, owner=owner, links=tuple(links), memory=memory)
        self._view = View(0, replicas=len(links), members=())
        self._view.is_over = True
        self._sequence = 0
        self._waiting = 0  # for acknowledgements
        self._failure: DeviceError | None = None
        self._changed = asyncio.Event()  # set, and another one put in its place, by `_tell`
        self._wanted = asyncio.Event()  # a view is to be formed
        self._has_gap = asyncio.Event()  # a member lacks something
        self._pause_s = RETRY_S
        self._lets_in_at = -math.inf
        self._rate = TokenBucket(repair_bytes_per_s, depth_s=0.0)
        self._tasks = dict[asyncio.Task[Any], None]()  # in their order
        self._sending: dict[int, set[asyncio.Task[bool]]] = {number: set() for number in range(len(links))}
        self._log = logging.getLogger(f"nitro_emu.volume.{name}")

    # -- attach, detach -----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        give_up_at, failed = time_now() + ATTACH_BOUND_S, None
        try:
            while self._view.is_over:
                try:
                    self._take(await form(self._replicas, last_epoch=0, without=failed))
                except NotFormedError as error:
                    failed = error.failed
                    if time_now() > give_up_at:
                        raise VolumeError(f"{self.name}: cannot be attached: {error}") from error
                    await asyncio.sleep(RETRY_S)
        except BaseException:
            await self._close_links()
            raise
        for work in (self._keep(), self._watch(), self._repair()):
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
        view = self._view
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        release = self._replicas.command(Opcode.RELEASE, epoch=view.epoch)
        await self._replicas.ask(list(view.members), release, enough=view.majority)
        await self._close_links()

    async def _close_links(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links))

    def status(self) -> list[ReplicaStatus]:
        """Return what is known of its replicas."""
        nobody, members = Member(), self._view.members
        return [
            ReplicaStatus(link.name, number in members, members.get(number, nobody).missing_blocks)
            for number, link in enumerate(self._links)
        ]

    async def wait_whole(self) -> None:
        """Return once all servers are there and have all. Raises DeviceError when it is detached, or fenced."""
        self._waiting += 1
        try:
            while not self._view.is_whole:
                if self._failure is not None:
                    raise self._failure
                await self._changed.wait()
        finally:
            self._waiting -= 1

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
        await self._zero(offset, length_bytes, kind=Kind.HOLE)

    async def write_zeroes(self, offset: int, *, length_bytes: int, fua: bool, may_trim: bool) -> None:  # noqa: ARG002
        """See BlockDevice."""
        await self._zero(offset, length_bytes, kind=Kind.HOLE if may_trim else Kind.ZERO)

    async def extents(self, offset: int, *, length_bytes: int) -> list[Extent]:
        """See BlockDevice. At most to the end of 4 MiB."""
        self._check(offset, length_bytes)
        extent_bytes = EXTENT_BLOCKS * BLOCK_BYTES
        length = min(length_bytes, extent_bytes - offset % extent_bytes)
        first, count = offset // BLOCK_BYTES, length // BLOCK_BYTES

        async def ask(view: View) -> Entries | None:
            number = (view.readers(first, first + count) or list(view.members))[0]
            try:
                return await self._replicas.entries(number, epoch=view.epoch, first=first, count=count)
            except (LinkError, RefusedError) as error:
                self._drop(view, number, error)
                return None

        entries = await self._in_a_view(ask)
        found = [(begin, end, kind) for kind in Kind for begin, end in runs(entries.kind == kind)]
        return [
            Extent((end - begin) * BLOCK_BYTES, hole=kind is Kind.HOLE, zero=kind in {Kind.HOLE, Kind.ZERO})
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
        command = self._replicas.command(Opcode.WRITE, offset=offset, length=len(data), kind=Kind.DATA)
        use = _Use(buffer)
        try:
            await self._put(command, use)
        finally:
            use.end(is_quiet=True)

    async def _zero(self, offset: int, length_bytes: int, *, kind: Kind) -> None:
        self._check(offset, length_bytes)
        commands = [
            self._replicas.command(Opcode.ZERO, offset=offset + at, length=length, kind=kind)
            for at, length in _pieces(length_bytes, MAX_ZERO_BYTES)
        ]
        await _together([self._put(command, None) for command in commands])

    async def _put(self, command: Command, use: _Use | None) -> None:
        """Have a majority do a write, at one version however often it is sent."""
        number = version = 0

        async def put(view: View) -> bool | None:
            nonlocal number, version
            if not version:
                self._sequence += 1
                number = self._sequence
                version = version_of(view.epoch, sequence=number)
            return await self._to_all(view, number, replace(command, epoch=view.epoch, version=version), use)

        await self._in_a_view(put)

    async def _to_all(self, view: View, number: int, command: Command, use: _Use | None) -> bool | None:
        """Send a write to all members; return True once a majority has it, None: there is none."""
        first = command.offset // BLOCK_BYTES
        members = view.begin_write(number, first=first, end=first + command.length // BLOCK_BYTES)
        calls = {self._send(view, number, member, command, use) for member in members}
        have = 0
        while calls:
            done, calls = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            have += sum(call.result() for call in done if not call.cancelled())
            if have >= view.majority:
                if calls:
                    asyncio.get_running_loop().call_later(LAG_S, self._drop_laggards, view, number)
                return True
            if have + len(calls) < view.majority:
                return None
        return None

    def _send(self, view: View, number: int, member: int, command: Command, use: _Use | None) -> asyncio.Task[bool]:
        task = self._start(self._to_one(view, number, member, command, use))
        sending = self._sending[member]
        sending.add(task)
        task.add_done_callback(sending.discard)
        return task

    def _drop_laggards(self, view: View, number: int) -> None:
        """Go on without members that do not have a write by now, if memory is short, which waits for them."""
        laggards = [each for each, found in view.members.items() if number in found.writing]
        if laggards and not view.is_over and not self._memory.is_short:
            asyncio.get_running_loop().call_later(LAG_S, self._drop_laggards, view, number)
            return
        for member in laggards:
            self._drop(view, member, LinkError(f"{self._links[member].name}: is too slow"))

    async def _to_one(self, view: View, number: int, member: int, command: Command, use: _Use | None) -> bool:
        """Send a write to a member; return whether it has it."""
        reply = await self._call(view, member, command, use)
        if reply is None:
            return False
        if reply.outcome is not Outcome.OK:
            self._drop(view, member, RefusedError(self._links[member].name, reply))
            return False
        view.acknowledged(number, member=member, version=command.version)
        if self._waiting:
            self._tell()
        return True

    async def _call(self, view: View, member: int, command: Command, use: _Use | None) -> Reply | None:
        """Return a member's reply; None: it is no member any more."""
        sent_at, is_quiet = time_now(), False
        if use is not None:
            use.begin()
        try:
            reply = await self._links[member].call(command, buffer=None if use is None else use.buffer)
            is_quiet = True
        except LinkError as error:
            self._drop(view, member, error)
            return None
        finally:
            if use is not None:
                use.end(is_quiet=is_quiet)
        if reply.outcome is not Outcome.FENCED:
            view.renew(member, sent_at=sent_at)
        return reply

    # -- reads --------------------------------------------------------------------------------------------------------

    async def _read(self, offset: int, *, into: memoryview) -> None:
        first, end = offset // BLOCK_BYTES, (offset + len(into)) // BLOCK_BYTES

        async def ask(view: View) -> bool | None:
            if end - first > 1 and not view.has_reader(first, end):  # nobody has all of it
                half = (end - first) // 2 * BLOCK_BYTES
                await self._read(offset, into=into[:half])
                await self._read(offset + half, into=into[half:])
                return True
            return await self._read_of_one(view, offset, into)

        await self._in_a_view(ask)

    async def _read_of_one(self, view: View, offset: int, into: memoryview) -> bool | None:
        """Read of one member, or of two if the first is slow; return None: try again."""
        first, end = offset // BLOCK_BYTES, (offset + len(into)) // BLOCK_BYTES
        command = self._replicas.command(Opcode.READ, epoch=view.epoch, offset=offset, length=len(into))
        asked, calls = set[int](), set[asyncio.Task[bytes | None]]()
        while True:
            ready = [number for number in view.readers(first, end) if number not in asked]
            if (ready and not calls) or (ready and len(asked) == 1):
                asked.add(ready[0])
                calls.add(self._start(self._read_from(view, ready[0], command)))
            if not calls:
                return None
            timeout_s = HEDGE_S if len(asked) == 1 else None
            done, calls = await asyncio.wait(calls, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for call in done:
                if call.cancelled() or (data := call.result()) is None:
                    continue
                if not await self._may_return(view, first, end):
                    return None
                into[:] = data
                return True

    async def _may_return(self, view: View, first: int, end: int) -> bool:
        """Whether what was read of a view stays: a majority has it, and no other writer has come."""
        self._waiting += 1
        try:
            while view.is_open(first, end) and not view.is_over and self._failure is None:
                await self._changed.wait()
        finally:
            self._waiting -= 1
        if view.is_open(first, end):
            return False
        return view.is_leased(time_now()) or await self._confirm(view) is not None

    async def _read_from(self, view: View, member: int, command: Command) -> bytes | None:
        """Return what a member has; None: it has not, or is no member any more."""
        if (asked := view.members.get(member)) is None:  # it was dropped a moment ago
            return None
        asked.reads += 1
        buffer = await self._memory.take(command.length)
        use = _Use(buffer)
        try:
            reply = await self._call(view, member, command, use)
            if reply is None:
                return None
            if reply.outcome is Outcome.OK:
                return bytes(buffer.view[: command.length])
            if reply.outcome is Outcome.ABSENT:
                await self._note_absent(view, member, block=reply.value)
            elif reply.outcome is not Outcome.CHANGED:
                self._drop(view, member, RefusedError(self._links[member].name, reply))
            return None
        finally:
            use.end(is_quiet=True)
            asked.reads -= 1

    async def _note_absent(self, view: View, member: int, *, block: int) -> None:
        """Have a block that a member has lost be repaired."""
        try:
            entries = await self._replicas.entries(member, epoch=view.epoch, first=block, count=1)
        except (LinkError, RefusedError) as error:
            self._drop(view, member, error)
            return
        if entries.kind[0] == Kind.ABSENT and (found := view.members.get(member)) is not None:
            self._log.warning("%s: block %d was corrupt, and is repaired", self._links[member].name, block)
            found.lacks(block, version=int(entries.version[0]))
            self._has_gap.set()

    async def _confirm(self, view: View) -> bool | None:
        """Return True if a majority says that the epoch is the last one; None: not now."""
        sent_at = time_now()
        if view.is_leased(sent_at):
            return True
        renew = self._replicas.command(Opcode.RENEW, epoch=view.epoch)
        replies = await self._replicas.ask(list(view.members), renew, enough=view.majority)
        good = [number for number, reply in replies.items() if reply.outcome is Outcome.OK]
        for number in good:
            view.renew(number, sent_at=sent_at)
        if len(good) < view.majority:
            view.is_over = True
            self._wanted.set()
            self._tell()
            return None
        return True

    # -- views --------------------------------------------------------------------------------------------------------

    async def _in_a_view(self, attempt: Callable[[View], Awaitable[T | None]]) -> T:
        """Try until it has a result. Raises DeviceError, after IO_BOUND_S at the latest."""
        give_up_at = time_now() + IO_BOUND_S
        while True:
            if self._failure is not None:
                raise self._failure
            view = self._view
            if not view.is_over and (result := await attempt(view)) is not None:
                return result
            left_s = give_up_at - time_now()
            if left_s <= 0:
                raise DeviceError(errno.EIO, f"{self.name}: no majority of its servers in {IO_BOUND_S:g} s")
            if view.is_over:
                self._wanted.set()
            if view is self._view:
                await self._wait_for_change(min(left_s, RETRY_S))

    async def _wait_for_change(self, timeout_s: float) -> None:
        await asyncio.wait([asyncio.ensure_future(self._changed.wait())], timeout=timeout_s)

    def _take(self, view: View) -> None:
        """Go on in a new view."""
        self._view = view
        self._wanted.clear()
        self._tell()
        if any(member.missing for member in view.members.values()):
            self._has_gap.set()

    def _tell(self) -> None:
        """Wake who waits for another view, for a write or a repair, or for the end."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _fail(self, failure: DeviceError) -> None:
        self._failure = self._failure or failure
        self._tell()

    def _drop(self, view: View, member: int, error: VolumeError) -> None:
        if member in view.members and not view.is_over:
            self._log.warning("%s: goes on without a replica: %s", self.name, error)
        view.drop(member)
        for task in self._sending[member] - {asyncio.current_task()}:
            task.cancel()
        if view.is_over:
            self._wanted.set()
            self._tell()

    async def _keep(self) -> None:
        """Renew leases, and form a view when one is wanted."""
        failed, reason = None, ""
        while True:
            try:
                async with asyncio.timeout(RETRY_S):
                    await self._wanted.wait()
            except TimeoutError:
                await self._renew()
                continue
            self._view.is_over = True
            self._tell()
            try:
                self._take(await form(self._replicas, last_epoch=self._view.epoch, without=failed))
                failed, reason = None, ""
            except NotFormedError as error:
                failed = error.failed
                if str(error) != reason:
                    reason = str(error)
                    self._log.warning("%s: waits: %s", self.name, reason)
                self._wanted.set()
                await asyncio.sleep(RETRY_S)
            except TakenError as error:
                self._fail(DeviceError(errno.ESHUTDOWN, f"{self.name}: {error}; this one is out: attach it again"))
                return

    async def _renew(self) -> None:
        if not self._view.is_leased(time_now() + RENEW_S):
            await self._confirm(self._view)

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
        replies = await self._replicas.ask(away, self._replicas.command(Opcode.STATUS), enough=1)
        if not any(reply.outcome is Outcome.OK for reply in replies.values()):
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

    # -- repair -------------------------------------------------------------------------------------------------------

    async def _repair(self) -> None:
        """Give members what they lack, at a rate."""
        while True:
            await self._has_gap.wait()
            self._has_gap.clear()
            view = self._view
            while not view.is_over and (work := _first_gap(view)) is not None:
                member, first, count, version = work
                now = time_now()
                self._rate.charge(count * BLOCK_BYTES, now=now)
                await asyncio.sleep(self._rate.delay_s(now))
                if not await self._repair_blocks(view, member, first=first, count=count, version=version):
                    await asyncio.sleep(RETRY_S)  # nobody has it now
            self._tell()

    async def _repair_blocks(self, view: View, member: int, *, first: int, count: int, version: int) -> bool:
        """Copy blocks to a member, if they are still of the version; return whether that is settled."""
        source = next((number for number in view.readers(first, first + count) if number != member), None)
        if source is None and count > 1:
            return await self._repair_blocks(view, member, first=first, count=1, version=version)
        if source is None or (found := view.members.get(member)) is None:
            return False
        place = {"offset": first * BLOCK_BYTES, "length": count * BLOCK_BYTES}
        buffer = await self._memory.take(count * BLOCK_BYTES)
        use = _Use(buffer)
        try:
            read = self._replicas.command(Opcode.READ, epoch=view.epoch, version=version, **place)
            reply = await self._call(view, source, read, use)
            if reply is not None and reply.outcome is Outcome.CHANGED and count == 1:
                found.has_got(first, first + 1, version=version)  # by the write that has changed it, or it is dropped
                return True
            if reply is not None and reply.outcome is Outcome.CHANGED:
                return await self._repair_blocks(view, member, first=first, count=1, version=version)
            if reply is None or reply.outcome is not Outcome.OK:
                return False
            write = self._replicas.command(Opcode.WRITE, epoch=view.epoch, version=version, kind=Kind.DATA, **place)
            if not await self._to_one(view, 0, member, write, use):
                return False
            found.has_got(first, first + count, version=version)
            return True
        finally:
            use.end(is_quiet=True)


class _Use:
    """A buffer that several calls use: it is given back when the last of them has ended."""

    def __init__(self, buffer: Buffer) -> None:
        """Begin the first use."""
        self.buffer = buffer
        self._users = 1
        self._is_quiet = True

    def begin(self) -> None:
        """Begin another one."""
        self._users += 1

    def end(self, *, is_quiet: bool) -> None:
        """End one. Unless it `is_quiet`, a server may still use the memory."""
        self._is_quiet = self._is_quiet and is_quiet
        self._users -= 1
        if not self._users:
            self.buffer.give_back(is_quiet=self._is_quiet)


def _first_gap(view: View) -> tuple[int, int, int, int] | None:
    """Return a member, and first block, count and version of what it lacks."""
    for number, member in view.members.items():
        if (gap := member.to_repair()) is not None:
            return number, *gap
    return None


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
