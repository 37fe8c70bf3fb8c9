"""A network that changes under an open peer: another address of either host, a smaller MTU; real namespaces."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.srd.cli.processes import Process, command
from tests.srd.loopback import content
from tests.srd.tunnel.cable import ip, namespaces, set_up, veth

pytestmark = pytest.mark.root

FILE_BYTES = 6 << 20
LIMIT = "16mbit"
API = """
import asyncio, sys, srd
async def listen():
    async with srd.Endpoint.listen("0.0.0.0", 19871) as endpoint:
        print("listening", flush=True)
        peer = await endpoint.accept()
        for number in range(8):
            await peer.send(b"%d" % number)
            print("sent", number, flush=True)
            await asyncio.sleep(0.25)
async def connect(host):
    async with srd.connect(host, 19871) as peer:
        async for message in peer:
            print(message.data().decode(), flush=True)
asyncio.run(listen() if len(sys.argv) == 1 else connect(sys.argv[1]))
"""


def inside(host: str, argv: list[str]) -> list[str]:
    return ["ip", "netns", "exec", host, *argv]


class Hosts:
    """Two namespaces on one link: `here` at 10.11.0.1, `there` at 10.11.0.2. Offloads are off, so packets are seen."""

    def __init__(self, here: str, there: str) -> None:
        self.here, self.there = here, there

    def change_address(self, *, of_sender: bool) -> None:
        """Give a host another address, as another lease does."""
        host, number = (self.here, 1) if of_sender else (self.there, 2)
        ip("address", "del", f"10.11.0.{number}/24", "dev", "eth0", netns=host)
        ip("address", "add", f"10.11.0.1{number}/24", "dev", "eth0", netns=host)

    def shrink_mtu(self) -> None:
        """Drop packets of more than 1300 bytes on the way to `there`; nobody says so."""
        ip("link", "set", "eth0", "mtu", "1300", netns=self.there)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    offloads = ("gso", "off", "tso", "off", "tx-udp-segmentation", "off", "gro", "off")
    with namespaces(2) as names:
        veth(*names)
        for number, name in enumerate(names, 1):
            set_up(name, "eth0", f"10.11.0.{number}/24")
            subprocess.run(inside(name, ["ethtool", "-K", "eth0", *offloads]), capture_output=True, check=False)
        yield Hosts(*names)


def transfer(hosts: Hosts, tmp_path: Path, change: str) -> list[str]:
    """Send a file; change the network when a part of it has arrived. Return what the sender has to say about it."""
    file, output = tmp_path / "file.bin", tmp_path / "output"
    file.write_bytes(content(FILE_BYTES, seed=7))
    output.mkdir()
    receiving = command("recv", "--output", str(output), "--json-lines", "--once")
    sending = command("send", "--limit", LIMIT, str(file), "10.11.0.2:19870", "--json-lines")
    with Process(inside(hosts.there, receiving)) as receiver:
        receiver.event("listening")
        with Process(inside(hosts.here, sending)) as sender:
            while receiver.event("progress")["bytes"] < FILE_BYTES // 6:
                pass
            if change == "mtu":
                hosts.shrink_mtu()
            else:
                hosts.change_address(of_sender=change == "sender")
            sender.event("sent")
            assert sender.wait() == 0
            said = sender.stderr.all()
        assert receiver.wait() == 0
    assert (output / file.name).read_bytes() == file.read_bytes()
    return [line for line in said if "trying again" in line or "another attempt" in line]


@pytest.mark.parametrize("host", ["sender", "receiver"])
def test_transfer__goes_on_when_a_host_gets_another_address(hosts: Hosts, tmp_path: Path, host: str) -> None:
    assert transfer(hosts, tmp_path, host) == [], "the peer went on, without another handshake"


def test_transfer__goes_on_with_shorter_packets_when_the_mtu_shrinks(hosts: Hosts, tmp_path: Path) -> None:
    (said,) = transfer(hosts, tmp_path, "mtu")
    assert "no path carries packets of 1472 bytes any more; trying again" in said


@pytest.mark.parametrize("host", ["listening", "connecting"])
def test_messages__arrive_at_the_new_address(hosts: Hosts, host: str) -> None:
    """Of the end that sends now and then, and of the one that only receives."""
    with Process(inside(hosts.there, [sys.executable, "-u", "-c", API])) as listener:
        assert listener.stdout.next() == "listening"
        with Process(inside(hosts.here, [sys.executable, "-u", "-c", API, "10.11.0.2"])) as client:
            assert client.stdout.next() == "0"
            hosts.change_address(of_sender=host == "connecting")
            assert [client.stdout.next() for _ in range(7)] == [str(number) for number in range(1, 8)]
            assert listener.wait(within_s=PATIENCE_S) == 0
            assert client.wait(within_s=PATIENCE_S) == 0
        assert listener.stdout.all()[-1] == "sent 7"
