"""SRD's streams: one peer each, which carries messages of `-l` bytes.

A sender has as many messages posted as keep its window full, and posts another when one completes. A receiver counts a
message and releases it. A message's immediate is its number.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import Final

import numpy as np

from srd.errors import PeerError, SrdError
from srd.message import Message
from srd.peer import Peer
from srd.perf.errors import PerfError
from srd.perf.payload import NUMBERS, PayloadSource
from srd.perf.stream import Address, Fail, PerfStream, SendWork, StreamSnapshot
from srd.proto.wire.status import Status

MAX_POSTED_BYTES: Final = 16 << 20
"""Posted and not complete: twice what an endpoint has in flight while nothing limits it."""
MAX_POSTED: Final = 1024
"""The same in messages."""
LOOK_S: Final = 0.01
"""How often a sender looks at its congestion window."""
DRAIN_S: Final = 2.0
"""How long a sender that was stopped waits for what it has posted; the rest is cancelled, and not counted."""


class SrdSender(PerfStream):
    """Keeps a peer busy."""

    sends = True

    def __init__(self, number: int, *, peer: Peer, local: Address, work: SendWork, fail: Fail) -> None:
        super().__init__(number)
        self._peer, self._local, self._work = peer, local, work
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._posted: set[asyncio.Future[Status]] = set()
        self._posted_bytes = 0
        self._limit_bytes = 2 * work.block_bytes
        self._look_at = 0.0
        self._next = 0  # number of the next message
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._cancels = False  # whether `stop` was called
        self._finished = asyncio.Event()

    @property
    def ends(self) -> tuple[Address, Address]:
        """Own address and the peer's."""
        return self._local, self._peer.address

    def start(self) -> None:
        """Post the first messages."""
        self._fill()

    def stop(self) -> None:
        """Post nothing any more."""
        self._stopped = self._cancels = True
        if self._timer is not None:
            self._timer.cancel()
        self._check_finished()

    def _fill(self) -> None:
        """Post what may be posted."""
        try:
            while not self._stopped and self._posted_bytes < self._limit() and len(self._posted) < MAX_POSTED:
                if self._must_wait():
                    return
                if not (size := self._work.budget.take(self._work.block_bytes)):
                    self._stopped = True
                    break
                self._post(size)
        except SrdError as error:
            self._stopped = True
            self._fail(error)
        self._check_finished()

    def _limit(self) -> int:
        """Return how much to have posted: more than the window, so that it is always full, and not much more.

        What is posted when the time is over has to arrive, or to be cancelled.
        """
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            window_bytes = self._peer.stats().cwnd_bytes
            self._limit_bytes = max(2 * self._work.block_bytes, min(4 * window_bytes, MAX_POSTED_BYTES))
        return self._limit_bytes

    def _must_wait(self) -> bool:
        """Whether `-b` allows no message now; then another look is due later."""
        if self._work.pace is None:
            return False
        delay_s = self._work.pace.delay_s(time.monotonic())
        if delay_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(delay_s, self._fill)
        return delay_s > 0

    def _post(self, size_bytes: int) -> None:
        offset, number = self._work.source.offset(self._next), self._next % NUMBERS
        future = self._peer.post_send(self._work.source.region, offset=offset, length=size_bytes, immediate=number)
        self._next += 1
        self._posted.add(future)
        self._posted_bytes += size_bytes
        future.add_done_callback(partial(self._completed, size_bytes))
        if self._work.pace is not None:
            self._work.pace.charge(size_bytes, now=time.monotonic())

    def _completed(self, size_bytes: int, future: asyncio.Future[Status]) -> None:
        self._posted.discard(future)
        self._posted_bytes -= size_bytes
        if not future.cancelled():
            if future.result() is Status.OK:
                self.size_bytes += size_bytes
            elif not self._stopped:
                self._stopped = True
                self._fail(PerfError(f"stream {self.number + 1}: a message failed: {future.result().name}"))
        self._fill()

    def _check_finished(self) -> None:
        if self._stopped and not self._posted:
            self._finished.set()

    async def finished(self) -> None:
        """Wait until all that was posted is complete; once stopped, for DRAIN_S at most."""
        while not self._finished.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    await self._finished.wait()
                    return
            if self._cancels:
                for future in list(self._posted):
                    future.cancel()

    def snapshot(self) -> StreamSnapshot:
        """Return the counters."""
        stats = self._peer.stats()
        return StreamSnapshot(
            self.size_bytes,
            retransmits=stats.retrans_pkts,
            cwnd_bytes=stats.cwnd_bytes,
            rtt_us=round(stats.smoothed_rtt_s * 1e6),
            path_packets=tuple(path.counters.packets for path in self._peer.paths),
        )

    async def close(self) -> None:
        """Close the peer."""
        self.stop()
        for future in list(self._posted):
            future.cancel()
        await self._peer.close()


class SrdReceiver(PerfStream):
    """Counts what a peer sends."""

    sends = False

    def __init__(self, number: int, *, peer: Peer, local: Address, source: PayloadSource | None, fail: Fail) -> None:
        """Compare what arrives with `source` if there is one."""
        super().__init__(number)
        self._peer, self._local, self._source, self._fail = peer, local, source, fail
        self._task: asyncio.Task[None] | None = None

    @property
    def ends(self) -> tuple[Address, Address]:
        """Own address and the peer's."""
        return self._local, self._peer.address

    def start(self) -> None:
        """Begin to receive."""
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            while True:
                with await self._peer.recv() as message:
                    if self._source is not None:
                        self._compare(message, self._source)
                    self.size_bytes += message.length
        except (PeerError, PerfError) as error:
            self._fail(error)

    def _compare(self, message: Message, source: PayloadSource) -> None:
        """Raise PerfError for a byte that is not the one that was sent."""
        at, base = 0, source.offset(message.immediate or 0)
        for view in message.views():
            if not view:
                continue
            wrong = source.difference(base + at, np.frombuffer(view, np.uint8))
            if wrong is not None:
                raise PerfError(
                    f"stream {self.number + 1}: byte {at + wrong} of message {message.immediate} is not what was sent"
                )
            at += len(view)

    def stop(self) -> None:
        """Do nothing: what is on its way arrives."""

    async def finished(self) -> None:
        """Return at once."""

    def snapshot(self) -> StreamSnapshot:
        """Return the counters."""
        return StreamSnapshot(self.size_bytes)

    async def close(self) -> None:
        """Close the peer."""
        if self._task is not None:
            self._task.cancel()
        await self._peer.close()
