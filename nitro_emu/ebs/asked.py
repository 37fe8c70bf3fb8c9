"""The members that one read was asked of, each with memory of its own, and their answers as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import NamedTuple

from nitro_emu.ebs.calls import Calls, Use
from nitro_emu.ebs.capsule import CapsuleCommand, CapsuleReply


class Ended(NamedTuple):
    """What has come of a call."""

    member: int
    use: Use
    reply: CapsuleReply | None
    """None: it is no member any more."""


class Asked:
    """`ask` a member, or several; `next_end` returns who has answered; `close` gives the memory back."""

    def __init__(self, calls: Calls, command: CapsuleCommand) -> None:
        self.calls = calls
        self._command = command
        self.members = set[int]()
        self._uses = list[Use]()
        self._ended = deque[Ended]()
        self._told: asyncio.Future[None] | None = None
        self.waiting = 0
        """Calls that have not ended."""

    @property
    def has_ended(self) -> bool:
        """Whether `next_end` returns one at once."""
        return bool(self._ended)

    def ask(self, member: int, use: Use) -> None:
        """Have a member read; its own use of the memory may last longer than this one."""
        self.members.add(member)
        self._uses.append(use)
        self.waiting += 1
        self.calls.post(member, self._command, use, partial(self._on_end, member, use))

    def _on_end(self, member: int, use: Use, reply: CapsuleReply | None) -> None:
        self.waiting -= 1
        self._ended.append(Ended(member, use, reply))
        self._tell()

    def _tell(self) -> None:
        if self._told is not None and not self._told.done():
            self._told.set_result(None)

    async def next_end(self, within_s: float | None) -> Ended | None:
        """Return what has ended next; None: nothing has in this time."""
        if not self._ended:
            loop = asyncio.get_running_loop()
            self._told = loop.create_future()
            timer = None if within_s is None else loop.call_later(within_s, self._tell)
            try:
                await self._told
            finally:
                if timer is not None:
                    timer.cancel()
        return self._ended.popleft() if self._ended else None

    def forget(self, ended: Ended) -> None:
        """Give the memory back of one that has not answered with data."""
        self._uses.remove(ended.use)
        ended.use.end()

    def close(self) -> None:
        """Give the memory back as far as no call uses it."""
        for use in self._uses:
            use.end()
