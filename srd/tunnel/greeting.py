"""The two control messages of a tunnel, JSON in one SRD message each.

client    {"tunnel": 1, "addresses": ["10.88.0.2", ...]}     the addresses that it wants to use
listener  {"tunnel": 1, "networks": ["10.88.0.0/24", ...]}   it may; what the listener has packets from
{"tunnel": 1, "refused": "the reason"}             it may not; the listener closes the peer
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence
from typing import Any, Final

from srd.errors import PacketError

VERSION: Final = 1
MAX_GREETING_BYTES: Final = 16 << 10
MAX_ADDRESSES: Final = 64

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
OwnAddress = ipaddress.IPv4Interface | ipaddress.IPv6Interface


def hello(addresses: Sequence[Address]) -> bytes:
    """Return a client's message."""
    return _encoded(addresses=[str(each) for each in addresses])


def welcome(networks: Sequence[Network]) -> bytes:
    """Return a listener's message to a client that may join."""
    return _encoded(networks=[str(each) for each in networks])


def refusal(reason: str) -> bytes:
    """Return a listener's message to a client that may not."""
    return _encoded(refused=reason)


def _encoded(**fields: object) -> bytes:
    return json.dumps({"tunnel": VERSION, **fields}).encode()


def hello_untrusted(message: bytes) -> list[Address]:
    """Return the addresses that a client wants. Raises PacketError."""
    try:
        return [ipaddress.ip_address(each) for each in _texts(_fields(message), "addresses")]
    except ValueError as error:
        raise PacketError(f"a client's greeting: {error}") from error


def welcome_untrusted(message: bytes) -> list[Network] | str:
    """Return the networks behind a listener, or why it refuses. Raises PacketError."""
    fields = _fields(message)
    if isinstance(refused := fields.get("refused"), str):
        return refused[:256]
    try:
        return [ipaddress.ip_network(each) for each in _texts(fields, "networks")]
    except ValueError as error:
        raise PacketError(f"a listener's greeting: {error}") from error


def _fields(message: bytes) -> dict[str, Any]:
    if len(message) > MAX_GREETING_BYTES:
        raise PacketError(f"a greeting of {len(message)} bytes; at most {MAX_GREETING_BYTES}")
    try:
        fields = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise PacketError("a greeting that is no JSON") from error
    if not isinstance(fields, dict) or fields.get("tunnel") != VERSION:
        raise PacketError("a greeting of another version, or of something else than srd tunnel")
    return fields


def _texts(fields: dict[str, Any], name: str) -> list[str]:
    found = fields.get(name)
    if not isinstance(found, list) or not 0 < len(found) <= MAX_ADDRESSES:
        raise PacketError(f"a greeting without {name}, or with more than {MAX_ADDRESSES}")
    if not all(isinstance(each, str) for each in found):
        raise PacketError(f"a greeting whose {name} are no text")
    if any("%" in each for each in found):  # to `ipaddress` one with a scope is unlike the same without
        raise PacketError(f"a greeting whose {name} have a scope")
    return found
