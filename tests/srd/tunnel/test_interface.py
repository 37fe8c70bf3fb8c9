from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

import pytest

from netns.backends.relay.tap import inside
from srd.tunnel.errors import InterfaceGoneError, TunnelError
from srd.tunnel.interface import BANDS, InterfaceState, OwnAddress, TunnelInterface, TunnelRoute, _free_band
from srd.tunnel.tun import Tun
from tests.patience import PATIENCE_S, until
from tests.srd.tunnel.cable import ip, namespaces, open_in

pytestmark = pytest.mark.root

GATEWAY, PEER = "192.0.2.1", "198.51.100.7"
GATEWAY6, PEER6 = "2001:db8::1", "2001:db8:7::7"


class Host:
    """A namespace with an interface srd0 to configure, and eth0 with default routes, as a host on the Internet."""

    def __init__(self, name: str) -> None:
        self.netns = name
        self.ip("link", "add", "eth0", "type", "veth", "peer", "name", "wire")
        for link in ("wire", "eth0"):
            self.ip("link", "set", link, "addrgenmode", "none", "up")
        self.ip("address", "add", "192.0.2.2/24", "dev", "eth0")
        self.ip("address", "add", "2001:db8::2/64", "dev", "eth0", "nodad")
        self.ip("-6", "route", "add", "default", "via", GATEWAY6)
        self.route_over(GATEWAY)
        self.tun = open_in(name)
        self.interface = self.another(self.tun)

    def close(self) -> None:
        with inside(self.netns):
            self.interface.close()
        self.tun.close()

    def ip(self, *arguments: str) -> str:
        return ip(*arguments, netns=self.netns)

    def route_over(self, gateway: str) -> None:
        self.ip("route", "replace", "default", "via", gateway)

    def another(self, tun: Tun) -> TunnelInterface:
        with inside(self.netns):
            return TunnelInterface(tun.index)

    def configure(
        self,
        *addresses: str,
        routes: list[str] | None = None,
        outside: tuple[str, ...] = (),
        mtu_bytes: int = 1500,
        interface: TunnelInterface | None = None,
        metric: int | None = None,
    ) -> None:
        with inside(self.netns):
            (interface or self.interface).configure(
                mtu_bytes=mtu_bytes,
                addresses=[own(address) for address in addresses],
                routes=[TunnelRoute(ip_network(route), metric) for route in routes or []],
                outside=[ip_address(address) for address in outside],
            )

    def link(self, name: str = "srd0") -> Mapping[str, Any]:
        (found,) = json.loads(self.ip("-j", "address", "show", "dev", name))
        link: Mapping[str, Any] = found
        return link

    def addresses(self, name: str = "srd0") -> set[str]:
        return {f"{address['local']}/{address['prefixlen']}" for address in self.link(name)["addr_info"]}

    def device(self, destination: str) -> str:
        """Return the interface through which the kernel sends to `destination`."""
        (route,) = json.loads(self.ip("-j", "route", "get", destination))
        device: str = route["dev"]
        return device

    def disable_ipv6(self, name: str) -> None:
        setting = f"net.ipv6.conf.{name}.disable_ipv6=1"
        subprocess.run(["ip", "netns", "exec", self.netns, "sysctl", "-qw", setting], check=True)

    def rules(self) -> list[str]:
        lines = self.ip("rule").splitlines() + self.ip("-6", "rule").splitlines()
        return [line for line in lines if "proto 83" in line]


def own(address: str) -> OwnAddress:
    return ip_interface(address)


@pytest.fixture
def host() -> Iterator[Host]:
    with namespaces(1) as (name,):
        made = Host(name)
        try:
            yield made
        finally:
            made.close()


# -- addresses and routes ---------------------------------------------------------------------------------------


def test_configure(host: Host) -> None:
    host.configure("10.88.0.1/24", "fd88::1/64", routes=["10.99.0.0/16", "fd99::/48"], mtu_bytes=8900)
    link = host.link()
    assert (link["mtu"], link["txqlen"]) == (8900, 1000)
    assert {"UP", "NOARP", "POINTOPOINT"} <= set(link["flags"])
    assert "MULTICAST" not in link["flags"]
    assert host.addresses() == {"10.88.0.1/24", "fd88::1/64"}, "no link-local address"
    assert "tentative" not in host.ip("address", "show", "dev", "srd0")
    assert [host.device(address) for address in ("10.88.0.2", "10.99.1.1", "fd88::2", "fd99::2")] == ["srd0"] * 4
    assert [host.device(address) for address in ("10.98.1.1", PEER, PEER6)] == ["eth0"] * 3
    assert host.rules() == []
    assert host.interface.state() == InterfaceState("srd0", is_up=True, mtu_bytes=8900)


def test_configure__metric(host: Host) -> None:
    host.ip("route", "add", "10.99.0.0/16", "via", GATEWAY)
    host.configure("10.88.0.1/24", routes=["10.99.0.0/16"], metric=77)
    assert "metric 77" in host.ip("route", "show", "10.99.0.0/16", "dev", "srd0")
    assert host.device("10.99.1.1") == "eth0"


def test_configure__an_idle_interface_sends_nothing(host: Host) -> None:
    host.configure("10.88.0.1/24", "fd88::1/64")
    host.ip("link", "set", "srd0", "down")
    host.ip("link", "set", "srd0", "up")
    assert host.tun.read_into(memoryview(bytearray(2000))) is None


def test_close__leaves_nothing(host: Host) -> None:
    before = snapshot(host, without="srd0")
    host.configure("10.88.0.1/24", "fd88::1/64", routes=["0.0.0.0/0", "::/0"], outside=(PEER, PEER6))
    assert host.rules()
    host.close()
    assert snapshot(host, without="srd0") == before


def snapshot(host: Host, *, without: str = "nothing") -> list[str]:
    commands = (
        ("rule",),
        ("-6", "rule"),
        ("route", "show", "table", "all"),
        ("-6", "route", "show", "table", "all"),
        ("-o", "address"),
    )
    lines = [line for command in commands for line in host.ip(*command).splitlines()]
    return [line for line in lines if without not in line and "cache" not in line]


def test_set_mtu(host: Host) -> None:
    host.configure("10.88.0.1/24", "fd88::1/64")
    with inside(host.netns):
        host.interface.set_mtu(1400)
        assert host.interface.state().mtu_bytes == 1400
        with pytest.raises(TunnelError, match=r"^MTU 1279: IPv6 needs 1280; leave IPv6 addresses out$"):
            host.interface.set_mtu(1279)
        with pytest.raises(TunnelError, match=r"^MTU 70000: "):
            host.interface.set_mtu(70_000)


@pytest.mark.parametrize(
    ("addresses", "routes", "problem"),
    [
        (["10.88.0.1/24", "10.88.0.1/24"], [], "address 10.88.0.1/24: there is one already, which is not replaced"),
        (["10.88.0.1/24"], ["10.77.0.0/16"], "route to 10.77.0.0/16: there is one already, which is not replaced"),
        (["fd88::1/64"], ["fd77::/32"], "route to fd77::/32: there is one already, which is not replaced"),
        (["10.88.0.1/24"], ["0.0.0.0/0"], "route to 0.0.0.0/0: there is one already, which is not replaced"),
        (["198.51.100.1/24"], [], f"address 198.51.100.1/24: its network contains the other end's address {PEER}"),
        (["192.0.2.77/24"], [], "address 192.0.2.77/24: eth0 is in its network already; choose another network"),
        (["2001:db8::77/64"], [], "address 2001:db8::77/64: eth0 is in its network already; choose another network"),
    ],
)
def test_configure__what_is_taken_is_not_replaced(
    host: Host, addresses: list[str], routes: list[str], problem: str
) -> None:
    host.ip("route", "add", "10.77.0.0/16", "via", GATEWAY)
    host.ip("route", "add", "fd77::/32", "via", GATEWAY6)
    before = snapshot(host, without="srd0")
    with pytest.raises(TunnelError) as caught:
        host.configure(*addresses, routes=routes, outside=() if "0.0.0.0/0" in routes else (PEER,))
    assert str(caught.value) == problem
    assert snapshot(host, without="srd0") == before


def test_configure__without_ipv6(host: Host) -> None:
    host.disable_ipv6("all")
    with pytest.raises(TunnelError, match=r"^address fd88::1/64: IPv6 is disabled \(sysctl .*\); enable it or leave"):
        host.configure("10.88.0.1/24", "fd88::1/64")


def test_configure__bad_flow(host: Host) -> None:
    with pytest.raises(TunnelError, match=r"^MTU 1000: IPv6 needs 1280; leave IPv6 addresses out$"):
        host.configure("fd88::1/64", mtu_bytes=1000)
    with pytest.raises(TunnelError, match=r"^MTU 20: "):
        host.configure("10.88.0.1/24", mtu_bytes=20)
    host.ip("link", "delete", "srd0")
    with pytest.raises(InterfaceGoneError, match=r"^MTU 1500: the tunnel's interface was deleted$"):
        host.configure("10.88.0.1/24")
    with pytest.raises(InterfaceGoneError, match=r"^the tunnel's interface was deleted$"):
        host.interface.state()


# -- the tunnel's own packets -----------------------------------------------------------------------------------


def test_configure__default_routes_do_not_capture_the_other_end(host: Host) -> None:
    routes = ["0.0.0.0/0", "::/0", "198.51.0.0/16"]
    host.configure("10.88.0.1/24", "fd88::1/64", routes=routes, outside=(PEER, f"::ffff:{PEER}", PEER6))
    assert [host.device(address) for address in (PEER, PEER6)] == ["eth0", "eth0"]
    everything = ("198.51.100.8", "203.0.113.9", "2001:db8:7::8", "10.88.0.2", "fd88::2")
    assert [host.device(address) for address in everything] == ["srd0"] * 5
    assert [host.device(address) for address in ("192.0.2.77", "2001:db8::77")] == ["eth0"] * 2, "more specific"


def test_configure__the_other_end_is_routed_as_the_host_routes_at_that_time(host: Host) -> None:
    host.configure("10.88.0.1/24", routes=["0.0.0.0/0"], outside=(PEER,))
    host.route_over("192.0.2.9")
    assert "via 192.0.2.9 dev eth0" in host.ip("route", "get", PEER)
    host.ip("link", "set", "eth0", "down")
    with pytest.raises(subprocess.CalledProcessError):
        host.ip("route", "get", PEER)
    assert host.device("203.0.113.9") == "srd0"
    host.ip("link", "set", "eth0", "up")
    host.route_over(GATEWAY)
    assert f"via {GATEWAY} dev eth0" in host.ip("route", "get", PEER)


def test_configure__two_tunnels_with_default_routes(host: Host) -> None:
    """The second has the priorities behind the first's, and none of its rules are taken for left ones."""
    other_peer = "203.0.113.3"
    host.configure("10.88.0.1/24", routes=["0.0.0.0/0"], outside=(PEER,))
    with open_in(host.netns) as tun:
        second = host.another(tun)
        host.configure("10.89.0.1/24", routes=["203.0.0.0/16"], outside=(other_peer,), interface=second)
        assert [host.device(address) for address in (PEER, "203.0.1.1")] == ["eth0", "srd0"]
        assert len(host.rules()) == 8
        with inside(host.netns):
            second.close()
        assert len(host.rules()) == 4
    assert host.device(PEER) == "eth0"


def test_free_band() -> None:
    assert _free_band(set(), first=5) == 5
    assert _free_band({5, 6}, first=5 + BANDS) == 7
    assert _free_band({BANDS - 1}, first=BANDS - 1) == 0
    with pytest.raises(TunnelError, match=r"^180 tunnels of this host have routes that contain the other end's "):
        _free_band(set(range(BANDS)), first=7)


def test_configure__too_many_routes_with_the_other_ends_address(host: Host) -> None:
    routes = [f"{PEER}/{length}" for length in range(1, 33)]
    with pytest.raises(TunnelError, match=r"^32 routes contain the other end's address; use 31 at most$"):
        host.configure(routes=[str(ip_network(route, strict=False)) for route in routes], outside=(PEER,))


HOLD = f"""
import time
from ipaddress import ip_address, ip_interface, ip_network
from srd.tunnel.interface import TunnelInterface, TunnelRoute
from srd.tunnel.tun import Tun
tun = Tun.open("held")
interface = TunnelInterface(tun.index)
routes = [TunnelRoute(ip_network("0.0.0.0/0")), TunnelRoute(ip_network("::/0"))]
outside = [ip_address("{PEER}"), ip_address("{PEER6}")]
interface.configure(mtu_bytes=1500, addresses=[ip_interface("10.77.0.1/24")], routes=routes, outside=outside)
print("configured", flush=True)
time.sleep(600)
"""


def test_configure__deletes_what_a_killed_process_left(host: Host) -> None:
    before = snapshot(host)
    argv = ["ip", "netns", "exec", host.netns, sys.executable, "-c", HOLD]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "configured\n"
        assert host.device("203.0.113.9") == "held"
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    left = host.rules()
    assert len(left) == 8
    assert [host.device(address) for address in (PEER, "203.0.113.9", PEER6)] == ["eth0"] * 3, "they have no effect"
    host.ip("rule", "add", "to", "203.0.113.3", "lookup", "main", "priority", "25000", "protocol", "static")
    host.configure()
    assert host.rules() == []
    host.ip("rule", "delete", "to", "203.0.113.3", "priority", "25000")
    host.ip("link", "set", "srd0", "down")
    assert snapshot(host) == before


# -- watching ---------------------------------------------------------------------------------------------------


class Watch:
    """The states that were reported, and how the watch ended."""

    def __init__(self) -> None:
        self.states: list[InterfaceState] = []
        self._changed = asyncio.Event()

    def report(self, state: InterfaceState) -> None:
        self.states.append(state)
        self._changed.set()

    async def until(self, wanted: Callable[[InterfaceState], bool]) -> InterfaceState:
        async with asyncio.timeout(PATIENCE_S):
            while not self.states or not wanted(self.states[-1]):
                self._changed.clear()
                await self._changed.wait()
        return self.states[-1]


@asynccontextmanager
async def watching(host: Host) -> AsyncIterator[tuple[Watch, asyncio.Task[None]]]:
    watch = Watch()
    with inside(host.netns):  # also for the threads that the watch starts
        task = asyncio.create_task(host.interface.watch(watch.report))
        try:
            await watch.until(lambda _: True)
            yield watch, task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, InterfaceGoneError):
                await task


async def test_watch__reports_each_change(host: Host) -> None:
    host.configure("10.88.0.1/24", "fd88::1/64")
    async with watching(host) as (watch, _):
        assert watch.states == [InterfaceState("srd0", is_up=True, mtu_bytes=1500)]
        host.ip("link", "set", "srd0", "mtu", "1400")
        await watch.until(lambda state: state.mtu_bytes == 1400)
        host.ip("link", "set", "srd0", "down")
        await watch.until(lambda state: not state.is_up)
        host.ip("link", "set", "srd0", "name", "renamed")
        await watch.until(lambda state: state.name == "renamed")
        host.ip("link", "set", "renamed", "up")
        state = await watch.until(lambda state: state.is_up)
        assert state == InterfaceState("renamed", is_up=True, mtu_bytes=1400)


async def test_watch__puts_back_what_a_down_took(host: Host) -> None:
    routes = ["10.99.0.0/16", "fd99::/48", "0.0.0.0/0", "::/0"]
    host.configure("10.88.0.1/24", "fd88::1/64", routes=routes, outside=(PEER, PEER6))
    before = snapshot(host)
    async with watching(host) as (watch, _):
        host.ip("link", "set", "srd0", "down")
        await watch.until(lambda state: not state.is_up)
        assert "fd88::1/64" not in host.addresses()
        host.ip("link", "set", "srd0", "up")
        state = await watch.until(lambda state: state.is_up)
        assert state.missing == ()
        assert sorted(snapshot(host)) == sorted(before)


async def test_watch__puts_back_deleted_rules(host: Host) -> None:
    """systemd-networkd deletes foreign rules when it starts."""
    host.configure("10.88.0.1/24", routes=["0.0.0.0/0", "::/0"], outside=(PEER, PEER6))
    before = sorted(host.rules())
    async with watching(host):
        for family in ("-4", "-6"):
            for line in host.ip(family, "rule").splitlines():
                if "proto 83" in line:
                    host.ip(family, "rule", "delete", "priority", line.split(":")[0])
        assert host.rules() == []
        await until(lambda: sorted(host.rules()) == before)
        assert [host.device(address) for address in (PEER, PEER6, "203.0.113.9")] == ["eth0", "eth0", "srd0"]


async def test_watch__puts_back_what_a_short_down_took(host: Host) -> None:
    """The interface is up again before the watch has looked: there is no change to report."""
    host.configure("10.88.0.1/24", "fd88::1/64", routes=["10.99.0.0/16", "fd99::/48"])
    before = sorted(snapshot(host))
    async with watching(host):
        host.ip("link", "set", "srd0", "down")
        host.ip("link", "set", "srd0", "up")
        assert sorted(snapshot(host)) != before
        await until(lambda: sorted(snapshot(host)) == before)


async def test_watch__puts_back_what_a_small_mtu_took(host: Host) -> None:
    host.configure("10.88.0.1/24", "fd88::1/64", routes=["fd99::/48"])
    async with watching(host) as (watch, _):
        host.ip("link", "set", "srd0", "mtu", "1000")
        await watch.until(lambda state: state.mtu_bytes == 1000)
        assert host.addresses() == {"10.88.0.1/24"}
        host.ip("link", "set", "srd0", "mtu", "1300")
        state = await watch.until(lambda state: state.mtu_bytes == 1300)
        assert state.missing == ()
        assert [host.device(address) for address in ("fd88::2", "fd99::2")] == ["srd0"] * 2


async def test_watch__says_what_cannot_be_put_back(host: Host) -> None:
    host.configure("10.88.0.1/24", "fd88::1/64", routes=["10.99.0.0/16"])
    async with watching(host) as (watch, _):
        host.ip("link", "set", "srd0", "down")
        await watch.until(lambda state: not state.is_up)
        host.disable_ipv6("srd0")
        host.ip("link", "set", "srd0", "up")
        state = await watch.until(lambda state: state.is_up)
        assert [line.split(":")[0] for line in state.missing] == ["address fd88"]
        assert host.device("10.99.1.1") == "srd0"


async def test_watch__ends_when_the_interface_is_deleted(host: Host) -> None:
    host.configure("10.88.0.1/24")
    async with watching(host) as (_, task):
        host.ip("link", "delete", "srd0")
        with pytest.raises(InterfaceGoneError, match=r"^the tunnel's interface was deleted$"):
            await asyncio.wait_for(task, PATIENCE_S)


async def test_watch__other_interfaces_do_not_matter(host: Host) -> None:
    host.configure("10.88.0.1/24")
    async with watching(host) as (watch, task):
        for number in range(200):
            host.ip("link", "set", "wire", "mtu", str(1500 + number % 2))
        host.ip("link", "set", "srd0", "mtu", "1400")
        await watch.until(lambda state: state.mtu_bytes == 1400)
        assert len(watch.states) == 2
        assert not task.done()
