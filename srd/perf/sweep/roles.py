"""What a server does for one size over SRD: it answers, receives, or has memory that is written or read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import numpy as np

from devmem.region import Region
from devmem.registry import Access
from srd.batch import MessageBatch
from srd.errors import SrdError
from srd.message import Message
from srd.peer import Peer
from srd.perf.errors import PerfError
from srd.perf.payload import PayloadSource, Shifted
from srd.perf.running import STALL_S
from srd.perf.stream import Fail
from srd.perf.sweep.memory import MessageSlots
from srd.perf.sweep.rows import Rows, Tally

CHECKED_BYTES: Final = 64 << 10
"""Bytes of a message that a server of round trips compares while the client compares all of the answer: another part
of each message, so that it has compared in time."""
_TICK_S: Final = 0.001


class Role:
    """A server's part of one size. Errors of its tasks are told to `fail`."""

    keys: Sequence[int] = ()
    """By peer: remote keys of memory."""

    def __init__(self, *, fail: Fail) -> None:
        self._fail = fail
        self._tasks: list[asyncio.Task[None]] = []

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.ensure_future(self._guarded(work)))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (SrdError, OSError) as error:
            self._fail(error)

    def check_untrusted(self, first: int, count: int) -> None:
        """Compare a round of writes. Raises PerfError."""
        raise PerfError(f"a round {first}, {count} of what has none")

    @property
    def moved(self) -> int:
        """A number that changes while something moves."""
        return 0

    async def finish(self, count: int) -> None:
        """Wait until the `count` messages that were sent are here. Raises PerfError for less, or for wrong ones."""

    async def close(self) -> None:
        """End its tasks, and give its memory back."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def arrived(role: Role, has: Any, wanted: int) -> None:
    """Wait until `has()` is as much as wanted. Raises PerfError when nothing moves for STALL_S."""
    seen, give_up_at = -1, 0.0
    while (now_has := has()) < wanted:
        now = time.monotonic()
        if role.moved != seen:
            seen, give_up_at = role.moved, now + STALL_S
        elif now >= give_up_at:
            raise PerfError(f"{wanted} messages were sent, and {now_has} have arrived")
        await asyncio.sleep(_TICK_S)


class PartCheck:
    """Compares a part of each message with the source, another part each time."""

    def __init__(self, source: PayloadSource) -> None:
        self._source = source
        self._count = 0

    def __call__(self, views: Iterable[memoryview], *, number: int, length: int) -> None:
        """Compare a part of what `views` have, `length` bytes in all. Raises PerfError."""
        start = self._count * CHECKED_BYTES % length
        self._count += 1
        at, base = 0, self._source.offset(number)
        for view in views:
            first, end = max(start - at, 0), min(start + CHECKED_BYTES - at, len(view))
            if (
                first < end
                and bytes(view[first:end]) != self._source.array[base + at + first : base + at + end].tobytes()
            ):
                wrong = self._source.difference(base + at + first, np.frombuffer(view[first:end], np.uint8))
                raise PerfError(f"byte {at + first + (wrong or 0)} of message {number} is not what was sent")
            at += len(view)


class SweepResponder(Role):
    """Answers each message by one of the same length and number; `size_bytes`: of the longest."""

    def __init__(self, peer: Peer, *, size_bytes: int, verify: bool, fail: Fail) -> None:
        super().__init__(fail=fail)
        self._peer, self._size_bytes = peer, size_bytes
        self._source = Shifted(size_bytes)
        self._check = PartCheck(self._source) if verify else None
        self._answering: set[asyncio.Future[Any]] = set()
        self._arrived = 0
        self._start(self._answer())

    @property
    def moved(self) -> int:
        """Messages that have arrived."""
        return self._arrived

    async def _answer(self) -> None:
        region, answering = self._source.region, self._answering
        while True:
            message = await self._peer.recv()
            number = message.immediate or 0
            if not 1 <= message.length <= self._size_bytes:
                message.release()
                raise PerfError(f"a message of {message.length} bytes instead of {self._size_bytes}")
            try:
                answer = self._peer.post_send(
                    region, offset=self._source.offset(number), length=message.length, immediate=number
                )
            except SrdError:  # the peer has just ended
                message.release()
                raise
            answering.add(answer)
            answer.add_done_callback(partial(self._answered, message))
            self._arrived += 1

    def _answered(self, message: Message, answer: asyncio.Future[Any]) -> None:
        """Compare and release a message once the answer is there: it takes none of the time that is measured."""
        self._answering.discard(answer)
        try:
            if self._check is not None:
                self._check(message.views(), number=message.immediate or 0, length=message.length)
        except PerfError as error:
            self._fail(error)
        finally:
            message.release()

    async def finish(self, count: int) -> None:
        """Wait until all answers have arrived."""
        await arrived(self, lambda: self._arrived, count)
        if self._answering:
            await asyncio.wait(self._answering, timeout=STALL_S)

    async def close(self) -> None:
        """Answer no more."""
        await super().close()
        answering = list(self._answering)
        for answer in answering:
            answer.cancel()
        await asyncio.gather(*answering, return_exceptions=True)  # then their memory is not read any more
        self._source.close()


class SweepReceiver(Role):
    """Receives the messages of all peers, and compares and counts them if they are verified."""

    def __init__(self, peers: Sequence[Peer], *, size_bytes: int, verify: bool, fail: Fail) -> None:
        super().__init__(fail=fail)
        self._rows = Rows(size_bytes) if verify else None
        self._tally = Tally(self._rows) if self._rows is not None else None
        self._arrived = 0
        for peer in peers:
            self._start(self._receive(peer))

    @property
    def moved(self) -> int:
        """Messages that have arrived."""
        return self._arrived

    async def _receive(self, peer: Peer) -> None:
        while True:
            item = await peer.recv_batch()
            try:
                if self._tally is not None:
                    self._tally.add(_rows_of(item))
                self._arrived += item.count if isinstance(item, MessageBatch) else 1
            finally:
                item.release()

    async def finish(self, count: int) -> None:
        """Wait for all messages; each has to arrive once."""
        await arrived(self, lambda: self._arrived, count)
        if self._tally is not None:
            self._tally.require_once(count)

    async def close(self) -> None:
        """Receive no more."""
        await super().close()
        if self._rows is not None:
            self._rows.close()


def _rows_of(item: Message | MessageBatch) -> Any:
    if isinstance(item, MessageBatch):
        return item.rows()
    return np.frombuffer(item.gather(), np.uint8).reshape(1, -1)


class Registrar(Protocol):
    """Where memory is registered for the other end: an endpoint, or what else has peers."""

    def register(self, region: Region, *, offset: int, length: int, access: Access, peers: Sequence[Any]) -> Any:
        """Return a registration, which has a `remote_key`."""

    def deregister(self, registration: Any) -> None:
        """Withdraw it."""


class _Registered(Role):
    """Memory that peers may use: each its own range."""

    def __init__(self, registry: Registrar, peers: Sequence[Any], *, fail: Fail) -> None:
        super().__init__(fail=fail)
        self._registry, self._peers = registry, peers
        self._registrations: list[Any] = []

    @property
    def moved(self) -> int:
        """Bytes of all peers in both directions."""
        return sum(peer.landed_bytes + peer.stats().tx_bytes for peer in self._peers)

    def _deregister(self) -> None:
        for registration in self._registrations:
            self._registry.deregister(registration)
        self._registrations.clear()


class Written(_Registered):
    """Slots that the client writes."""

    def __init__(
        self, registry: Registrar, peers: Sequence[Any], *, size_bytes: int, depth: int, verify: bool, fail: Fail
    ) -> None:
        super().__init__(registry, peers, fail=fail)
        self._verify = verify
        self._source = PayloadSource(size_bytes)
        self._slots = MessageSlots(self._source, size_bytes=size_bytes, depth=depth, peers=len(peers))
        if verify:
            self._slots.prepare(0)
        for number, peer in enumerate(peers):
            self._registrations.append(
                registry.register(
                    self._slots.region,
                    offset=self._slots.offset(number),
                    length=self._slots.peer_bytes,
                    access=Access.LOCAL_WRITE | Access.REMOTE_WRITE,
                    peers=[peer],
                )
            )
        self.keys = [registration.remote_key for registration in self._registrations]

    def check_untrusted(self, first: int, count: int) -> None:
        """Compare a round. Raises PerfError."""
        if not self._verify or first < 0 or not 1 <= count <= self._slots.depth * len(self._peers):
            raise PerfError(f"a round {first}, {count} that there is not")
        self._slots.compare(first, count)

    async def close(self) -> None:
        """Withdraw the memory."""
        self._deregister()
        await super().close()
        self._slots.close()
        self._source.close()


class Readable(_Registered):
    """The source, which the client reads."""

    def __init__(self, registry: Registrar, peers: Sequence[Any], *, size_bytes: int, fail: Fail) -> None:
        super().__init__(registry, peers, fail=fail)
        self._source = PayloadSource(size_bytes)
        self._registrations.append(
            registry.register(
                self._source.region, offset=0, length=self._source.size_bytes, access=Access.REMOTE_READ, peers=peers
            )
        )
        self.keys = [self._registrations[0].remote_key] * len(peers)

    async def close(self) -> None:
        """Withdraw the memory."""
        self._deregister()
        await super().close()
        self._source.close()
