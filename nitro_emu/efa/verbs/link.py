"""The connection of one context with its card: admin commands, asynchronous events, doorbells, and the card's death.

Rules.
1. Commands are answered in order, one at a time under a lock. The watcher's thread never reads the connection.
2. When the card dies (the connection ends, or a fatal event), every blocked call wakes and raises EIO, and so does
   every later one. Closing does not raise then: the card has forgotten everything.
3. An object that is collected cannot wait for the lock, as its collection may happen within a command. Its destruction
   is queued, and done by whoever holds the lock next.
4. A child process (fork) cannot use its parent's device: for it the card is dead. Its copy of the connection is closed
   at once, or the card would not notice the parent's death.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakSet

from nitro_emu.efa.abi import admin, commands, enums, memory
from nitro_emu.efa.abi.commands import CommandBody, R
from nitro_emu.efa.verbs.shared import map_shared, words_of
from nitro_emu.efa.verbs.watcher import DeviceWatcher
from nitro_emu.errors import AbiError, VerbsError

ADMIN_TIMEOUT_S: Final = 30.0
"""A card answers at once. One that does not for so long is dead, even if its process is not."""

_MAX_FDS: Final = 4
_GONE: Final = "the card is gone; start it, and open the device again"
_ERRNO_OF: Final = {
    enums.AdminStatus.RESOURCE_ALLOCATION_FAILURE: errno.ENOMEM,
    enums.AdminStatus.UNSUPPORTED_OPCODE: errno.EOPNOTSUPP,
    enums.AdminStatus.RESOURCE_BUSY: errno.EBUSY,
}
"""As the kernel's driver; every other status is EINVAL."""


class Releasable(Protocol):
    """Something that ends with the link."""

    def release(self) -> None:
        """Release what it holds in this process."""


class Doorbell:
    """Tells the card of new entries of one queue: a store, and a system call only if the card sleeps."""

    __slots__ = ("_index", "_kick_fd", "_status", "_uar")

    def __init__(self, uar: memoryview, *, offset: int, status: memoryview, kick_fd: int) -> None:
        self._uar = uar
        self._index = offset // memory.DOORBELL_BYTES
        self._status = status
        self._kick_fd = kick_fd

    def store(self, value: int) -> None:
        """Store a value that the card may learn of when it looks by itself."""
        self._uar[self._index] = value

    def ring(self, value: int) -> None:
        """Store a value that the card has to learn of now."""
        self._uar[self._index] = value
        if self._status[0]:  # need_kick
            with suppress(BlockingIOError):  # it has been kicked often enough
                os.eventfd_write(self._kick_fd, 1)


class CardConnection:
    """A connection. `uar` is the number of the page of doorbells; `death_fd` is readable once the card is dead."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._commands = 0
        self._abandoned: deque[commands.Command] = deque()
        self.end_reason = ""
        """Why the card is dead, or this link closed; empty as long as it lives."""
        self._closed = self._forked = False
        self.resources: WeakSet[Releasable] = WeakSet()
        self.events: deque[admin.AenqEntry] = deque(maxlen=memory.AENQ_DEPTH)
        self._events_seen = 0
        with ExitStack() as opened:
            self._socket = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            self._connect(path)
            self.death_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            opened.callback(os.close, self.death_fd)
            self._use_uar(opened=opened)

    def _connect(self, path: Path) -> None:
        try:
            # A blocking connect waits for room in a full backlog; one with Python's own timeout fails at once (EAGAIN).
            limit = struct.pack("ll", int(ADMIN_TIMEOUT_S), 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            self._socket.connect(str(path))
            self._socket.settimeout(ADMIN_TIMEOUT_S)
        except OSError as error:
            raise VerbsError(
                error.errno or errno.EIO, f"{path}: cannot be opened: {error.strerror or error}"
            ) from error

    def _use_uar(self, *, opened: ExitStack) -> None:
        reply, fds = self.create(commands.AllocUar(), receives=_MAX_FDS)
        for fd in fds:
            opened.callback(os.close, fd)
        uar_fd, status_fd, self._kick_fd, event_fd = fds
        self.uar = reply.uar
        self._doorbells = words_of(map_shared(uar_fd, size_bytes=memory.DOORBELL_BYTES, writable=True))
        self._status_map = map_shared(status_fd, size_bytes=memory.STATUS_BYTES, writable=False)
        self._status = words_of(self._status_map)
        os.set_blocking(event_fd, False)
        opened.pop_all()
        # Doorbells may ring after the end, so its number is not free for another descriptor before this object is gone.
        weakref.finalize(self, os.close, self._kick_fd).atexit = False
        os.close(uar_fd)
        os.close(status_fd)
        _links.add(self)
        self._watcher = DeviceWatcher(self._socket, event_fd, on_event=self._take_events, on_end=self._on_end)

    # -- commands ---------------------------------------------------------------------------------------------------

    def ask(self, command: CommandBody[R], *, fds: Sequence[int] = ()) -> R:
        """Have a command done, and return its reply. Raises VerbsError: refused, or the card is dead (EIO)."""
        return self.create(command, fds=fds)[0]

    def create(
        self,
        command: CommandBody[R],
        *,
        fds: Sequence[int] = (),
        receives: int = 0,
        destroy: Callable[[R], commands.Command] | None = None,
    ) -> tuple[R, list[int]]:
        """Have a command done whose reply comes with `receives` descriptors, which the caller closes.

        If they do not arrive, what was made is destroyed again: `destroy` returns the command. Raises VerbsError, as
        `ask`; EMFILE: descriptors are missing, as the kernel drops those that this process has no room for.
        """
        try:
            with self._lock:
                reply, received = self._exchange(command, fds=fds)
        finally:
            self._destroy_abandoned()
        if (count := len(received)) == receives:
            return reply, received
        _close(received)
        if destroy is not None:
            self.abandon(destroy(reply))
        if count > receives:
            raise VerbsError(errno.EPROTO, f"{command.OPCODE.name}: {count} descriptors came, not {receives}")
        raise VerbsError(
            errno.EMFILE,
            f"{count} of the card's {receives} descriptors fit into this process; close some, or raise ulimit -n",
        )

    def destroy(self, command: commands.Command) -> None:
        """Have something destroyed, unless the card is dead, which has destroyed it. Raises VerbsError: in use."""
        try:
            if not self.ended:
                self.ask(command)
        except VerbsError:
            if not self.ended:
                raise

    def abandon(self, command: commands.Command) -> None:
        """Have something destroyed that nobody refers to any more, now or soon. May be called at any time."""
        self._abandoned.append(command)
        self._destroy_abandoned()

    def _destroy_abandoned(self) -> None:
        while self._abandoned and self._lock.acquire(blocking=False):
            try:
                with suppress(IndexError, VerbsError):
                    self._exchange(self._abandoned.popleft())
            finally:
                self._lock.release()

    def _exchange(self, command: CommandBody[R], *, fds: Sequence[int] = ()) -> tuple[R, list[int]]:
        self.check()
        number, self._commands = self._commands, self._commands + 1
        command_id, phase = number & admin.MAX_COMMAND_ID, memory.ring_phase(number, depth=admin.QUEUE_DEPTH)
        try:
            entry = admin.encode_command(command, command_id=command_id, phase=phase)
        except AbiError as error:
            self._commands = number
            raise VerbsError(errno.EINVAL, f"{error}") from error
        try:
            socket.send_fds(self._socket, [entry], fds)
            data, received = self._receive(command_id)
        except OSError as error:
            # It was killed while something of ours had not been read: an end like any other.
            is_gone = isinstance(error, ConnectionError)
            self._end(_GONE if is_gone else f"the card does not answer: {error.strerror or error}")
            self.check()
            raise  # not reached: check has raised
        try:
            done = admin.decode_reply_untrusted(data, command)
        except AbiError as error:
            _close(received)
            raise VerbsError(errno.EPROTO, f"{command.OPCODE.name}: {error}") from error
        if done.reply is not None:
            return done.reply, received
        _close(received)
        raise VerbsError(
            _ERRNO_OF.get(done.status, errno.EINVAL), f"{command.OPCODE.name}: refused: {done.status.name}"
        )

    def _receive(self, command_id: int) -> tuple[bytes, list[int]]:
        """Return the reply to a command. Those of interrupted commands (by a signal's handler) are dropped."""
        while True:
            data, fds, _, _ = socket.recv_fds(self._socket, 2 * admin.ENTRY_BYTES, _MAX_FDS, socket.MSG_CMSG_CLOEXEC)
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "it has closed the connection")
            if int.from_bytes(data[:2], "little") & admin.MAX_COMMAND_ID == command_id:
                return data, fds
            _close(fds)

    # -- the data path's part ---------------------------------------------------------------------------------------

    def doorbell(self, offset: int) -> Doorbell:
        """Return the doorbell at an offset of the UAR. Raises VerbsError if it has none there."""
        if offset % memory.DOORBELL_BYTES or offset // memory.DOORBELL_BYTES >= len(self._doorbells):
            raise VerbsError(errno.EPROTO, f"the card names a doorbell at {offset}, where there is none")
        return Doorbell(self._doorbells, offset=offset, status=self._status, kick_fd=self._kick_fd)

    @property
    def ended(self) -> bool:
        """Whether the card is dead, or this link closed."""
        return bool(self.end_reason)

    def check(self) -> None:
        """Raise VerbsError (EIO) if the card is dead, or this link closed."""
        if self.end_reason:
            raise VerbsError(errno.EIO, self.end_reason)

    # -- events and the end -----------------------------------------------------------------------------------------

    def _take_events(self) -> None:
        """Take what the card has added to the AENQ."""
        while True:
            position = self._events_seen % memory.AENQ_DEPTH * admin.ENTRY_BYTES + memory.AENQ_OFFSET
            phase, entry = admin.decode_aenq_untrusted(self._status_map[position : position + admin.ENTRY_BYTES])
            if phase != memory.ring_phase(self._events_seen, depth=memory.AENQ_DEPTH):
                return
            self._events_seen += 1
            self.events.append(entry)
            if entry.group == enums.AenqGroup.FATAL_ERROR:
                self._end(f"the card has a fatal error ({entry.syndrome}); open the device again")

    def _on_end(self) -> None:
        self._end(_GONE)

    def _end(self, reason: str) -> None:
        if not self.end_reason:
            self.end_reason = reason
            with suppress(OSError):
                os.eventfd_write(self.death_fd, 1)

    def close(self) -> None:
        """End the connection; the card destroys all that belongs to it."""
        if self._closed:
            return
        self._closed = True
        self._end("the device is closed")
        try:
            for resource in self._copy_of_resources():
                resource.release()
        finally:
            if not self._forked:
                self._watcher.stop()
            os.close(self.death_fd)

    def _copy_of_resources(self) -> list[Releasable]:
        while True:
            with suppress(RuntimeError):  # another thread has added one meanwhile
                return list(self.resources)

    def after_fork(self) -> None:
        """End it in a child process. Whoever held the lock does not exist here."""
        self._lock, self._forked = threading.Lock(), True
        self.end_reason = self.end_reason or "a child process cannot use its parent's device; open it again"
        if not self._closed:
            self._watcher.after_fork()


_links: WeakSet[CardConnection] = WeakSet()


def _after_fork() -> None:
    for link in list(_links):
        link.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
