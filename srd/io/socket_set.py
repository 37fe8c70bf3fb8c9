"""The sockets of an endpoint: one a path, those of bound receive queues, and the epoll set that holds them all.

A port must close with the process that reads it, so that the host answers with ICMP "port unreachable" and the peers
need not wait for their timeout (`proto.endpoint.keepalive`). So a process that was forked lets go of these sockets: as
a worker of a data loader it may outlive its parent.
"""

from __future__ import annotations

import os
import select
import socket
import weakref
from collections.abc import Callable, Sequence
from typing import Final

from srd.io.socket import dropped_packets


class SocketSet:
    """Owns the paths' sockets; those of receive queues are their owners'."""

    def __init__(self, sockets: Sequence[socket.socket], *, open_socket: Callable[[], socket.socket]) -> None:
        """`sockets`: of the first paths; `open_socket` opens that of another path. It may raise OSError."""
        self.paths = list(sockets)
        self.by_fd: dict[int, socket.socket] = {}
        self._open_socket = open_socket
        self._epoll = select.epoll()
        self._dropped = 0  # packets dropped by the kernel, of the sockets that are not in the set any more
        for sock in sockets:
            self.add(sock)

    @property
    def fd(self) -> int:
        """The descriptor of the set, readable when a socket is."""
        return self._epoll.fileno()

    @property
    def family(self) -> socket.AddressFamily:
        """The address family of the sockets."""
        return socket.AddressFamily(self.paths[0].family)

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports of the paths' sockets, by path; none of a set that is closed."""
        return tuple(sock.getsockname()[1] for sock in self.paths if sock.fileno() >= 0)

    def add(self, sock: socket.socket) -> None:
        """Read from a socket, too."""
        _SOCKETS.add(sock)
        self.by_fd[sock.fileno()] = sock
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def remove(self, sock: socket.socket) -> None:
        """Read from this socket no more."""
        del self.by_fd[sock.fileno()]
        self._epoll.unregister(sock.fileno())

    def of_path(self, path: int) -> socket.socket:
        """Return a path's socket. A standby path's socket is opened on first use."""
        while path >= len(self.paths):
            try:
                sock = self._open_socket()
            except OSError:  # no descriptor or port is left: share the socket of another path
                return self.paths[path % len(self.paths)]
            self.paths.append(sock)
            self.add(sock)
        return self.paths[path]

    def readable(self, most: int = -1) -> list[int]:
        """Return the descriptors of readable sockets, `most` of them: the kernel puts those behind the others."""
        return [fd for fd, _ in self._epoll.poll(0, most)]

    def dropped_packets(self) -> int:
        """Return the datagrams that the kernel dropped because a socket's buffer was full."""
        return self._dropped + sum(dropped_packets(sock) for sock in self.by_fd.values())

    def close(self) -> None:
        """Close the set, and the paths' sockets."""
        self._dropped = self.dropped_packets()
        self.by_fd.clear()
        self._epoll.close()
        for sock in self.paths:
            sock.close()


_SOCKETS: Final[weakref.WeakSet[socket.socket]] = weakref.WeakSet()


def _let_go() -> None:
    """Replace the sockets in a forked process; their numbers stay in use, which objects there still have."""
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for sock in list(_SOCKETS):
        if sock.fileno() >= 0:
            os.dup2(nowhere, sock.fileno(), inheritable=False)
    os.close(nowhere)


os.register_at_fork(after_in_child=_let_go)
