"""The root qdisc of an interface, over rtnetlink: set it, read it back, delete it.

Source: Linux include/uapi/linux/rtnetlink.h, netlink.h; Documentation/userspace-api/netlink/intro.rst. The options are
bytes here, made by netns/backends/kernel/netem_options.py. The calling thread must be in the interface's namespace.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import Final

from netns.backends.kernel.netem_options import attribute, attributes_untrusted
from netns.errors import BackendError

NETLINK_ROUTE: Final = 0
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK = 270, 10, 11
NLMSG_ERROR, NLMSG_DONE = 2, 3
RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
NLM_F_REQUEST, NLM_F_ACK, NLM_F_REPLACE, NLM_F_CREATE, NLM_F_DUMP = 1, 4, 0x100, 0x400, 0x300
NLM_F_CAPPED, NLM_F_ACK_TLVS = 0x100, 0x200
TC_H_ROOT: Final = 0xFFFFFFFF
TCA_KIND, TCA_OPTIONS = 1, 2
NLMSGERR_ATTR_MSG: Final = 1

_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_TCMSG: Final = struct.Struct("=Bxxx i III")  # family, interface, handle, parent, info
_ANSWER_BYTES: Final = 1 << 18
_TIMEOUT_S: Final = 5.0


def replace_root(ifname: str, *, kind: str, options: bytes) -> None:
    """Add or change the root qdisc of an interface; BackendError with the kernel's message."""
    attributes = attribute(TCA_KIND, kind.encode() + b"\0") + attribute(TCA_OPTIONS, options)
    _request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, _root_of(ifname) + attributes)


def delete_root(ifname: str) -> None:
    """Delete the root qdisc and the packets in it; BackendError if there is none but the default."""
    _request(RTM_DELQDISC, 0, _root_of(ifname))


def root_options(ifname: str, *, kind: str) -> bytes:
    """Return the kernel's options of the interface's root qdisc; BackendError unless it is of that kind."""
    number = socket.if_nametoindex(ifname)
    for message in _dump(_TCMSG.pack(0, number, 0, 0, 0)):
        _, interface, _, parent, _ = _TCMSG.unpack_from(message)
        if interface == number and parent == TC_H_ROOT:
            found = dict(attributes_untrusted(message[_TCMSG.size :]))
            if found.get(TCA_KIND, b"").rstrip(b"\0") == kind.encode():
                return found.get(TCA_OPTIONS, b"")
    raise BackendError(f"{ifname}: its root qdisc is no {kind}")


def _root_of(ifname: str) -> bytes:
    return _TCMSG.pack(0, socket.if_nametoindex(ifname), 0, TC_H_ROOT, 0)


def _request(kind: int, flags: int, content: bytes) -> None:
    with _open() as connection:
        connection.send(_message(kind, NLM_F_REQUEST | NLM_F_ACK | flags, content))
        for _ in _messages_untrusted(connection.recv(_ANSWER_BYTES)):
            pass


def _dump(content: bytes) -> Iterator[bytes]:
    with _open() as connection:
        connection.send(_message(RTM_GETQDISC, NLM_F_REQUEST | NLM_F_DUMP, content))
        while True:
            for kind, message in _messages_untrusted(connection.recv(_ANSWER_BYTES)):
                if kind == NLMSG_DONE:
                    return
                yield message


def _open() -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE)
    for option in (NETLINK_CAP_ACK, NETLINK_EXT_ACK):
        opened.setsockopt(SOL_NETLINK, option, 1)
    opened.settimeout(_TIMEOUT_S)
    return opened


def _message(kind: int, flags: int, content: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(content), kind, flags, 1, 0) + content


def _messages_untrusted(answer: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (type, content) of each message; BackendError for an error of the kernel, and for a truncated answer."""
    at = 0
    while at + _HEADER.size <= len(answer):
        length, kind, flags, _, _ = _HEADER.unpack_from(answer, at)
        if length < _HEADER.size or at + length > len(answer):
            raise BackendError(f"the kernel's answer ends inside a message ({length} bytes at {at})")
        content = answer[at + _HEADER.size : at + length]
        if kind == NLMSG_ERROR:
            _raise_refusal(content, flags)
        yield kind, content
        at += length + -length % 4


def _raise_refusal(content: bytes, flags: int) -> None:
    """Raise BackendError with the reason in an NLMSG_ERROR, unless it is an acknowledgement."""
    if len(content) < 4:
        raise BackendError("the kernel's answer ends inside an error")
    (code,) = struct.unpack_from("=i", content)
    if not code:
        return
    reason = os.strerror(-code)
    if flags & NLM_F_ACK_TLVS:
        echoed = _HEADER.size if flags & NLM_F_CAPPED else struct.unpack_from("=I", content, 4)[0]
        for kind, text in attributes_untrusted(content[4 + echoed :]):
            if kind == NLMSGERR_ATTR_MSG:
                reason = text.rstrip(b"\0").decode(errors="replace").rstrip(".")
    raise BackendError(reason)
