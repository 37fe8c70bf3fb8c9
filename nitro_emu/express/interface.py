"""A tenant's network interface: a TUN interface in the tenant's network namespace, whose descriptors the card holds.

The descriptors belong to the namespace in which they were opened, and are used from the card's own. So a short-lived
thread goes there; a card that is confined can no longer. The interface and its addresses disappear with the card, but
for a live update, over which the descriptors are kept (`handover`).
"""

from __future__ import annotations

import ctypes
import ipaddress
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from netns.base.naming import named
from nitro_emu.errors import CardError
from nitro_emu.express.config import InterfaceFields
from srd.tunnel.errors import TunnelError
from srd.tunnel.tun import Tun

NAMES: Final = Path("/run/netns")
"""Where `ip netns add` puts names."""
CLONE_NEWNET: Final = 0x40000000
_libc: Final = ctypes.CDLL(None, use_errno=True)


def open_interface(fields: InterfaceFields, *, name: str, address: str) -> Tun:
    """Make the interface with its address and routes, and take it up. Raises CardError."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(_open, fields, name, address).result()


def adopt_interface(fds: tuple[int, ...], *, index: int, name: str) -> Tun:
    """Go on with the interface of the program before. Raises CardError."""
    with named(f"{name}: ", TunnelError, error=CardError):
        return Tun.adopt(fds, index=index)


def _open(fields: InterfaceFields, name: str, address: str) -> Tun:
    from srd.tunnel.interface import TunnelInterface  # noqa: PLC0415 - slow to load, and only this kind needs it

    if fields.netns is not None:
        _enter(fields.netns)
    prefix = ipaddress.ip_network(fields.subnet).prefixlen
    with named(f"{name}: ", TunnelError, error=CardError), ExitStack() as opened:
        tun = opened.enter_context(Tun.open(fields.name or name))
        with closing(TunnelInterface(tun.index)) as interface:
            interface.configure(
                mtu_bytes=fields.mtu,
                addresses=[ipaddress.ip_interface(f"{address}/{prefix}")],
                routes=[ipaddress.ip_network(each) for each in fields.routes],
            )
        opened.pop_all()
        return tun


def _enter(netns: str | int) -> None:
    """Move the calling thread to a namespace, for the rest of its life. Raises CardError."""
    place = NAMES / netns if isinstance(netns, str) else Path(f"/proc/{netns}/ns/net")
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CardError(f"interface.netns: {netns}: {place}: {error.strerror}; `ip netns list` lists names") from error
    try:
        if _libc.setns(descriptor, CLONE_NEWNET):
            reason = os.strerror(ctypes.get_errno())
            raise CardError(f"interface.netns: {netns}: cannot be entered: {reason}; run the card as root")
    finally:
        os.close(descriptor)
