"""The tunnel's interface in the kernel: MTU, addresses, routes, and what others change in it.

Rules:

- Addresses, and routes via the interface, disappear with it, whatever ends the process (srd/tunnel/tun.py). Nothing is
  replaced: an address or route that exists already is an error.
- The tunnel's own packets never enter the tunnel. Its addresses may not be in the networks of the interface. Where a
  requested route contains the other end's address, as 0.0.0.0/0 does, it goes into a table of its own, which only
  policy rules lead to (`_Detour`): packets to the other end skip them, and are routed as without a tunnel, by whatever
  routes the host has at that time. (OpenVPN copies the present gateway into a host route instead, which is wrong as
  soon as the gateway changes; WireGuard's wg-quick has such rules.)
- Rules, unlike routes, outlive the interface. They are deleted by recorded value in `close`. Those that a killed
  process left are without effect, as the table is empty, and are deleted when the next tunnel starts: RULE_PROTOCOL
  marks them, and the table's number tells which interface they belonged to.
- When the interface goes down the kernel deletes its routes and its IPv6 addresses. They are put back when it comes up.
- pyroute2 runs an event loop of its own, and not in the thread of a running one: each use has a thread of its own,
  which inherits the caller's network namespace. Changes are only waited for here, on a plain socket; the state is then
  asked for by ioctl, so that neither lost nor surplus notifications matter.
- systemd-networkd deletes foreign rules whenever it starts (ManageForeignRoutingPolicyRules=): they are put back, too.
  It and NetworkManager change nothing in an interface that no profile of theirs names; NetworkManager may probe
  through it for the Internet.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv6Address, ip_interface
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from srd.tunnel.errors import InterfaceGoneError, TunnelError
from srd.tunnel.greeting import Address, Network, OwnAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

T = TypeVar("T")

QUEUE_PACKETS: Final = 1000
"""Packets that wait to be read (txqueuelen); super-packets where TSO is on. The kernel drops what comes beyond them."""
MIN_IPV6_MTU_BYTES: Final = 1280  # RFC 8200, section 5; the kernel has no IPv6 on an interface with less
RULE_PROTOCOL: Final = 83
"""Marks this module's rules (FRA_PROTOCOL); no number of linux/rtnetlink.h or iproute2's rt_protos."""
FIRST_TABLE: Final = 0x53524400
"""The table of the interface numbered n is this one plus n: far from the numbers that people choose."""
FIRST_PRIORITY: Final = 20_000  # before the main table's 32766
RULES: Final = 64
"""Priorities that an interface has for its rules."""
MAX_DETOURED: Final = (RULES - 2) // 2
MAX_NOTIFICATIONS: Final = 64
"""Notifications read before the state is looked at."""
BANDS: Final = 180

# linux/if.h, linux/sockios.h, linux/rtnetlink.h, linux/if_addr.h, linux/fib_rules.h, linux/if_link.h
IFF_UP, IFF_MULTICAST = 0x1, 0x1000
SIOCGIFNAME, SIOCGIFFLAGS, SIOCGIFMTU = 0x8910, 0x8913, 0x8921
RTMGRP_LINK, RTMGRP_IPV4_RULE, RTMGRP_IPV6_RULE = 1 << 0, 1 << 7, 1 << 18
RTM_DELRULE: Final = 33
RT_TABLE_MAIN: Final = 254
RT_SCOPE_LINK: Final = 253
IFA_F_NODAD: Final = 0x02
FR_ACT_TO_TABLE, FR_ACT_GOTO, FR_ACT_NOP = 1, 2, 3
NO_ADDRESS_GENERATION: Final = {"attrs": [("AF_INET6", {"attrs": [("IFLA_INET6_ADDR_GEN_MODE", 1)]})]}

_IFREQ_INT: Final = struct.Struct("=16si20x")
_IFREQ_FLAGS: Final = struct.Struct("=16sH22x")
_LINK_MESSAGE: Final = struct.Struct("=IHHII BxHiII")
"""struct nlmsghdr and struct ifinfomsg: length, type, ..., index, flags, change."""
_NOTIFICATION_BYTES: Final = 1 << 16
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}


@dataclass(frozen=True, slots=True)
class InterfaceState:
    """What anybody may change in an interface while it is in use."""

    name: str
    is_up: bool
    mtu_bytes: int
    missing: tuple[str, ...] = ()
    """Addresses and routes that could not be put back after the interface was down: a line each, with the reason."""


class TunnelInterface:
    """The interface numbered `index`, in the network namespace of the thread that makes this object."""

    def __init__(self, index: int) -> None:
        """Open the socket that the state is asked through."""
        self.index: Final = index
        self._control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._addresses: tuple[OwnAddress, ...] = ()
        self._tables: dict[Network, int] = {}
        self._rules: list[dict[str, Any]] = []

    def configure(
        self,
        *,
        mtu_bytes: int,
        addresses: Sequence[OwnAddress],
        routes: Sequence[Network] = (),
        outside: Sequence[Address] = (),
    ) -> None:
        """Set the MTU, add the addresses and routes, and take the interface up. Takes about 30 ms. Raises TunnelError.

        After an error, too, the rules are deleted by `close`. `outside` are the addresses at which the other end
        is reached: they are not routed into the tunnel.
        """
        outside = tuple(dict.fromkeys(_unmapped(address) for address in outside))
        _check(addresses, mtu_bytes=mtu_bytes, outside=outside)
        detours = [
            detour
            for family in (socket.AF_INET, socket.AF_INET6)
            if (detour := _Detour.find(family, index=self.index, routes=routes, outside=outside)) is not None
        ]
        own_tables = {route: detour.table for detour in detours for route in detour.routes}
        self._addresses = tuple(addresses)
        self._tables = {route: own_tables.get(route, RT_TABLE_MAIN) for route in routes}
        _in_thread(partial(self._configure, mtu_bytes=mtu_bytes, detours=detours))

    def set_mtu(self, mtu_bytes: int) -> None:
        """Change the MTU; raises TunnelError."""
        _check(self._addresses, mtu_bytes=mtu_bytes)
        _in_thread(lambda netlink: self._set_link(netlink, f"MTU {mtu_bytes}", mtu=mtu_bytes))

    def state(self) -> InterfaceState:
        """Return the present state; raises InterfaceGoneError if there is no such interface any more."""
        while True:
            try:
                answer = fcntl.ioctl(self._control, SIOCGIFNAME, _IFREQ_INT.pack(b"", self.index))
            except OSError:
                raise InterfaceGoneError("the tunnel's interface was deleted") from None
            name: bytes = _IFREQ_INT.unpack(answer)[0]
            with suppress(OSError):  # it was renamed in between
                flags = _IFREQ_FLAGS.unpack(fcntl.ioctl(self._control, SIOCGIFFLAGS, _IFREQ_FLAGS.pack(name, 0)))[1]
                mtu_bytes = _IFREQ_INT.unpack(fcntl.ioctl(self._control, SIOCGIFMTU, _IFREQ_INT.pack(name, 0)))[1]
                return InterfaceState(os.fsdecode(name.rstrip(b"\0")), bool(flags & IFF_UP), mtu_bytes)

    async def watch(self, on_change: Callable[[InterfaceState], None]) -> None:
        """Call `on_change` with the present state and after each change, until it is gone: InterfaceGoneError.

        Puts back the addresses and routes after the interface was down, and rules that somebody deleted.
        """
        reported: InterfaceState | None = None
        missing: tuple[str, ...] = ()
        is_incomplete = False
        with _Notifications(self.index) as notifications:
            while True:
                is_incomplete |= notifications.drain()
                state = self.state()
                is_incomplete |= not state.is_up
                is_incomplete |= reported is not None and state.mtu_bytes != reported.mtu_bytes
                if is_incomplete and state.is_up:
                    missing = await asyncio.to_thread(_use_netlink, self._put_back)
                    is_incomplete = False
                state = replace(state, missing=missing)
                if state != reported:
                    reported = state
                    on_change(state)
                await notifications.wait()

    def close(self) -> None:
        """Delete this interface's rules; the interface itself ends with its descriptors."""
        self._control.close()
        rules, self._rules = self._rules, []
        if rules:
            _in_thread(partial(_delete_rules, rules=rules))

    def _configure(self, netlink: IPRoute, *, mtu_bytes: int, detours: Sequence[_Detour]) -> None:
        taken = _delete_left_rules(netlink)
        quiet = {"flags": 0, "change": IFF_MULTICAST}
        self._set_link(netlink, f"MTU {mtu_bytes}", mtu=mtu_bytes, txqlen=QUEUE_PACKETS, **quiet)
        with suppress(NetlinkError):  # a kernel without IPv6
            netlink.link("set", index=self.index, IFLA_AF_SPEC=NO_ADDRESS_GENERATION)
        _check_free(netlink, self._addresses)
        for address in self._addresses:
            self._add_address(netlink, address)
        self._set_link(netlink, "the tunnel's interface cannot be taken up", state="up")
        for detour in detours:
            self._add_rules(netlink, detour, band=_free_band(taken, first=self.index))
        for route in self._tables:
            self._add_route(netlink, route)

    def _set_link(self, netlink: IPRoute, what: str, **options: Any) -> None:
        with _explained(what):
            netlink.link("set", index=self.index, **options)

    def _add_address(self, netlink: IPRoute, address: OwnAddress) -> None:
        options = {"flags": IFA_F_NODAD} if address.version == 6 else {}
        length = address.network.prefixlen
        with _explained(f"address {address}"):
            netlink.addr("add", index=self.index, address=str(address.ip), prefixlen=length, **options)

    def _add_route(self, netlink: IPRoute, route: Network) -> None:
        options: dict[str, Any] = {"scope": RT_SCOPE_LINK} if route.version == 4 else {}
        options |= {"family": _FAMILIES[route.version], "dst": str(route)}
        with _explained(f"route to {route}"):
            netlink.route("add", oif=self.index, table=self._tables[route], **options)

    def _add_rules(self, netlink: IPRoute, detour: _Detour, *, band: int) -> None:
        for rule in detour.rules(FIRST_PRIORITY + band * RULES):
            _add_rule(netlink, rule)
            self._rules.append(rule)

    def _put_back(self, netlink: IPRoute) -> tuple[str, ...]:
        """Add what is missing; return what could not be added. The rule that leads into the tunnel is the last rule."""
        missing = []
        additions = [partial(_add_rule, netlink, rule) for rule in reversed(self._rules)]
        additions += [partial(self._add_address, netlink, address) for address in self._addresses]
        additions += [partial(self._add_route, netlink, route) for route in self._tables]
        for add in additions:
            try:
                add()
            except _ExistsError:
                continue
            except TunnelError as error:
                missing.append(str(error))
        return tuple(missing)


@dataclass(frozen=True, slots=True)
class _Detour:
    """The rules of one family for routes that contain addresses of the other end.

        P       to the other end's address: go to P + 63
        P + 1   to the first route's network: what the main table routes more specifically
        P + 2   to the first route's network: this interface's table
        ...     the next route, which is not longer
        P + 63  the end

    The main table's more specific routes win, as they would over a route in the main table.
    """

    family: socket.AddressFamily
    index: int
    routes: tuple[Network, ...]
    outside: tuple[Address, ...]

    @classmethod
    def find(
        cls, family: socket.AddressFamily, *, index: int, routes: Sequence[Network], outside: Sequence[Address]
    ) -> Self | None:
        """Return the rules that are needed; None if no route contains an address of `outside`."""
        addresses = tuple(address for address in outside if _FAMILIES[address.version] == family)
        covering = [route for route in routes if any(address in route for address in addresses)]
        if not covering:
            return None
        if len(covering) > MAX_DETOURED:
            raise TunnelError(f"{len(covering)} routes contain the other end's address; use {MAX_DETOURED} at most")
        longest_first = sorted(covering, key=lambda route: -route.prefixlen)
        return cls(family, index, tuple(longest_first), addresses)

    @property
    def table(self) -> int:
        return FIRST_TABLE + self.index

    def rules(self, first: int) -> Iterator[dict[str, Any]]:
        """Return the rules from priority `first` on, in the order in which they are added, and deleted.

        The lookup in the own table is first: added, the table is still empty; deleted, no rule leads into the tunnel.
        """
        end = first + RULES - 1
        rule = {"family": self.family, "protocol": RULE_PROTOCOL}
        within = [rule | _to(route) for route in self.routes]
        for number, to in enumerate(within):
            yield to | {"priority": first + 2 * number + 2, "action": FR_ACT_TO_TABLE, "table": self.table}
        for number, (to, route) in enumerate(zip(within, self.routes, strict=True)):
            main = {"action": FR_ACT_TO_TABLE, "table": RT_TABLE_MAIN}
            suppressed = {"FRA_SUPPRESS_PREFIXLEN": route.prefixlen}
            yield to | main | suppressed | {"priority": first + 2 * number + 1}
        yield rule | {"priority": end, "action": FR_ACT_NOP}
        for address in self.outside:
            to_end = {"priority": first, "action": FR_ACT_GOTO, "goto": end}
            yield rule | to_end | {"dst": str(address), "dst_len": address.max_prefixlen}


class _Notifications:
    """What the kernel says about links and rules, as a reason to look."""

    def __init__(self, index: int) -> None:
        self._index = index
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
        self._socket.bind((0, RTMGRP_LINK | RTMGRP_IPV4_RULE | RTMGRP_IPV6_RULE))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def drain(self) -> bool:
        """Drop what came; return whether the interface may have been down since the last call, or a rule deleted."""
        may_lack = False
        for _ in range(MAX_NOTIFICATIONS):
            try:
                message = self._socket.recv(_NOTIFICATION_BYTES)
            except BlockingIOError:
                break
            except OSError:  # ENOBUFS: some were lost
                may_lack = True
                continue
            may_lack |= self._tells_of_loss(message)
        return may_lack

    def _tells_of_loss(self, message: bytes) -> bool:
        if len(message) < _LINK_MESSAGE.size:  # none of a link or a rule
            return False
        _, kind, _, _, _, _, _, index, flags, _ = _LINK_MESSAGE.unpack_from(message)
        return kind == RTM_DELRULE or (index == self._index and not flags & IFF_UP)

    async def wait(self) -> None:
        """Wait until the kernel has said something."""
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._socket.fileno(), _resolve, readable)
        try:
            await readable
        finally:
            loop.remove_reader(self._socket.fileno())


class _ExistsError(TunnelError):
    """The kernel has such an address, route or rule already."""


def _check(addresses: Sequence[OwnAddress], *, mtu_bytes: int, outside: Sequence[Address] = ()) -> None:
    if mtu_bytes < MIN_IPV6_MTU_BYTES and any(address.version == 6 for address in addresses):
        raise TunnelError(f"MTU {mtu_bytes}: IPv6 needs {MIN_IPV6_MTU_BYTES}; leave IPv6 addresses out")
    for address in addresses:
        for other in outside:
            if other in address.network:
                raise TunnelError(f"address {address}: its network contains the other end's address {other}")


def _check_free(netlink: IPRoute, addresses: Sequence[OwnAddress]) -> None:
    """Raise TunnelError if another interface is in one of these networks: one of both would get nothing."""
    others: dict[Network, int] = {}
    for message in netlink.get_addr():
        address = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
        others[ip_interface(f"{address}/{message['prefixlen']}").network] = message["index"]
    for address in addresses:
        if (index := others.get(address.network)) is not None:
            name = dict(socket.if_nameindex()).get(index, "another interface")
            raise TunnelError(f"address {address}: {name} is in its network already; choose another network")


def _add_rule(netlink: IPRoute, rule: dict[str, Any]) -> None:
    with _explained("rule for a route that contains the other end's address"):
        netlink.rule("add", **rule)


def _delete_left_rules(netlink: IPRoute) -> set[int]:
    """Delete the rules that killed processes left; return the bands of priorities that other tunnels use.

    Left are the rules of a band in which no table is one of an interface that exists.
    """
    tables = {FIRST_TABLE + index for index, _ in socket.if_nameindex()}
    taken: set[int] = set()
    for family in _FAMILIES.values():
        with suppress(NetlinkError):  # a kernel without this family, or without rules
            rules = [
                rule for rule in netlink.get_rules(family=family) if rule.get_attr("FRA_PROTOCOL") == RULE_PROTOCOL
            ]
            alive = {_band(rule) for rule in rules if rule.get_attr("FRA_TABLE") in tables}
            _delete_rules(netlink, rules=[_as_options(rule) for rule in rules if _band(rule) not in alive])
            taken |= alive
    return taken


def _free_band(taken: set[int], *, first: int) -> int:
    """Return a band that is not taken, from `first` on, so that tunnels that start at once take different ones."""
    for number in range(first, first + BANDS):
        if number % BANDS not in taken:
            return number % BANDS
    raise TunnelError(f"{BANDS} tunnels of this host have routes that contain the other end's address; no more can")


def _delete_rules(netlink: IPRoute, *, rules: Sequence[dict[str, Any]]) -> None:
    for rule in rules:
        with suppress(NetlinkError):  # somebody else deleted it
            netlink.rule("del", **rule)


def _band(rule: Any) -> int:
    priority: int = rule.get_attr("FRA_PRIORITY") or 0
    return (priority - FIRST_PRIORITY) // RULES


def _as_options(rule: Any) -> dict[str, Any]:
    """Return what identifies a rule that the kernel has told of, for its deletion."""
    names = {"priority": "FRA_PRIORITY", "table": "FRA_TABLE", "goto": "FRA_GOTO", "dst": "FRA_DST"}
    options = {name: value for name, attribute in names.items() if (value := rule.get_attr(attribute))}
    return options | {name: rule[name] for name in ("family", "action", "dst_len")}


def _in_thread(work: Callable[[IPRoute], T]) -> T:
    """Return `work(netlink)`, called in a thread of its own: see the module's rules."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(_use_netlink, work).result()


def _use_netlink(work: Callable[[IPRoute], T]) -> T:
    try:
        with IPRoute() as netlink:
            return work(netlink)
    except OSError as error:
        raise TunnelError(f"cannot ask the kernel for interfaces (rtnetlink): {error.strerror or error}") from None


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Raise a TunnelError of one line instead of what pyroute2 raises."""
    try:
        yield
    except NetlinkError as error:
        if error.code == errno.EEXIST:
            raise _ExistsError(f"{what}: there is one already, which is not replaced") from None
        if error.code == errno.ENODEV:
            raise InterfaceGoneError(f"{what}: the tunnel's interface was deleted") from None
        reasons = {
            errno.EPERM: "run as root or with CAP_NET_ADMIN",
            errno.EACCES: "IPv6 is disabled (sysctl net.ipv6.conf.all.disable_ipv6); enable it or leave IPv6 out",
            errno.EAFNOSUPPORT: "this kernel has no such protocol, or no policy routing",
            errno.EOPNOTSUPP: "this kernel has no such protocol, or no policy routing",
        }
        raise TunnelError(f"{what}: {reasons.get(error.code) or os.strerror(error.code)}") from None


def _to(network: Network) -> dict[str, Any]:
    """Return a rule's condition on the destination; every destination has none."""
    if network.prefixlen == 0:
        return {}
    return {"dst": str(network.network_address), "dst_len": network.prefixlen}


def _unmapped(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 socket has written as an IPv6 one (RFC 4291, section 2.5.5.2)."""
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
