"""Who takes what arrives at a queue pair: by default a mailbox, which `recv` and `recv_write` empty."""

from __future__ import annotations

from collections import deque
from collections.abc import Sized
from typing import Protocol

from nitro_emu.aio.message import Message, WriteNotification
from nitro_emu.errors import VerbsError
from srd.notify import Notify


class Receiver(Protocol):
    """Takes what arrives. Its methods are called in the event loop's thread, in the order of the completions."""

    def on_message(self, message: Message) -> None:
        """Take a message, and release it sooner or later."""

    def on_write(self, written: WriteNotification) -> None:
        """Take the notification of a write with immediate."""

    def on_end(self, error: VerbsError) -> None:
        """Note that nothing arrives any more: the queue pair is closed, or the card is dead. Called once."""


class Mailbox:
    """Keeps what arrives until it is received."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._writes: deque[WriteNotification] = deque()
        self._changed = Notify()
        self._error: VerbsError | None = None

    def on_message(self, message: Message) -> None:
        """Keep a message."""
        self._messages.append(message)
        self._changed.notify()

    def on_write(self, written: WriteNotification) -> None:
        """Keep a notification."""
        self._writes.append(written)
        self._changed.notify()

    def on_end(self, error: VerbsError) -> None:
        """Let `recv` raise when everything has been received."""
        self._error = error
        self._changed.notify()

    async def recv(self) -> Message:
        """Return the next message. Raises VerbsError at the end."""
        await self._wait_for(self._messages)
        return self._messages.popleft()

    async def recv_write(self) -> WriteNotification:
        """Return the next notification. Raises VerbsError at the end."""
        await self._wait_for(self._writes)
        return self._writes.popleft()

    async def _wait_for(self, queue: Sized) -> None:
        while not queue:
            if self._error is not None:
                raise VerbsError(self._error.errno, str(self._error))
            await self._changed.wait()
