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
from nitro_emu.ebs.link import Buffer, LinkError, Pending
from nitro_emu.ebs.view import View, ViewMember


class Use:
    """A buffer that several calls use: it is given back when the last of them has ended."""

    def __init__(self, buffer: Buffer) -> None:
        """Begin the first use."""
        self.buffer = buffer
        self._users = 1
        self._is_quiet = True

    def begin(self) -> None:
        """Begin another one."""
        self._users += 1

    def end(self, *, is_quiet: bool = True) -> None:
        """End one. Unless it `is_quiet`, a server may still use the memory."""
        self._is_quiet = self._is_quiet and is_quiet
        self._users -= 1
        if not self._users:
            self.buffer.give_back(is_quiet=self._is_quiet)


class Calls:
    """What is asked of the members of a view. `on_over` is called once, when the view is."""

    def __init__(self, name: str, replicas: Replicas, view: View, *, on_over: Callable[[], None]) -> None:
        """`name`: of the volume, for the log."""
        self.replicas = replicas
        self.view = view
        self.log = logging.getLogger(f"nitro_emu.volume.{name}")
        self._name = name
        self._on_over = on_over
        self._open = defaultdict[int, dict[_Call, None]](dict)  # by member, in their order
        self._works = set[asyncio.Task[None]]()

    def command(self, opcode: CapsuleOpcode, **fields: Any) -> CapsuleCommand:
        """Return a command of this epoch."""
        return self.replicas.command(opcode, epoch=self.view.epoch, **fields)

    def post(
        self, member: int, command: CapsuleCommand, use: Use | None, on_end: Callable[[CapsuleReply | None], None]
    ) -> None:
        """Have a member do a command; `on_end` gets its reply, maybe at once, or None: it is no member any more."""
        found = None if self.view.is_over else self.view.members.get(member)
        if found is None:  # since a moment ago
            on_end(None)
            return
        if use is not None:
            use.begin()
        call = _Call(self, member, found, use, on_end)
        self._open[member][call] = None
        found.calls += 1
        buffer = None if use is None else use.buffer
        call.pending = self.replicas.links[member].begin(command, buffer=buffer, on_end=call.ended)

    def ended(self, call: _Call) -> bool:
        """Forget a call; return whether it was open."""
        if call not in self._open[call.member]:
            return False
        del self._open[call.member][call]
        return True

    async def call(self, member: int, command: CapsuleCommand, use: Use | None) -> CapsuleReply | None:
        """Return a member's reply; None: it is no member any more."""
        future: asyncio.Future[CapsuleReply | None] = asyncio.get_running_loop().create_future()
        self.post(member, command, use, lambda reply: None if future.done() else future.set_result(reply))
        return await future

    def refused(self, member: int, reply: CapsuleReply) -> None:
        """Go on without a member that did not do a command."""
        self.drop(member, RefusedError(self.replicas.links[member].name, reply))

    def drop(self, member: int, error: BaseException) -> None:
        """Go on without a member."""
        if member in self.view.members and not self.view.is_over:
            trace = None if isinstance(error, VolumeError) else error
            self.log.warning("%s: goes on without a replica: %s", self._name, error, exc_info=trace)
        self.view.drop(member)
        for call in list(self._open[member]):
            call.cancel()
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
        for work in self._works:
            work.cancel()
        for call in list(chain.from_iterable(self._open.values())):
            call.cancel()
        on_over, self._on_over = self._on_over, lambda: None
        on_over()


class _Call:
    """One call to a member."""

    __slots__ = ("_calls", "_found", "_on_end", "_sent_at", "_use", "member", "pending")

    def __init__(
        self,
        calls: Calls,
        member: int,
        found: ViewMember,
        use: Use | None,
        on_end: Callable[[CapsuleReply | None], None],
    ) -> None:
        self._calls = calls
        self.member = member
        self._found = found
        self._use = use
        self._on_end = on_end
        self._sent_at = time_now()
        self.pending: Pending | None = None

    def ended(self, result: CapsuleReply | LinkError) -> None:
        """Note what has come of it, and tell whoever has asked."""
        if not self._end(is_quiet=isinstance(result, CapsuleReply)):
            return
        if not isinstance(result, CapsuleReply):
            self._calls.drop(self.member, result)
        elif result.outcome is not CapsuleOutcome.FENCED:
            self._calls.view.renew(self.member, sent_at=self._sent_at)
        self._on_end(result if isinstance(result, CapsuleReply) else None)

    def cancel(self) -> None:
        """End it: who was asked is no member any more."""
        if self.pending is not None:
            self.pending.cancel()  # before its memory is given back
        if self._end(is_quiet=False):
            self._on_end(None)

    def _end(self, *, is_quiet: bool) -> bool:
        if not self._calls.ended(self):
            return False
        self._found.calls -= 1
        if self._use is not None:
            self._use.end(is_quiet=is_quiet)
        return True
