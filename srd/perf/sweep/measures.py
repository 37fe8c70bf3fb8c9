"""What a client does for one size: it has the clock, and posts the requests."""

from __future__ import annotations

import asyncio
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from devmem.registry import Access
from srd.endpoint import Endpoint
from srd.errors import SrdError
from srd.peer import Peer
from srd.perf.errors import PerfError
from srd.perf.figures import BandwidthFigures, LatencyFigures
from srd.perf.payload import NUMBERS, PayloadSource, Shifted
from srd.perf.sweep.kernel import Pour, in_thread, ping
from srd.perf.sweep.memory import MessageSlots, number_of, share
from srd.perf.sweep.plan import Sweep
from srd.perf.sweep.progress import WARM_UP_FRACTION, CompletionSeries, MessageQuota, Span
from srd.perf.sweep.rows import Rows
from srd.proto.wire.status import Status

Figures = LatencyFigures | BandwidthFigures
Check = Callable[[int, int], Awaitable[object]]
"""Has the server compare a round of writes: its first request, and how many there are."""
_WAYS: Final = 2
"""Of a round trip."""


class Measure(ABC):
    """Of one size: `warm_up`, `measure`, `close`."""

    sent = 0
    """Messages so far."""

    async def warm_up(self) -> None:  # noqa: B027 - of round trips the first ones do not count, instead
        """Do what does not count."""

    @abstractmethod
    async def measure(self) -> Figures:
        """Return the figures. Raises PerfError, PeerError."""

    @abstractmethod
    def close(self) -> None:
        """Give the memory back."""


def _require_ok(status: Status) -> None:
    if status is not Status.OK:
        raise PerfError(f"a request failed: {status.name}")


def latency_of(times_ns: Sequence[int], *, size_bytes: int) -> LatencyFigures:
    """Return the figures of half of each round trip."""
    return LatencyFigures.of([time_ns / _WAYS for time_ns in times_ns], size_bytes=size_bytes)


class RoundTrips(Measure):
    """A message and its answer, one at a time."""

    def __init__(self, sweep: Sweep, peer: Peer, *, size_bytes: int, source: PayloadSource | None = None) -> None:
        """Messages are the beginnings of the blocks of `source`, by default of one with blocks of this size."""
        self._sweep, self._peer, self._size_bytes = sweep, peer, size_bytes
        self._source = source or Shifted(size_bytes)

    async def measure(self) -> LatencyFigures:
        """Return the figures of half of each round trip."""
        return latency_of(await self.times_ns(), size_bytes=self._size_bytes)

    async def times_ns(self) -> list[int]:
        """Return the whole time of each round trip that counts, in their order. Raises PerfError, PeerError."""
        peer, region, size, clock = self._peer, self._source.region, self._size_bytes, time.perf_counter_ns
        times, span = list[int](), Span.of(self._sweep, now_ns=clock())
        while span.goes_on(clock(), counted=len(times)):
            offset, number = self._source.offset(self.sent), self.sent % NUMBERS
            began = clock()
            status = peer.post_send(region, offset=offset, length=size, immediate=number)
            with await peer.recv() as answer:
                took = clock() - began
                if answer.length != size or answer.immediate != number:
                    raise PerfError(f"{answer.length} bytes are the answer to {size}")
                if self._sweep.verify and not self._source.is_block(self.sent, answer.gather()):
                    raise PerfError(f"the answer to message {number} is not what was sent")
            _require_ok(await status)
            if span.counts(began, done=self.sent):
                times.append(took)
            self.sent += 1
        return times

    def close(self) -> None:
        """Give the memory back."""
        self._source.close()


class TcpRoundTrips(Measure):
    """The same over TCP."""

    def __init__(self, sweep: Sweep, sock: socket.socket, *, size_bytes: int) -> None:
        self._sweep, self._socket, self._size_bytes = sweep, sock, size_bytes
        self._source = Shifted(size_bytes)

    async def measure(self) -> LatencyFigures:
        """Return the figures of half of each round trip."""
        times, self.sent = await in_thread(
            self._socket, lambda: ping(self._socket, self._source, size_bytes=self._size_bytes, sweep=self._sweep)
        )
        return latency_of(times, size_bytes=self._size_bytes)

    def close(self) -> None:
        """Give the memory back."""
        self._source.close()


class Series(Measure):
    """Many messages at a time, in two runs: one that does not count, and one that does."""

    def __init__(self, sweep: Sweep, *, size_bytes: int) -> None:
        self._sweep, self._size_bytes = sweep, size_bytes
        self._depth = sweep.depth(size_bytes)
        self._progress = CompletionSeries(depth=self._depth * sweep.peers)
        self._first = 0  # request of the next round

    async def warm_up(self) -> None:
        """Send as many as fill every window twice, or for a part of the time."""
        sweep = self._sweep
        iterations = min(sweep.iterations, 2 * self._depth * sweep.peers)
        await self._count(MessageQuota.of(iterations=iterations, seconds=WARM_UP_FRACTION * sweep.seconds))

    async def measure(self) -> BandwidthFigures:
        """Return bandwidth and rate."""
        sweep = self._sweep
        await self._count(MessageQuota.of(iterations=sweep.iterations, seconds=(1 - WARM_UP_FRACTION) * sweep.seconds))
        return self._progress.figures(self._size_bytes)

    async def _count(self, quota: MessageQuota) -> None:
        self._progress.start()
        await self._run(quota)
        self._progress.end()
        self.sent += quota.total

    @abstractmethod
    async def _run(self, quota: MessageQuota) -> None:
        """Post what the quota allows, and wait until it is complete."""

    async def run_rounds(
        self, quota: MessageQuota, *, round_of: Callable[[int, int], Awaitable[object]], compare: Check
    ) -> None:
        """Do rounds of as many requests as there are slots, each compared while the clock is stopped.

        Both are called with the first request of a round, and how many there are.
        """
        while count := quota.take(self._depth * self._sweep.peers):
            await round_of(self._first, count)
            self._progress.add(count)
            self._progress.stop_clock()
            await compare(self._first, count)
            self._progress.go_on()
            self._first += self._depth


class TcpSends(Series):
    """Messages over TCP, a write for each."""

    def __init__(self, sweep: Sweep, sock: socket.socket, *, size_bytes: int) -> None:
        super().__init__(sweep, size_bytes=size_bytes)
        self._socket, self._source = sock, PayloadSource(size_bytes)
        self._pour = Pour(sock, self._source, size_bytes=size_bytes, depth=self._depth)
        self._is_warm = False

    async def _run(self, quota: MessageQuota) -> None:
        is_last, self._is_warm = self._is_warm, True

        def work() -> None:
            self._pour.write(quota, self._progress)
            if is_last:
                self._pour.end()
                self._progress.add(quota.total - self._progress.count)  # arrived, and not acknowledged before
            else:
                self._pour.drain()

        await in_thread(self._socket, work)

    def close(self) -> None:
        """Give the memory back."""
        self._source.close()


async def post_batches(
    endpoint: Endpoint,
    peers: Sequence[Peer],
    *,
    depth: int,
    quota: MessageQuota,
    post: Callable[[Peer, int], None],
    on_complete: Callable[[int], None],
) -> None:
    """Have `post` post batches of messages until the quota is used up and all are complete.

    Each peer has the same part of the quota. It has at most `depth` messages open, and gets more when half of them are
    complete. Raises PerfError for a message that has failed.
    """
    room, ready, posted = dict.fromkeys(peers, depth), list(peers), 0
    parts = dict(zip(peers, quota.split(len(peers)), strict=True))
    while True:
        for peer in ready:
            if count := parts[peer].take(room[peer]):
                post(peer, count)
                room[peer] -= count
                posted += count
        if not posted:
            return
        done = await endpoint.completions.wait()
        for entry in done:
            _require_ok(entry.status)
            room[entry.peer] += entry.count
            posted -= entry.count
            on_complete(entry.count)
        ready = list({entry.peer: None for entry in done if room[entry.peer] >= depth // 2})


class Batches(Series):
    """Messages of one packet each, posted in batches."""

    def __init__(self, sweep: Sweep, endpoint: Endpoint, peers: Sequence[Peer], *, size_bytes: int) -> None:
        super().__init__(sweep, size_bytes=size_bytes)
        self._endpoint, self._peers, self._rows = endpoint, peers, Rows(size_bytes)
        self._next = 0

    async def _run(self, quota: MessageQuota) -> None:
        def post(peer: Peer, count: int) -> None:
            peer.post_sends(self._rows.region, self._rows.offsets(self._next, count), lengths=self._size_bytes)
            self._next += count

        await post_batches(
            self._endpoint, self._peers, depth=self._depth, quota=quota, post=post, on_complete=self._progress.add
        )

    def close(self) -> None:
        """Give the memory back."""
        self._rows.close()


class Singles(Series):
    """Requests that are posted one by one: another when one completes."""

    def __init__(self, sweep: Sweep, peers: Sequence[Peer], *, size_bytes: int) -> None:
        super().__init__(sweep, size_bytes=size_bytes)
        self._peers = peers
        self._posted: set[asyncio.Future[Status]] = set()
        self._over = asyncio.Event()
        self._error: Exception | None = None

    def _post(self, peer: int) -> asyncio.Future[Status]:
        """Post the next request of a peer."""
        raise NotImplementedError

    async def _run(self, quota: MessageQuota) -> None:
        self._over.clear()
        for _ in range(self._depth):
            for peer in range(len(self._peers)):
                self._next(peer, quota)
        if self._posted:
            await self._over.wait()
        if self._error is not None:
            raise self._error

    def _next(self, peer: int, quota: MessageQuota) -> None:
        if self._error is not None or not quota.take(1):
            return
        future = self._post(peer)
        self._posted.add(future)

        def completed(done: asyncio.Future[Status]) -> None:
            self._posted.discard(done)
            if done.cancelled():
                return
            try:
                _require_ok(done.result())
                self._progress.add(1)
                self._next(peer, quota)
            except SrdError as error:
                self._error = self._error or error
            if not self._posted:
                self._over.set()

        future.add_done_callback(completed)

    def close(self) -> None:
        """Cancel what is still posted."""
        for future in list(self._posted):
            future.cancel()


class Sends(Singles):
    """Messages of several packets."""

    def __init__(self, sweep: Sweep, peers: Sequence[Peer], *, size_bytes: int) -> None:
        super().__init__(sweep, peers, size_bytes=size_bytes)
        self._rows = Rows(size_bytes)
        self._number = 0

    def _post(self, peer: int) -> asyncio.Future[Status]:
        offset = self._number % self._rows.count * self._size_bytes
        self._number += 1
        return self._peers[peer].post_send(self._rows.region, offset=offset, length=self._size_bytes)

    def close(self) -> None:
        """Cancel what is still posted, and give the memory back."""
        super().close()
        self._rows.close()


class Accesses(Singles):
    """Writes and reads. Verified ones are posted in rounds, between which they are compared (memory.py)."""

    def __init__(self, sweep: Sweep, peers: Sequence[Peer], *, size_bytes: int, keys: Sequence[int]) -> None:
        super().__init__(sweep, peers, size_bytes=size_bytes)
        self._keys = keys
        self._requests = [0] * len(peers)  # by peer: its next request
        self._source = PayloadSource(size_bytes)

    def _post_at(self, peer: int, request: int) -> asyncio.Future[Status]:
        raise NotImplementedError

    def _post(self, peer: int) -> asyncio.Future[Status]:
        request = self._requests[peer]
        self._requests[peer] += 1
        return self._post_at(peer, request)

    async def _compare(self, first: int, count: int) -> None:
        """Compare a round. Raises PerfError."""
        raise NotImplementedError

    async def _run(self, quota: MessageQuota) -> None:
        if self._sweep.verify:
            await self.run_rounds(quota, round_of=self._round, compare=self._compare)
        else:
            await super()._run(quota)

    async def _round(self, first: int, count: int) -> None:
        peers = len(self._peers)
        for peer in range(peers):
            for request in range(first, first + share(count, peer=peer, peers=peers)):
                self._posted.add(self._post_at(peer, request))
        for status in await asyncio.gather(*self._posted):
            _require_ok(status)
        self._posted.clear()

    def close(self) -> None:
        """Cancel what is still posted, and give the memory back."""
        super().close()
        self._source.close()


class Writes(Accesses):
    """Writes to the server's slots."""

    def __init__(
        self, sweep: Sweep, peers: Sequence[Peer], *, size_bytes: int, keys: Sequence[int], check: Check
    ) -> None:
        super().__init__(sweep, peers, size_bytes=size_bytes, keys=keys)
        self._check = check

    def _post_at(self, peer: int, request: int) -> asyncio.Future[Status]:
        number = number_of(request, peer=peer, peers=len(self._peers))
        return self._peers[peer].post_write(
            self._source.region,
            offset=self._source.offset(number),
            length=self._size_bytes,
            key=self._keys[peer],
            target_offset=request % self._depth * self._size_bytes,
        )

    async def _compare(self, first: int, count: int) -> None:
        await self._check(first, count)


class Reads(Accesses):
    """Reads from the server's source to slots here."""

    def __init__(
        self, sweep: Sweep, endpoint: Endpoint, peers: Sequence[Peer], *, size_bytes: int, keys: Sequence[int]
    ) -> None:
        super().__init__(sweep, peers, size_bytes=size_bytes, keys=keys)
        self._endpoint = endpoint
        self._slots = MessageSlots(self._source, size_bytes=size_bytes, depth=self._depth, peers=len(peers))
        if sweep.verify:
            self._slots.prepare(0)
        self._registration = endpoint.register(
            self._slots.region, offset=0, length=len(peers) * self._slots.peer_bytes, access=Access.LOCAL_WRITE
        )

    def _post_at(self, peer: int, request: int) -> asyncio.Future[Status]:
        number = number_of(request, peer=peer, peers=len(self._peers))
        return self._peers[peer].post_read(
            self._registration,
            offset=self._slots.offset(peer) + self._slots.slot_offset(request),
            length=self._size_bytes,
            key=self._keys[peer],
            source_offset=self._source.offset(number),
        )

    async def _compare(self, first: int, count: int) -> None:
        self._slots.compare(first, count)

    def close(self) -> None:
        """Cancel what is still posted, and give the memory back."""
        for future in list(self._posted):
            future.cancel()
        self._endpoint.deregister(self._registration)
        self._slots.close()
        super().close()
