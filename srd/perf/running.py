"""One end of a test from its start to its figures; client and server do the same here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from srd.perf.errors import PerfError
from srd.perf.meter import Interval, Meter
from srd.perf.parameters import Parameters
from srd.perf.stream import PerfStream

STALL_S: Final = 2.0
"""How long a receiver waits for what was sent while nothing arrives."""
_TICK_S: Final = 0.001


class FirstFailure:
    """The first error of any stream of a test."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set(self, error: BaseException) -> None:
        """Note an error."""
        if not self._future.done():
            self._future.set_exception(error)

    async def wait(self) -> None:
        """Raise the error once there is one."""
        await asyncio.shield(self._future)

    def close(self) -> None:
        """Forget it."""
        if self._future.done() and not self._future.cancelled():
            self._future.exception()


class RunningStreams:
    """The streams of one end."""

    def __init__(
        self,
        streams: Sequence[PerfStream],
        *,
        parameters: Parameters,
        interval_s: float,
        on_interval: Callable[[Interval], None],
    ) -> None:
        """Call `on_interval` every `interval_s`; 0: for the whole test only."""
        self.streams = streams
        self._parameters = parameters
        self._interval_s = interval_s
        self._on_interval = on_interval
        self.meter = Meter(streams)
        self._sampling: asyncio.Task[None] | None = None
        self._started_at = 0.0  # of the test, or of what counts of it
        self._counts = asyncio.Event()  # the time to be omitted is over

    def start(self) -> None:
        """Begin."""
        self._started_at = time.monotonic()
        self.meter.start(self._started_at)
        for stream in self.streams:
            stream.start()
        self._sampling = asyncio.ensure_future(self._sample())

    async def _sample(self) -> None:
        omit_s = self._parameters.omit_s
        for at_s in _marks(omit_s, every_s=self._interval_s):
            await self._until(at_s)
            self._take(omitted=True)
        if omit_s:
            await self._until(omit_s)
            self._take(omitted=True)
            self._started_at = time.monotonic()
            self.meter.start(self._started_at)
        self._counts.set()
        for at_s in _marks(self._parameters.seconds or float("inf"), every_s=self._interval_s):
            await self._until(at_s)
            self._take(omitted=False)

    async def _until(self, at_s: float) -> None:
        await asyncio.sleep(self._started_at + at_s - time.monotonic())

    def _take(self, *, omitted: bool) -> None:
        self._on_interval(self.meter.interval(time.monotonic(), omitted=omitted))

    async def over(self) -> None:
        """Wait until the time is over, or the senders of this end have sent all."""
        if self._parameters.seconds:
            await self._counts.wait()
            await self._until(self._parameters.seconds)
            return
        for stream in self.streams:
            await stream.finished()

    async def failed(self) -> None:
        """Raise the error of the sampling, if there is one."""
        if self._sampling is not None:
            await asyncio.shield(self._sampling)
        await asyncio.get_running_loop().create_future()

    async def stop(self) -> list[int]:
        """Stop the senders; return the bytes that each stream has sent, 0 for a receiver's."""
        for stream in self.streams:
            stream.stop()
        for stream in self.streams:
            await stream.finished()
        if all(stream.sends for stream in self.streams):
            self.finish()
        return [stream.size_bytes if stream.sends else 0 for stream in self.streams]

    async def arrived(self, sent: Sequence[int]) -> None:
        """Wait until the receivers have what the other end has sent, or nothing arrives any more.

        Raises PerfError for a stream of which less has arrived, if the test verifies. All is counted here, also what
        was omitted: the two ends begin to count at different moments.
        """
        for stream, size_bytes in zip(self.streams, sent, strict=True):
            if not stream.sends:
                count = partial(getattr, stream, "size_bytes")
                await settled(count, size_bytes, moved=count)
                if self._parameters.verify and stream.size_bytes < size_bytes:
                    have = f"{stream.size_bytes} have arrived"
                    raise PerfError(f"stream {stream.number + 1}: {size_bytes} bytes were sent, and {have}")
        self.finish()

    def finish(self) -> None:
        """Take the last interval; what follows is not counted."""
        if self._sampling is not None:
            self._sampling.cancel()
            self._sampling = None
            self._take(omitted=False)

    async def close(self) -> None:
        """End all streams."""
        if self._sampling is not None:
            self._sampling.cancel()
        await asyncio.gather(*(stream.close() for stream in self.streams), return_exceptions=True)


def _marks(end_s: float, *, every_s: float) -> Iterator[float]:
    """Yield the times of intervals that end before `end_s`."""
    count = 1
    while every_s and count * every_s < end_s - every_s / 10:  # no interval of a moment at the end
        yield count * every_s
        count += 1


async def settled(has: Callable[[], int], wanted: int, *, moved: Callable[[], int]) -> None:
    """Wait until `has()` is as much as wanted, or until `moved()` does not change for STALL_S."""
    seen, give_up_at = -1, 0.0
    while has() < wanted:
        now, now_moved = time.monotonic(), moved()
        if now_moved != seen:
            seen, give_up_at = now_moved, now + STALL_S
        elif now >= give_up_at:
            return
        await asyncio.sleep(_TICK_S)
