"""Flow steering: which of several sockets on one port a datagram goes to. The kernel decides, by rules of ours.

The sockets form a SO_REUSEPORT group. A classic BPF program attached to the group (SO_ATTACH_REUSEPORT_CBPF, Linux 4.5)
answers for every datagram, or GSO super-datagram, with the index of its socket. It sees the UDP payload from 0 on, and
the IP header from SKF_NET_OFF on (net/core/sock_reuseport.c, run_bpf_filter; linux/filter.h). Rules are asked in their
order; what no rule is for, and everything but data, goes to the first socket. So a rule does what a network card's
flow rule does (`ethtool -N`), and costs this process nothing.

The first socket is bound alone, so that a port that is taken is noticed, and joins the group when there is one. In the
place of a socket that leaves comes the last (reuseport_detach_sock): `_sockets` does the same, and stays in step.

While there is a group, processes of the same user may join it: the kernel asks no more than SO_REUSEPORT of both (and
without it on the socket that it finds first it looks for no group). The program never answers with the index of one
that joined, so it is sent nothing; but indices would not be ours any more. So a group that somebody has joined is not
made larger, and steers nothing once one of its sockets has left. When all have left the port is ours alone again.
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

from srd.io.socket import open_socket
from srd.proto.wire.data import PacketType

SO_ATTACH_REUSEPORT_CBPF = 51  # asm-generic/socket.h
_NET = 0xFFF00000  # SKF_NET_OFF, -0x100000: offsets from there on count from the IP header
_WORD, _HALF, _BYTE = 0x20, 0x28, 0x30  # BPF_LD | BPF_ABS, of so much
_AND, _SHIFT_RIGHT, _EQUAL, _RETURN = 0x54, 0x74, 0x15, 0x06
_INSTRUCTION = struct.Struct("=HBBI")
_TYPE_AT, _CONTEXT_AT = 1, 8  # in the header of every packet (srd.proto.wire)
_LOCAL, _INODE = 1, 9  # columns of /proc/net/udp
MAX_RULES = 200
"""A program has 4,096 instructions at most (BPF_MAXINSNS), a rule up to 18. Where net.core.optmem_max is small the
kernel takes fewer."""

_Check = tuple[list[tuple[int, int]], int]
"""Instructions (code, operand) that load something, and what it has to be equal to."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What to steer: data that has all that is given."""

    context: int | None = None
    """Of one peer: the id that we chose for it."""
    host: str | None = None
    """From this address."""
    port: int | None = None
    """From this port of `host`."""

    def checks(self) -> list[_Check]:
        """Return what must be so."""
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
                    found.append(([(_BYTE, _NET), (_AND, 15)], 5))  # no options: ports follow at once
                found.append(([(_HALF, _NET + ports_at)], self.port))
        return found


def program(rules: list[tuple[Rule, int]]) -> bytes:
    """Return the instructions (struct sock_filter) that answer with the index of the first rule that is met, or 0."""
    code = [(_BYTE, 0, 0, _TYPE_AT), (_EQUAL, 1, 0, int(PacketType.DATA)), (_RETURN, 0, 0, 0)]
    for rule, index in rules:
        checks = rule.checks()
        left = sum(len(loads) + 1 for loads, _ in checks)
        for loads, value in checks:
            code += [(operation, 0, 0, operand) for operation, operand in loads]
            left -= len(loads) + 1
            code.append((_EQUAL, 0, left + 1, value))  # else over the other checks and the answer
        code.append((_RETURN, 0, 0, index))
    code.append((_RETURN, 0, 0, 0))
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in code)


class Steering:
    """The group of an endpoint's own port: `add` sockets, set `rules`, `remove`."""

    def __init__(self, first: socket.socket) -> None:
        self._sockets = [first]
        self._rules: list[tuple[Rule, socket.socket]] = []

    def add(self) -> socket.socket:
        """Open another socket on the same port, to which nothing is steered yet. Raises OSError."""
        first = self._sockets[0]
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            added = open_socket(first.getsockname(), family=first.family, share_port=True)
        except OSError:
            self._update()
            raise
        self._sockets.append(added)
        if self._is_joined():
            self._leave(added)  # nothing is steered to it yet, and so its index is nobody's matter
            raise OSError(errno.EADDRINUSE, f"a process has joined port {first.getsockname()[1]}")
        try:
            self._apply()
        except OSError:
            self._leave(added)
            raise
        return added

    def steer(self, rule: Rule, sock: socket.socket) -> None:
        """Send what meets `rule` and no older one to `sock`. Raises OSError; ValueError for one rule too many."""
        if len(self._rules) >= MAX_RULES:
            raise ValueError(f"{MAX_RULES} rules are the most; make one for a host instead of its peers")
        self._rules.append((rule, sock))
        try:
            self._apply()
        except OSError:
            self._rules.pop()
            raise

    def forget(self, context: int) -> None:
        """Drop the rules of a peer that is gone."""
        kept = [entry for entry in self._rules if entry[0].context != context]
        if len(kept) < len(self._rules):
            self._rules = kept
            self._apply()

    def redirect(self, sock: socket.socket) -> None:
        """Steer nothing to `sock` any more; what it has got may still be read."""
        self._rules = [entry for entry in self._rules if entry[1] is not sock]
        self._apply()

    def remove(self, sock: socket.socket) -> None:
        """Close a socket of the group, after `divert`."""
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
        """Steer as it must be from now on; a port that is not shared is nobody else's."""
        if len(self._sockets) > 1:
            self._apply()
        elif self._sockets[0].fileno() >= 0:
            self._sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)

    def _is_joined(self) -> bool:
        """Whether a socket that is not ours is in the group; of a group in another network namespace nobody can say."""
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
            return  # it was closed with its endpoint
        instructions = program([(rule, self._sockets.index(sock)) for rule, sock in self._rules])
        kept = ctypes.create_string_buffer(instructions, len(instructions))
        filter_program = struct.pack("@HP", len(instructions) // _INSTRUCTION.size, ctypes.addressof(kept))
        self._sockets[0].setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, filter_program)
