"""Hosts of different MTU send files to one receiver at a time, beside an attacker: every file arrives whole."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from netns.backends.kernel.netlink import apply, run_tool
from netns.lab.operations import SyncCarrier
from srd.proto.wire.data import VERSION
from tests.programs import run_to_end
from tests.srd.cli.processes import Process, command
from tests.srd.loopback import content
from tests.srd.tunnel.cable import ip, namespaces, set_up, veth

pytestmark = pytest.mark.root

MTUS = (9000, 1500, 1000, 620)
FILES = 3
TOO_BIG = """
import select, socket, sys
from srd.io.socket import icmp_errors, open_socket
family, host = socket.AddressFamily(int(sys.argv[1])), sys.argv[2]
with open_socket(("::" if family == socket.AF_INET6 else "0.0.0.0", 0), family=family) as sock:
    sock.sendto(bytes(1400), (host, 9))
    assert select.select([sock], [], [], 60)[0]
    print(*icmp_errors(sock).too_big.items())
"""
ATTACKER = """
import random, socket, struct, sys, time
rng = random.Random(5)
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print("sending", flush=True)
while True:
    size = rng.choice([56, 100, 592, 1028, 1100, 1472, 4096, 8972])
    count = min(64, 65000 // size, rng.randrange(2, 64))
    kinds = [rng.choice([1, 1, 1, rng.randrange(16)]) for _ in range(count)]
    train = b"".join(bytes([int(sys.argv[3]), kind]) + rng.randbytes(size - 2) for kind in kinds)
    sock.sendmsg([train], [(socket.SOL_UDP, 103, struct.pack("=H", size))], 0, (sys.argv[1], int(sys.argv[2])))
    time.sleep(0.005)
"""
"""Trains of up to 64 random packets, most of them data, 200 a second: up to 12,800 packets a second."""


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Namespaces on one bridge: a receiver with 9,000 bytes of MTU (10.9.0.1), a host for each MTU, an attacker."""
    with namespaces(len(MTUS) + 3) as (switch, *names):
        ip("link", "add", "br0", "type", "bridge", netns=switch)
        for index, (name, mtu) in enumerate(zip(names, (9000, *MTUS, 9000), strict=True)):
            veth(switch, name, names=(f"p{index}", "eth0"), mtu=mtu)
            ip("link", "set", f"p{index}", "master", "br0", "up", netns=switch)
            set_up(name, "eth0", f"10.9.0.{index + 1}/24")
        ip("link", "set", "br0", "mtu", "9000", "up", netns=switch)
        yield names


@pytest.fixture
def routed() -> Iterator[list[str]]:
    """Two hosts on either side of a router; the link to the second one (10.9.2.2) has an MTU of 800, the first 1500.

    The same by IPv6, fd09:1::/64 and fd09:2::/64, on links of their own: the second has an MTU of 1300.
    """
    with namespaces(3) as (router, *names):
        for setting in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
            run_tool("ip", "netns", "exec", router, "sysctl", "-qw", f"{setting}=1")
        for number, (name, mtu, mtu_of_ipv6) in enumerate(zip(names, (1500, 800), (1500, 1300), strict=True), 1):
            for device, network, length, size in (
                ("eth0", f"10.9.{number}.", 24, mtu),
                ("eth6", f"fd09:{number}::", 64, mtu_of_ipv6),
            ):
                there = f"to{number}-{device}"
                veth(router, name, names=(there, device), mtu=size)
                set_up(router, there, f"{network}1/{length}")
                set_up(name, device, f"{network}2/{length}")
                apply([SyncCarrier(router, there), SyncCarrier(name, device)])
                ip("route", "add", "default", "via", f"{network}1", netns=name)
        yield names


def inside(host: str, argv: list[str]) -> list[str]:
    return ["ip", "netns", "exec", host, *argv]


def test_senders_of_four_mtus_beside_an_attacker(hosts: list[str], tmp_path: Path) -> None:
    receiver, *senders, attacker = hosts
    output = tmp_path / "output"
    output.mkdir()
    with ExitStack() as running:
        there = running.enter_context(
            Process(inside(receiver, command("recv", "-B", "10.9.0.1", "-o", str(output), "--json-lines")))
        )
        there.event("listening")
        flood = running.enter_context(
            subprocess.Popen(
                inside(attacker, [sys.executable, "-c", ATTACKER, "10.9.0.1", "19870", str(VERSION)]),
                stdout=subprocess.PIPE,
            )
        )
        running.callback(flood.kill)
        assert flood.stdout is not None
        assert flood.stdout.readline() == b"sending\n"
        sending = []
        for index, host in enumerate(senders):
            files = [tmp_path / f"{MTUS[index]}-{number}.bin" for number in range(FILES)]
            for number, file in enumerate(files):
                file.write_bytes(content((3 << 20) + number, seed=index * FILES + number))
            argv = command("send", *map(str, files), "10.9.0.1:19870", "--json-lines")
            sending.append(running.enter_context(Process(inside(host, argv))))
        for process in sending:
            for _ in range(FILES):
                assert process.event("sent")["verified"]
            assert process.wait() == 0
        assert flood.poll() is None, "the attacker went: this test shows nothing"
        assert len({path.name for path in output.iterdir()}) == FILES * len(MTUS)
        assert all((output / path.name).read_bytes() == path.read_bytes() for path in tmp_path.glob("*.bin"))


@pytest.mark.parametrize(
    ("family", "host", "address", "size_bytes"),
    [
        (socket.AF_INET, "10.9.2.2", ("10.9.2.2", 9), 800 - 28),
        (socket.AF_INET6, "::ffff:10.9.2.2", ("::ffff:10.9.2.2", 9, 0, 0), 800 - 28),
        (socket.AF_INET6, "fd09:2::2", ("fd09:2::2", 9, 0, 0), 1300 - 48),
    ],
    ids=["IPv4", "IPv4 by an IPv6 socket", "IPv6"],
)
def test_icmp_errors__what_passes_is_reported_without_the_headers(
    routed: list[str], family: socket.AddressFamily, host: str, address: tuple[object, ...], size_bytes: int
) -> None:
    """An IPv6 route needs an MTU of 1280 at least, so that one has a narrower route of its own."""
    argv = inside(routed[0], [sys.executable, "-c", TOO_BIG, str(int(family)), host])
    done = run_to_end(argv, within_s=120)
    assert (done.stdout, done.stderr) == (f"{(address, size_bytes)}\n", "")


def test_a_route_with_a_smaller_mtu_than_any_that_is_tried(routed: list[str], tmp_path: Path) -> None:
    """The router says what passes (ICMP "fragmentation needed"), and the attempt that is under way takes it."""
    here, there = routed
    file, output = tmp_path / "file.bin", tmp_path / "output"
    file.write_bytes(content(1 << 20, seed=3))
    output.mkdir()
    with Process(
        inside(there, command("recv", "-B", "10.9.2.2", "-o", str(output), "--json-lines", "--once"))
    ) as receiver:
        receiver.event("listening")
        with Process(
            inside(here, command("send", str(file), "10.9.2.2:19870", "--json-lines", "--retry-for", "0"))
        ) as sender:
            sent = sender.event("sent")
            assert sender.wait() == 0
        assert receiver.wait() == 0
    assert sum(path["packets"] for path in sent["paths"]) > (1 << 20) / 772
    assert (output / file.name).read_bytes() == file.read_bytes()
