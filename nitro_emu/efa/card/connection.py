"""A program's connection at the admin socket: entries in, entries out, one command at a time.

A program that does not read its answers is not served until it does: the card keeps at most one answer for it.

What a program has made is destroyed in shares after its end: it may be a million requests.

An entry is looked at before it is taken (MSG_PEEK), so that copies of its descriptors are received. Those that do not
fit, or are no memfds, are not the last ones then: they end in the connection, which `closer` closes.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from nitro_emu.efa.abi.admin import ENTRY_BYTES, QUEUE_DEPTH, decode_command_untrusted, encode_reply
from nitro_emu.efa.abi.enums import AdminStatus
from nitro_emu.efa.abi.memory import ring_phase
from nitro_emu.efa.card.admin_commands import AdminCommands, Answer
from nitro_emu.efa.card.user_context import UserContext
from nitro_emu.errors import AdminError

MAX_DESCRIPTORS: Final = 4
"""Descriptors that an entry may come with."""
_RIGHTS_BYTES: Final = socket.CMSG_LEN(MAX_DESCRIPTORS * array.array("i").itemsize)
_PEEK: Final = socket.MSG_PEEK | socket.MSG_CMSG_CLOEXEC
DESTROY_SHARE_S: Final = 1e-3
"""How long the objects of a program that has ended are destroyed in one go; a queue pair takes up to 30 ms more."""
_Message = tuple[bytes, tuple[int, ...]]


class ProgramConnection:
    """Serves one program until it ends or is `close`d. Its internal errors end the virtual function."""

    def __init__(
        self, sock: socket.socket, context: UserContext, *, on_closed: Callable[[ProgramConnection], None]
    ) -> None:
        """Start to serve `sock`, a non-blocking SOCK_SEQPACKET socket; `on_closed` is called once."""
        self.context = context
        self._sock = sock
        self._commands = AdminCommands(context)
        self._on_closed = on_closed
        self._count = 0
        self._unsent: _Message | None = None
        self._destruction = context.destruction()
        self._destroying: asyncio.TimerHandle | None = None
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least: answers that are not read hold descriptors
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        if (wait_s := self.context.vf.admin_wait_s()) > 0:
            self._loop.remove_reader(self._sock.fileno())
            self._loop.call_later(wait_s, self._resume)
        else:
            self._in_turn(self._read)

    def _in_turn(self, work: Callable[[], None]) -> None:
        """Do work of this thread; the next admin work waits as long as it takes."""
        began_at = time.monotonic()  # uvloop's clock stands still during a callback
        try:
            work()
        except Exception as error:  # noqa: BLE001 - logged with its traceback
            self.context.vf.fail(error)
        self.context.vf.note_admin(time.monotonic() - began_at)

    def _read(self) -> None:
        try:
            data, rights, flags, _ = self._sock.recvmsg(ENTRY_BYTES + 1, _RIGHTS_BYTES, _PEEK)
        except BlockingIOError:
            return
        except OSError:
            self._end()
            return
        descriptors = array.array("i")
        for _, _, content in rights:
            descriptors.frombytes(content)
        try:
            if not data:
                self._end()
            elif flags & socket.MSG_CTRUNC or not all(map(_is_memfd, descriptors)):
                self.context.vf.log.warning(
                    "pid %d sent too many descriptors, or one that is no memfd; it is not served", self.context.pid
                )
                self._end()
            else:
                self._take(data, list(descriptors))
        finally:
            for fd in descriptors:
                self.context.vf.closer.close_untrusted(fd)

    def _resume(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock.fileno(), self._on_readable)

    def _take(self, data: bytes, descriptors: list[int]) -> None:
        """Take and serve the entry that was looked at; the card has copies of its descriptors."""
        try:
            self._sock.recv(1)
        except OSError:  # the program has gone since
            self._end()
        else:
            self._serve(data, descriptors)

    def _serve(self, data: bytes, descriptors: list[int]) -> None:
        device, log = self.context.vf.device, self.context.vf.log
        device.submitted_cmds += 1
        phase = ring_phase(self._count, depth=QUEUE_DEPTH)
        self._count += 1
        command_id, status = 0, AdminStatus.SUCCESS
        answer: Answer | None = None
        try:
            command_id, sent_phase, command = decode_command_untrusted(data)
            _check_phase(sent_phase, wanted=phase, command_id=command_id)
            answer = self._commands.execute(command, descriptors)
        except AdminError as error:
            status = AdminStatus(error.status)
            command_id = command_id if error.command_id is None else error.command_id
            log.info("pid %d: %s: %s", self.context.pid, status.name, error)
        except Exception:
            status = AdminStatus.UNKNOWN_ERROR
            log.exception("pid %d: an admin command failed by an internal error", self.context.pid)
        device.cmds_err += status is not AdminStatus.SUCCESS
        reply, fds = answer or (None, ())
        self._unsent = encode_reply(reply, command_id=command_id, phase=phase, status=status), fds
        if not self._try_send():
            device.no_completion_cmds += 1
            self._loop.remove_reader(self._sock.fileno())
            self._loop.add_writer(self._sock.fileno(), self._in_turn, self._on_writable)

    def _try_send(self) -> bool:
        """Send the answer; return False if the program does not read."""
        if self._unsent is None:
            return True
        data, fds = self._unsent
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self._sock.sendmsg([data], rights)
        except BlockingIOError:
            return False
        except OSError:  # the program has ended, or does not take its descriptors: the next read says so to both
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        self._unsent = None
        self._commands.close_sent()
        self.context.vf.device.completed_cmds += 1
        return True

    def _on_writable(self) -> None:
        if self._try_send():
            self._loop.remove_writer(self._sock.fileno())
            self._loop.add_reader(self._sock.fileno(), self._on_readable)

    def _end(self) -> None:
        """End the connection, and destroy what it has made, in shares."""
        self._stop()
        self._destroy()

    def _destroy(self) -> None:
        began_at = time.monotonic()
        for _ in self._destruction:
            if (took_s := time.monotonic() - began_at) >= DESTROY_SHARE_S:
                self._destroying = self._loop.call_later(took_s, self._in_turn, self._destroy)
                return
        self._on_closed(self)

    def close(self) -> None:
        """End the connection, and destroy all that it has made, at once."""
        self._stop()
        if self._destroying is not None:
            self._destroying.cancel()
        try:
            self.context.close()
        finally:
            self._on_closed(self)

    def _stop(self) -> None:
        if self._sock.fileno() < 0:
            return
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        with suppress(OSError):  # it has gone
            self._sock.shutdown(socket.SHUT_RDWR)
        self.context.vf.closer.close_untrusted(self._sock.detach())
        self._commands.close_sent()


def _check_phase(sent: int, *, wanted: int, command_id: int) -> None:
    if sent != wanted:
        raise AdminError(AdminStatus.MALFORMED_REQUEST, f"phase: {sent}, not {wanted}", command_id=command_id)


def _is_memfd(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return False
    return True
