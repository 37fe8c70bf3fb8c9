"""Execute operations: the only module that uses rtnetlink through pyroute2 and runs ip, tc and ethtool.

Rules:

- A namespace is entered by a thread of its own, which ends with the work. The caller's thread never leaves its
  namespace, whatever is raised; and pyroute2, which runs an event loop of its own, never interferes with the caller's.
  (`IPRoute(netns=...)` would fork a child for each namespace instead.)
- Consecutive operations of one namespace share one thread, one socket and one table of interface numbers, for speed.
- Shapes are set elsewhere (netns/backends/kernel/capabilities.py): pyroute2 supports only a part of netem, and tc no
  seed.
- Every failure is a BackendError of one line: the operation and the kernel's message.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeVar

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from netns.backends.kernel.capabilities import set_netem
from netns.backends.relay.tap import in_thread_of_own, inside
from netns.base.naming import named
from netns.errors import BackendError
from netns.lab.operations import (
    RESILIENT_BUCKETS,
    RESILIENT_IDLE_S,
    AddAddress,
    AddNeighbour,
    AddNexthop,
    AddNexthopGroup,
    AddRoute,
    AddRule,
    AddTap,
    AddVeth,
    Hop,
    InNamespace,
    SetCarrier,
    SetNetem,
    SetOffloads,
    SetQuiet,
    SetState,
    SetSysctl,
    SyncCarrier,
)
from netns.programs import output_of, tool

T = TypeVar("T")

NUD_PERMANENT: Final = 0x80  # linux/neighbour.h
IFF_NOARP, IFF_MULTICAST = 0x80, 0x1000  # linux/if.h
IFA_F_DADFAILED: Final = 0x08  # linux/if_addr.h
FR_ACT_TO_TABLE: Final = 1  # linux/fib_rules.h
RULE_PRIORITY: Final = 1000  # before the main table's 32766
TAKES_ADDRESSES_WITHIN_S: Final = 10.0
"""The kernel's work queue needs milliseconds, and waits for the lock of all network configuration first."""
_LOOK_S: Final = 0.001


def in_namespace(netns: str, work: Callable[[], T]) -> T:
    """Return `work()`, called in a thread of its own inside the named namespace; raises what it raises.

    Sockets that `work` opens stay in that namespace wherever they are used afterwards.
    """

    def inside_it() -> T:
        with inside(netns):
            return work()

    return in_thread_of_own(inside_it)


def apply(steps: Iterable[InNamespace]) -> list[str]:
    """Execute operations inside namespaces, in order. Return the optional ones that this kernel does not support."""
    skipped: list[str] = []
    for netns, group in groupby(steps, key=lambda step: step.netns):
        batch = tuple(group)
        skipped += in_namespace(netns, partial(_execute_inside, batch))
    return skipped


def add_namespace(netns: str) -> None:
    """Add a named namespace with loopback up; BackendError if the name exists."""
    run_tool("ip", "netns", "add", netns)
    apply([SetState(netns, "lo", "up")])


def delete_namespace(netns: str) -> None:
    """Unmount and remove the name; the namespace itself ends with its last process."""
    run_tool("ip", "netns", "delete", netns)


def sent_statistics(netns: str) -> Mapping[str, dict[str, int]]:
    """Return interface -> packets, bytes and dropped of what it has sent; with a netem those of that, and queued."""

    def read() -> dict[str, dict[str, int]]:
        with IPRoute() as netlink:
            links = {link["index"]: link for link in netlink.get_links()}
            sent = {number: _link_counters(link) for number, link in links.items()}
            netems = [qdisc for qdisc in netlink.get_qdiscs() if qdisc.get_attr("TCA_KIND") == "netem"]
        sent |= {qdisc["index"]: _qdisc_counters(qdisc) for qdisc in netems}
        return {link.get_attr("IFLA_IFNAME"): sent[number] for number, link in links.items()}

    return in_namespace(netns, read)


def run_tool(name: str, *arguments: str) -> str:
    """Return the output of a tool, ip or tc for instance, run in the caller's namespace; BackendError if it fails."""
    return output_of([tool(name), *arguments], called=f"{name} {' '.join(arguments)}")


class _Session:
    """A netlink socket in the namespace that the calling thread is in."""

    def __init__(self, netlink: IPRoute) -> None:
        self._netlink = netlink
        self._numbers: dict[str, int] = {}
        self.skipped: list[str] = []

    def execute(self, step: InNamespace) -> None:
        try:
            _HANDLERS[type(step)](self, step)
        except NetlinkError as error:
            raise BackendError(f"{step}: {os.strerror(error.code)}") from None
        except OSError as error:
            raise BackendError(f"{step}: {error.strerror or error}") from None

    def number(self, ifname: str) -> int:
        """Return the interface's number; interfaces are not renamed or replaced during a session."""
        if ifname not in self._numbers:
            for link in self._netlink.get_links():
                self._numbers[link.get_attr("IFLA_IFNAME")] = link["index"]
        if ifname not in self._numbers:
            raise BackendError(f"there is no interface {ifname}")
        return self._numbers[ifname]

    def set_sysctl(self, step: SetSysctl) -> None:
        try:
            Path("/proc/sys", *step.key.split(".")).write_text(str(step.value))
        except FileNotFoundError:
            if not step.optional:
                raise
            self.skipped.append(step.key)

    def add_veth(self, step: AddVeth) -> None:
        peer = {
            "ifname": step.peer_ifname,
            "address": step.peer_hardware,
            "mtu": step.mtu,
            "net_ns_fd": step.peer_netns,
        }
        self._netlink.link("add", kind="veth", ifname=step.ifname, address=step.hardware, mtu=step.mtu, peer=peer)

    def add_tap(self, step: AddTap) -> None:
        self._netlink.link("add", kind="tuntap", mode="tap", ifname=step.ifname)
        self._netlink.link(
            "set",
            index=self.number(step.ifname),
            address=step.hardware,
            mtu=step.mtu,
            txqlen=step.queue_packets,
        )

    def add_address(self, step: AddAddress) -> None:
        address, length = step.address.split("/")
        self._netlink.addr("replace", index=self.number(step.ifname), address=address, prefixlen=int(length))

    def set_state(self, step: SetState) -> None:
        self._netlink.link("set", index=self.number(step.ifname), state=step.state)

    def set_quiet(self, step: SetQuiet) -> None:
        index = self.number(step.ifname)
        self._netlink.link("set", index=index, flags=IFF_NOARP, change=IFF_NOARP | IFF_MULTICAST)

    def set_carrier(self, step: SetCarrier) -> None:
        run_tool("ip", "link", "set", "dev", step.ifname, "carrier", step.state)  # pyroute2 drops the attribute

    def sync_carrier(self, step: SyncCarrier) -> None:
        # net/core/rtnetlink.c, rtnl_getlink: linkwatch_sync_dev
        (link,) = self._netlink.link("get", index=self.number(step.ifname))
        if link.get_attr("IFLA_CARRIER"):
            _await_own_addresses(step.ifname)

    def add_neighbour(self, step: AddNeighbour) -> None:
        self._netlink.neigh(
            "replace",
            ifindex=self.number(step.ifname),
            dst=step.address,
            lladdr=step.hardware,
            state=NUD_PERMANENT,
        )

    def add_nexthop(self, step: AddNexthop) -> None:
        hop = ("via", step.hop.gateway, "dev", step.hop.ifname)
        run_tool("ip", "nexthop", "replace", "id", str(step.number), *hop)  # pyroute2 has no nexthop objects

    def add_nexthop_group(self, step: AddNexthopGroup) -> None:
        members = "/".join(str(member.number) for member in step.members)
        kind = ("type", "resilient", "buckets", str(RESILIENT_BUCKETS), "idle_timer", str(RESILIENT_IDLE_S))
        run_tool("ip", "nexthop", "replace", "id", str(step.number), "group", members, *kind)

    def add_route(self, step: AddRoute) -> None:
        if step.group is not None:
            table = () if step.table is None else ("table", str(step.table))
            run_tool("ip", "route", "replace", step.destination, *table, "nhid", str(step.group))
            return
        options: dict[str, Any] = {"family": _family(step.hops[0].gateway)}
        if step.source is not None:
            options["prefsrc"] = step.source
        if step.table is not None:
            options["table"] = step.table
        if len(step.hops) == 1:
            options |= self._hop(step.hops[0])
        else:
            options["multipath"] = [self._hop(hop) | {"hops": 0} for hop in step.hops]
        self._netlink.route("replace", dst=step.destination, **options)

    def _hop(self, hop: Hop) -> dict[str, Any]:
        return {"gateway": hop.gateway, "oif": self.number(hop.ifname)}

    def add_rule(self, step: AddRule) -> None:
        self._netlink.rule(
            "add",
            family=_family(step.source),
            src=step.source,
            table=step.table,
            action=FR_ACT_TO_TABLE,
            priority=RULE_PRIORITY,
        )

    def set_offloads(self, step: SetOffloads) -> None:
        run_tool("ethtool", "-K", step.ifname, *(argument for feature in step.features for argument in feature))

    def set_netem(self, step: SetNetem) -> None:
        with named(f"{step}: ", BackendError):
            set_netem(step.ifname, step.shape, seed=step.seed, before=step.before)


_HANDLERS: Final[dict[type, Callable[[_Session, Any], None]]] = {
    SetSysctl: _Session.set_sysctl,
    AddVeth: _Session.add_veth,
    AddTap: _Session.add_tap,
    AddAddress: _Session.add_address,
    SetState: _Session.set_state,
    SetQuiet: _Session.set_quiet,
    SetCarrier: _Session.set_carrier,
    SyncCarrier: _Session.sync_carrier,
    AddNeighbour: _Session.add_neighbour,
    AddNexthop: _Session.add_nexthop,
    AddNexthopGroup: _Session.add_nexthop_group,
    AddRoute: _Session.add_route,
    AddRule: _Session.add_rule,
    SetOffloads: _Session.set_offloads,
    SetNetem: _Session.set_netem,
}


def _execute_inside(steps: Iterable[InNamespace]) -> list[str]:
    with IPRoute() as netlink:
        session = _Session(netlink)
        for step in steps:
            session.execute(step)
        return session.skipped


def _await_own_addresses(ifname: str) -> None:
    """Wait until the kernel takes packets to the IPv6 addresses of an interface; BackendError if it does not.

    A work queue adds their routes (net/ipv6/addrconf.c, addrconf_dad_work), without duplicate address detection, too.
    """
    give_up_at = time.monotonic() + TAKES_ADDRESSES_WITHIN_S
    while missing := _ipv6_addresses(ifname) - _ipv6_destinations():
        if time.monotonic() > give_up_at:
            raise BackendError(f"{len(missing)} IPv6 addresses of {ifname} have no route")
        time.sleep(_LOOK_S)


def _ipv6_addresses(ifname: str) -> set[str]:
    """Return the addresses in hexadecimal digits: all columns of if_inet6 are, but for the interface's name."""
    lines = map(str.split, _ipv6_table("if_inet6"))
    return {
        address for address, _, _, _, flags, name in lines if name == ifname and not int(flags, 16) & IFA_F_DADFAILED
    }


def _ipv6_destinations() -> set[str]:
    """Return the single addresses that there are routes to: 80 are 128 bits."""
    return {line[:32] for line in _ipv6_table("ipv6_route") if line[33:35] == "80"}


def _ipv6_table(name: str) -> list[str]:
    try:
        return Path("/proc/thread-self/net", name).read_text().splitlines()
    except FileNotFoundError:  # a kernel without IPv6
        return []


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _link_counters(link: Any) -> dict[str, int]:
    stats = link.get_attr("IFLA_STATS64")
    return {key: stats[f"tx_{key}"] for key in ("packets", "bytes", "dropped")}


def _qdisc_counters(qdisc: Any) -> dict[str, int]:
    stats = qdisc.get_attr("TCA_STATS2")
    basic, queue = stats.get_attr("TCA_STATS_BASIC"), stats.get_attr("TCA_STATS_QUEUE")
    return {"packets": basic["packets"], "bytes": basic["bytes"], "dropped": queue["drops"], "queued": queue["qlen"]}
