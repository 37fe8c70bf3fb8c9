"""A device of a card without a driver: admin entries and shared memory as they are."""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from nitro_emu.efa.abi import admin, commands, enums, memory, replies

REPLY_BOUND_S: Final = 60.0
"""How long a reply may take before the card counts as hanging."""
_MAX_FDS: Final = 8


class RawAnswer(NamedTuple):
    """The reply to an entry. `reply` is None unless the command succeeded."""

    status: enums.AdminStatus
    reply: replies.Reply | None
    fds: list[int]
    command_id: int
    phase: int


class RawDevice:
    """A connection to a virtual function's socket. A context manager; descriptors of replies are the caller's."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.socket.settimeout(REPLY_BOUND_S)
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise

    @property
    def phase(self) -> int:
        return memory.ring_phase(self.count, depth=admin.QUEUE_DEPTH)

    def entry(self, command: commands.Command) -> bytes:
        return admin.encode_command(command, command_id=self.count & admin.MAX_COMMAND_ID, phase=self.phase)

    def send(self, data: bytes, *, fds: Sequence[int] = ()) -> None:
        socket.send_fds(self.socket, [data], fds)
        self.count += 1

    def receive(self) -> tuple[bytes, list[int]]:
        """Return the next reply, with its descriptors. Raises ConnectionResetError at the end, TimeoutError."""
        data, fds, _, _ = socket.recv_fds(self.socket, 2 * admin.ENTRY_BYTES, _MAX_FDS, socket.MSG_CMSG_CLOEXEC)
        if not data:
            raise ConnectionResetError("the card has closed the connection")
        return data, fds

    def exchange(self, data: bytes, *, fds: Sequence[int] = ()) -> tuple[bytes, list[int]]:
        self.send(data, fds=fds)
        return self.receive()

    def ask(self, command: commands.Command, *, fds: Sequence[int] = ()) -> RawAnswer:
        data, received = self.exchange(self.entry(command), fds=fds)
        return decoded(data, command=command, fds=received)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def decoded(data: bytes, *, command: commands.Command, fds: list[int]) -> RawAnswer:
    done = admin.decode_reply_untrusted(data, command)
    return RawAnswer(done.status, done.reply, fds, done.command_id, done.phase)


def map_and_close(fd: int, *, writable: bool) -> mmap.mmap:
    try:
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        return mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED, protection)
    finally:
        os.close(fd)


def close_all(fds: Sequence[int]) -> None:
    """Close descriptors, those that are closed already, too."""
    for fd in fds:
        with suppress(OSError):
            os.close(fd)
