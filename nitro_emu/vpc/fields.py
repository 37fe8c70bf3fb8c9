"""Texts in the control plane's file, and what is wrong with them: names, addresses, ranges, keys, ports."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator

from netns.base.names import NAME, NAME_RULE, is_name
from netns.base.unix_sockets import MAX_PATH_BYTES
from nitro_emu.errors import AbiError
from nitro_emu.gid import IPV6_PORT, gid_of

KEY_BYTES: Final = 32
"""Of a card's public key (X25519)."""

MAX_LABEL: Final = 63
"""Characters between two dots of a host's name (RFC 1035)."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_GROUP: Final = re.compile(rf"(?:{NAME}/)?{NAME}")
_HOST_PORT: Final = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[a-zA-Z0-9.-]{1,253}):([0-9]{1,5})")
_PORTS: Final = re.compile(r"(0|[1-9][0-9]{0,4})(?:-(0|[1-9][0-9]{0,4}))?")


def _name(value: str) -> str:
    if not is_name(value):
        raise ValueError(f"{value!r} is no name; {NAME_RULE}")
    return value


def _group(value: str) -> str:
    if not _GROUP.fullmatch(value):
        raise ValueError(f"{value!r} is no group; give its name, or VPC/NAME for a group of a peered VPC")
    return value


def _address(value: str) -> str:
    """Return an address in its usual form."""
    try:
        address = str(ipaddress.ip_address(value))
        gid_of(address, port=IPV6_PORT)
    except (ValueError, AbiError) as error:
        reason = str(error).removeprefix("host: ")
        raise ValueError(f"{reason}; give a unicast address, such as 172.31.0.5") from None
    return address


def _network(value: str) -> str:
    """Return a CIDR in its usual form."""
    try:
        if "/" not in value:
            raise ValueError(f"{value!r} has no prefix length")  # noqa: TRY301 - one place words the remedy
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        raise ValueError(f"{error}; give an address range, such as 172.31.0.0/24") from None


def _public_key(value: str) -> str:
    try:
        key = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES or base64.b64encode(key).decode() != value or not any(key):
        raise ValueError(f"{value[:50]!r} is no X25519 key of {KEY_BYTES} bytes in base64; nitro-chip key prints it")
    return value


def _push(value: str) -> str:
    if value.startswith("/") and "\0" not in value:
        if (length := len(value.encode())) > MAX_PATH_BYTES:
            raise ValueError(f"{value!r} has {length} bytes; a socket's path has at most {MAX_PATH_BYTES}")
        return value
    match = _HOST_PORT.fullmatch(value)
    if match is None or not 0 < int(match[2]) <= 65535:
        raise ValueError(f"{value!r} is neither the absolute path of a card's control socket nor HOST:PORT")
    if not _is_host(match[1]):
        raise ValueError(
            f"{value!r} names no host: give an IPv4 address, an IPv6 address in brackets, or a name whose parts "
            f"between dots have 1 to {MAX_LABEL} characters"
        )
    return value


def _is_host(text: str) -> bool:
    """Return whether a text may name a host: what the resolver can ask for, or an IPv6 address in brackets."""
    if not text.startswith("["):
        return all(1 <= len(label) <= MAX_LABEL for label in text.removesuffix(".").split("."))
    try:
        ipaddress.IPv6Address(text[1:-1])
    except ValueError:
        return False
    return True


def _ports_untrusted(value: object) -> object:
    """Return a port or range as text; what is none stays as it is, for pydantic to refuse."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65535 else value


def _ports(value: str) -> str:
    match = _PORTS.fullmatch(value)
    if match is None or not int(match[1]) <= int(match[2] or match[1]) <= 65535:
        raise ValueError(f"{value!r} is no port and no range of ports; give 443 or 8000-8100")
    return value


Name = Annotated[str, AfterValidator(_name)]
GroupReference = Annotated[str, AfterValidator(_group)]
Address = Annotated[str, AfterValidator(_address)]
Cidr = Annotated[str, AfterValidator(_network)]
PublicKey = Annotated[str, AfterValidator(_public_key)]
Push = Annotated[str, AfterValidator(_push)]
Ports = Annotated[str, BeforeValidator(_ports_untrusted), AfterValidator(_ports)]
