"""Memory and descriptors that the card and a program share.

1. The card makes the memory, sealed against shrinking and growing (`devmem.Region`). What only the card may write gets
   F_SEAL_FUTURE_WRITE too, after the card has mapped it: a descriptor that is merely opened read-only could be opened
   again for writing through /proc/self/fd.
2. Whoever has a descriptor of an eventfd can make it blocking (the flag belongs to the open file, not to the
   descriptor) and fill its counter, so that a card that writes it would wait for ever. So events go to a program
   through a pair of sockets: each end has flags of its own. The program reads 8 bytes an event from its end, as from an
   eventfd. The card itself only reads eventfds, in a way that never waits (`drain_eventfd`).
"""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from typing import Final

from devmem.errors import RegionError
from devmem.region import Region
from nitro_emu.efa.abi.enums import AdminStatus
from nitro_emu.errors import AdminError

F_SEAL_FUTURE_WRITE: Final = 0x10
"""Linux 5.1: no new writable mapping, and no write; Python has no name for it yet."""
EVENT_BYTES: Final = 8
"""An event, as read from an eventfd: the number 1."""
_EVENT: Final = (1).to_bytes(EVENT_BYTES, "little")


def shared_region(size_bytes: int, *, name: str) -> Region:
    """Return memory that the program may write. Raises AdminError when there is none."""
    try:
        return Region(size_bytes, name=name)
    except (RegionError, OSError) as error:
        raise AdminError(AdminStatus.RESOURCE_ALLOCATION_FAILURE, f"{name}: {error}") from error


def card_written_region(size_bytes: int, *, name: str) -> Region:
    """Return memory that only the card may write. Raises AdminError when there is none."""
    region = shared_region(size_bytes, name=name)
    fcntl.fcntl(region.fd, fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE)
    return region


def new_eventfd() -> int:
    """Return an eventfd for the program to write. Raises AdminError when no descriptor is left."""
    try:
        return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    except OSError as error:
        raise AdminError(AdminStatus.RESOURCE_ALLOCATION_FAILURE, f"eventfd: {error.strerror}") from error


def drain_eventfd(fd: int) -> None:
    """Reset an eventfd, without waiting whatever a program has made of it (RWF_NOWAIT: Linux 5.8)."""
    with suppress(BlockingIOError):  # the program has read it
        os.preadv(fd, [bytearray(EVENT_BYTES)], -1, os.RWF_NOWAIT)


class EventSender:
    """The card's end of a way to wake a program."""

    __slots__ = ("_socket", "program_fd")

    def __init__(self) -> None:
        """Make both ends. `program_fd`: the program's, to be sent and then closed. Raises AdminError."""
        try:
            self._socket, program_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            raise AdminError(AdminStatus.RESOURCE_ALLOCATION_FAILURE, f"event: {error.strerror}") from error
        self._socket.shutdown(socket.SHUT_RD)  # or a program's unread descriptors would be closed with it
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least: what is unread is enough to wake
        self.program_fd = program_end.detach()

    def signal(self) -> None:
        """Make the program's end readable. It is already if the program never reads it; or it may be closed."""
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            self._socket.send(_EVENT, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Close the card's end."""
        self._socket.close()
