"""A sweep at the server: it does its part of each size as the client asks for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar, Final

from netns.base.tasks import first
from srd.endpoint import Endpoint
from srd.peer import Peer
from srd.perf.control import Control, ControlKind, Fields
from srd.perf.errors import PerfError
from srd.perf.results import describe
from srd.perf.running import FirstFailure
from srd.perf.session import GOODBYE_WITHIN_S, GRACE_S, WATCH_S, Printer, Test, TestSession
from srd.perf.stream import shown
from srd.perf.sweep.carrier import Carrier, Joined
from srd.perf.sweep.plan import Sweep, encode
from srd.perf.sweep.roles import Role

_MAX_COUNT: Final = 1 << 60


def _count_untrusted(fields: Fields, name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= _MAX_COUNT:
        raise PerfError(f"the client asks with an invalid {name}")
    return value


class SweepTest(Test):
    """A sweep of an endpoint's client."""

    asks: ClassVar[ControlKind] = ControlKind.SIZE

    def __init__(self, session: TestSession, sweep: Sweep, *, control: Control, peer: Peer, endpoint: Endpoint) -> None:
        super().__init__(session, control=control, peer=peer, endpoint=endpoint)
        self._sweep = sweep

    async def _run(
        self, printer: Printer, *, heard: asyncio.Future[tuple[ControlKind, Fields]], stack: AsyncExitStack
    ) -> None:
        sweep = self._sweep
        carrier = Joined(sweep, self._endpoint, await self._open(heard, stack))
        sizes = SizeServer(sweep.sizes, carrier, control=self._control)
        stack.push_async_callback(sizes.close)
        stack.push_async_callback(self._session.close)  # before the memory that peers use is given back
        if not printer.as_json:
            what = f"{sweep.operation} over {sweep.protocol}, sizes: {len(sweep.sizes)}"
            host, port = shown(self._peer.address)
            printer.write(f"Accepted connection from {host}, port {port}: {what}\n")
        await sizes.serve(heard)
        if printer.as_json:
            printer.write(describe({"sweep": encode(sweep), "messages": sizes.counts}) + "\n")
        else:
            compared = ", payload compared" if sweep.verify else ""
            printer.write(f"sizes measured: {len(sizes.counts)}, messages: {sum(sizes.counts)}{compared}\n")
        await self._control.ended(within_s=GOODBYE_WITHIN_S)


class SizeServer:
    """Serves sizes, in their order, whatever carries them."""

    def __init__(self, sizes: Sequence[int], carrier: Carrier, *, control: Control) -> None:
        self._sizes, self._carrier, self._control = sizes, carrier, control
        self.counts: list[int] = []
        """Messages, by size."""
        self._failure = FirstFailure()
        self._role: Role | None = None
        self._next = 0  # size
        self._cpu_s = 0.0
        self._dropped = 0

    async def serve(self, heard: Awaitable[tuple[ControlKind, Fields]] | None = None) -> None:
        """Send START, and do what the client asks for, beginning with what is `heard`, if it is. Raises SrdError."""
        await self._control.send(ControlKind.START)
        kind, fields = await self._wait(heard or self._control.receive(ControlKind.SIZE))
        while kind is not ControlKind.END:
            await self._control.send(ControlKind.ANSWER, **await self._wait(self._answer_untrusted(kind, fields)))
            kind, fields = await self._wait(
                self._control.receive(
                    ControlKind.SIZE, ControlKind.BEGIN, ControlKind.CHECK, ControlKind.FIGURES, ControlKind.END
                )
            )
        await self._control.send(ControlKind.ANSWER)

    async def close(self) -> None:
        """Give back what a size that has not ended uses."""
        await self._end_size()
        self._failure.close()

    async def _wait(self, awaitable: Any) -> Any:
        """Wait for something unless the test fails, or nothing moves any more."""
        return await first(awaitable, self._failure.wait(), self._overdue())

    async def _overdue(self) -> None:
        """Raise PerfError when nothing moves for GRACE_S."""
        moved, give_up_at = -1, 0.0
        while True:
            now, now_moved = time.monotonic(), self._role.moved if self._role is not None else 0
            if now_moved != moved:
                moved, give_up_at = now_moved, now + GRACE_S
            elif now >= give_up_at:
                raise PerfError("the client did not go on in time")
            await asyncio.sleep(WATCH_S)

    async def _answer_untrusted(self, kind: ControlKind, fields: Fields) -> dict[str, Any]:
        """Do what the client asks for; return the answer. Raises PerfError."""
        if kind is ControlKind.SIZE:
            return await self._begin_size(_count_untrusted(fields, "size"))
        if self._role is None:
            raise PerfError(f"the client asks for {kind} of no size")
        if kind is ControlKind.BEGIN:
            self._cpu_s, self._dropped = time.process_time(), self._carrier.dropped_packets
            return {}
        count = _count_untrusted(fields, "count")
        if kind is ControlKind.CHECK:
            self._role.check_untrusted(_count_untrusted(fields, "first"), count)
            return {}
        await self._role.finish(count)
        self.counts.append(count)
        cpu_s, dropped = time.process_time() - self._cpu_s, self._carrier.dropped_packets - self._dropped
        await self._end_size()
        return {"cpu_s": cpu_s, "dropped": dropped}

    async def _begin_size(self, size_bytes: int) -> dict[str, Any]:
        sizes = self._sizes
        if self._role is not None or self._next == len(sizes) or size_bytes != sizes[self._next]:
            raise PerfError(f"the client asks for size {size_bytes} out of turn")
        self._role = self._carrier.role(size_bytes, number=self._next, fail=self._failure.set)
        self._next += 1
        return {"keys": list(self._role.keys)}

    async def _end_size(self) -> None:
        if self._role is not None:
            role, self._role = self._role, None
            await role.close()
