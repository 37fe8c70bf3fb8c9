"""Commands to the members of one view, until it is over.

A member that fails a command, or does not answer in time, is no member any more, and nothing that was asked of it is
waited for. When no majority is left, the view is over, and with it all that was asked: requests begin again in the
next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine
from itertools import chain
from typing import Any

from nitro_emu.ebs.capsule import CapsuleCommand, CapsuleOpcode, CapsuleOutcome, CapsuleReply
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.forming import RefusedError, Replicas, time_now
from nitro_emu.ebs.link import Buffer, LinkError
from nitro_emu.ebs.view import View, ViewMember


class Use:
    """A buffer that several calls use: it is given back when the last of them has ended."""

    def __init__(self, buffer: Buffer) -> None:
        """Begin the first use."""
        self.buffer = buffer
        self._users = 1

    def begin(self) -> None:
        """Begin another one."""
        self._users += 1

    def end(self) -> None:
        """End one."""
        self._users -= 1
        if not self._users:
            self.buffer.give_back()


class Calls:
    """What is asked of the members of a view. `on_over` is called once, when the view is."""

    def __init__(self, name: str, replicas: Replicas, view: View, *, on_over: Callable[[], None]) -> None:
        """`name`: of the volume, for the log."""
        self.replicas = replicas
        self.view = view
        self.log = logging.getLogger(f"nitro_emu.volume.{name}")
        self._name = name
        self._on_over = on_over
        self._open = defaultdict[int, dict[asyncio.Future[Any], None]](dict)  # by member, in their order
        self._works = set[asyncio.Task[None]]()

    def command(self, opcode: CapsuleOpcode, **fields: Any) -> CapsuleCommand:
        """Return a command of this epoch."""
        return self.replicas.command(opcode, epoch=self.view.epoch, **fields)

    def post(self, member: int, command: CapsuleCommand, use: Use | None) -> asyncio.Future[CapsuleReply]:
        """Have a member do a command; `reply_of` the future is the reply. It is cancelled when it is no member."""
        if self.view.is_over or (found := self.view.members.get(member)) is None:  # since a moment ago
            none: asyncio.Future[CapsuleReply] = asyncio.get_running_loop().create_future()
            none.cancel()
            return none
        sent_at = time_now()
        if use is not None:
            use.begin()
        future = self.replicas.links[member].call(command, buffer=None if use is None else use.buffer)
        self._open[member][future] = None
        found.calls += 1
        future.add_done_callback(lambda _: self._ended(future, member, found, use, sent_at))
        return future

    def _ended(
        self, future: asyncio.Future[CapsuleReply], member: int, found: ViewMember, use: Use | None, sent_at: float
    ) -> None:
        self._open[member].pop(future, None)
        found.calls -= 1
        error = None if future.cancelled() else future.exception()
        if use is not None:
            use.end()
        if error is not None:
            self.drop(member, error)
        elif not future.cancelled() and future.result().outcome is not CapsuleOutcome.FENCED:
            self.view.renew(member, sent_at=sent_at)

    async def call(self, member: int, command: CapsuleCommand, use: Use | None) -> CapsuleReply | None:
        """Return a member's reply; None: it is no member any more."""
        future = self.post(member, command, use)
        await asyncio.wait([future])
        return reply_of(future)

    def refused(self, member: int, reply: CapsuleReply) -> None:
        """Go on without a member that did not do a command."""
        self.drop(member, RefusedError(self.replicas.links[member].name, reply))

    def drop(self, member: int, error: BaseException) -> None:
        """Go on without a member."""
        if member in self.view.members and not self.view.is_over:
            trace = None if isinstance(error, VolumeError) else error
            self.log.warning("%s: goes on without a replica: %s", self._name, error, exc_info=trace)
        self.view.drop(member)
        for future in list(self._open[member]):
            future.cancel()
        if self.view.is_over:
            self.end()

    def drop_laggards(self, number: int) -> None:
        """Go on without the members that do not have a write."""
        for member in [each for each, found in self.view.members.items() if number in found.writing]:
            self.drop(member, LinkError(f"{self.replicas.links[member].name}: is too slow"))

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have something be done until the view is over."""
        task = asyncio.ensure_future(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        return task

    def end(self) -> None:
        """End the view, and all that was asked."""
        self.view.is_over = True
        for future in [*self._works, *chain.from_iterable(self._open.values())]:
            future.cancel()
        on_over, self._on_over = self._on_over, lambda: None
        on_over()


def reply_of(future: asyncio.Future[CapsuleReply]) -> CapsuleReply | None:
    """Return the reply of a call that has ended; None: there is none, and who was asked is no member any more."""
    return None if future.cancelled() or future.exception() is not None else future.result()
