"""Flow steering: rules by which the kernel selects one of several sockets on one port for a datagram.

The sockets form a SO_REUSEPORT group. A classic BPF program attached to the group (SO_ATTACH_REUSEPORT_CBPF, Linux 4.5)
returns the index of the socket for every datagram or GSO super-datagram. It sees the UDP payload from offset 0, and
the IP header from SKF_NET_OFF (net/core/sock_reuseport.c, run_bpf_filter; linux/filter.h). The first rule that matches
applies. Data that matches no rule, and all other packets, go to the first socket. So a rule acts like a flow rule of a
network card (`ethtool -N`) and costs this process no time.

The first socket is bound without SO_REUSEPORT, so that a port in use is detected, and joins the group when another
socket is added. When a socket leaves, the kernel moves the last one to its index (reuseport_detach_sock); `_sockets`
does the same, so that the indices agree.

While there is a group, other processes of the same user may join it: the kernel only requires SO_REUSEPORT on both
sockets (and if the first socket that it finds does not have it, it looks for no group). The program never returns the
index of a foreign socket, so that socket receives nothing; but later indices would be wrong. So a group that another
process has joined is not extended, and stops steering once one of its own sockets has left. When all added sockets have
left, SO_REUSEPORT is cleared and no process can join any more.
"""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import os
import socket
import struct
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from srd.io.socket import open_socket
from srd.proto.wire.data import PacketType

SO_ATTACH_REUSEPORT_CBPF = 51  # asm-generic/socket.h
_NET = 0xFFF00000  # SKF_NET_OFF, -0x100000: offsets from there on count from the IP header
_WORD, _HALF, _BYTE = 0x20, 0x28, 0x30  # BPF_LD | BPF_ABS of 32, 16 and 8 bits
_AND, _SHIFT_RIGHT, _EQUAL, _RETURN = 0x54, 0x74, 0x15, 0x06
_INSTRUCTION = struct.Struct("=HBBI")
_TYPE_AT, _CONTEXT_AT = 1, 8  # in the header of every packet (srd.proto.wire)
_LOCAL, _INODE = 1, 9  # columns of /proc/net/udp
MAX_RULES = 200
"""A program has at most 4,096 instructions (BPF_MAXINSNS), a rule up to 18. Where net.core.optmem_max is small, the
kernel accepts fewer."""

_Check = tuple[list[tuple[int, int]], int]
"""Instructions (code, operand) that load a value, and the value that it must equal."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A filter for data packets: all fields that are given must match."""

    context: int | None = None
    """Context of one peer: the local id."""
    host: str | None = None
    """From this address."""
    port: int | None = None
    """From this port of `host`."""

    def checks(self) -> list[_Check]:
        """Return the checks that a packet must pass."""
        found: list[_Check] = []
        if self.context is not None:
            found.append(([(_WORD, _CONTEXT_AT)], self.context >> 32))
            found.append(([(_WORD, _CONTEXT_AT + 4)], self.context & 0xFFFFFFFF))
        if self.host is not None:
            address = ipaddress.ip_address(self.host.partition("%")[0])
            found.append(([(_BYTE, _NET), (_SHIFT_RIGHT, 4)], address.version))
            source_at, ports_at = (12, 20) if address.version == 4 else (8, 40)
            packed = address.packed
            found += [
                ([(_WORD, _NET + source_at + at)], int.from_bytes(packed[at : at + 4], "big"))
                for at in range(0, len(packed), 4)
            ]
            if self.port is not None:
                if address.version == 4:
                    found.append(([(_BYTE, _NET), (_AND, 15)], 5))  # no IP options, so that the ports are at 20
                found.append(([(_HALF, _NET + ports_at)], self.port))
        return found


class Steered(Protocol):
    """A `Peer`, whose data can be steered."""

    @property
    def context(self) -> int:
        """The id that every packet from it carries."""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""

    def error(self) -> Exception:
        """Return how it has ended."""


def program(rules: list[tuple[Rule, int]]) -> bytes:
    """Return the instructions (struct sock_filter) that return the index of the first rule that matches, or 0."""
    code = [(_BYTE, 0, 0, _TYPE_AT), (_EQUAL, 1, 0, int(PacketType.DATA)), (_RETURN, 0, 0, 0)]
    for rule, index in rules:
        checks = rule.checks()
        left = sum(len(loads) + 1 for loads, _ in checks)
        for loads, value in checks:
            code += [(operation, 0, 0, operand) for operation, operand in loads]
            left -= len(loads) + 1
            code.append((_EQUAL, 0, left + 1, value))  # otherwise jump over the other checks and the return
        code.append((_RETURN, 0, 0, index))
    code.append((_RETURN, 0, 0, 0))
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in code)


class Steering:
    """The socket group of an endpoint's own port: `add` a socket, `steer` packets to it, `redirect`, `remove` it."""

    def __init__(self, first: socket.socket) -> None:
        self._sockets = [first]
        self._rules: list[tuple[Rule, socket.socket]] = []

    def add(self) -> socket.socket:
        """Open another socket on the same port, without rules yet. Raises OSError."""
        first = self._sockets[0]
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            added = open_socket(first.getsockname(), family=first.family, share_port=True)
        except OSError:
            self._update()
            raise
        self._sockets.append(added)
        if self._is_joined():
            self._leave(added)  # no rule refers to it yet, so its index does not matter
            raise OSError(errno.EADDRINUSE, f"a process has joined port {first.getsockname()[1]}")
        try:
            self._apply()
        except OSError:
            self._leave(added)
            raise
        return added

    def steer(self, rule: Rule, sock: socket.socket) -> None:
        """Steer what matches `rule`, and no older one, to `sock`. Raises OSError; ValueError for too many rules."""
        if len(self._rules) >= MAX_RULES:
            raise ValueError(f"{MAX_RULES} rules are the most; make one for a host instead of its peers")
        self._rules.append((rule, sock))
        try:
            self._apply()
        except OSError:
            self._rules.pop()
            raise

    def remove_peer(self, context: int) -> None:
        """Remove the rules of a peer that has ended."""
        kept = [entry for entry in self._rules if entry[0].context != context]
        if len(kept) < len(self._rules):
            self._rules = kept
            self._apply()

    def redirect(self, sock: socket.socket) -> None:
        """Remove the rules for `sock`; datagrams that it already holds can still be read."""
        self._rules = [entry for entry in self._rules if entry[1] is not sock]
        self._apply()

    def remove(self, sock: socket.socket) -> None:
        """Close a socket of the group, after `redirect`."""
        if self._rules and self._is_joined():
            self._rules.clear()
            warnings.warn("a process has joined the port: nothing is steered any more", RuntimeWarning, stacklevel=2)
            self._apply()
        self._leave(sock)

    def _leave(self, sock: socket.socket) -> None:
        index = self._sockets.index(sock)
        self._sockets[index] = self._sockets[-1]
        self._sockets.pop()
        sock.close()
        self._update()

    def _update(self) -> None:
        """Install the program for the current rules; clear SO_REUSEPORT when only the first socket is left."""
        if len(self._sockets) > 1:
            self._apply()
        elif self._sockets[0].fileno() >= 0:
            self._sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)

    def _is_joined(self) -> bool:
        """Whether a foreign socket is in the group. A socket of another network namespace cannot be examined: False."""
        first = self._sockets[0]
        if first.fileno() < 0:
            return False
        table = "/proc/thread-self/net/udp6" if first.family == socket.AF_INET6 else "/proc/thread-self/net/udp"
        fields = [line.split() for line in Path(table).read_text(encoding="ascii").splitlines()[1:]]
        addresses = {int(line[_INODE]): line[_LOCAL] for line in fields}
        own = {os.fstat(sock.fileno()).st_ino for sock in self._sockets if sock.fileno() >= 0}
        local = addresses.get(os.fstat(first.fileno()).st_ino)
        return any(address == local and inode not in own for inode, address in addresses.items())

    def _apply(self) -> None:
        if self._sockets[0].fileno() < 0:
            return  # the first socket was closed with its endpoint
        instructions = program([(rule, self._sockets.index(sock)) for rule, sock in self._rules])
        kept = ctypes.create_string_buffer(instructions, len(instructions))
        filter_program = struct.pack("@HP", len(instructions) // _INSTRUCTION.size, ctypes.addressof(kept))
        self._sockets[0].setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, filter_program)
