"""Hosts of different MTU send files to one receiver at a time, beside an attacker: every file arrives whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from netns.backends.kernel.netlink import run_tool
from srd.proto.wire.data import VERSION
from tests.srd.cli.processes import Process, command
from tests.srd.loopback import content

pytestmark = pytest.mark.root

MTUS = (9000, 1500, 1000, 620)
FILES = 3
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
    prefix = f"mm{os.getpid()}"
    switch, names = f"{prefix}-sw", [f"{prefix}-h{index}" for index in range(len(MTUS) + 2)]
    made: list[str] = []
    try:
        for name in (switch, *names):
            run_tool("ip", "netns", "add", name)
            made.append(name)
        run_tool("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        for index, (name, mtu) in enumerate(zip(names, (9000, *MTUS, 9000), strict=True)):
            ends = ("mtu", str(mtu), "type", "veth", "peer", "name", "eth0", "mtu", str(mtu), "netns", name)
            run_tool("ip", "-n", switch, "link", "add", f"p{index}", *ends)
            run_tool("ip", "-n", switch, "link", "set", f"p{index}", "master", "br0", "up")
            run_tool("ip", "-n", name, "address", "add", f"10.9.0.{index + 1}/24", "dev", "eth0")
            run_tool("ip", "-n", name, "link", "set", "eth0", "up")
        run_tool("ip", "-n", switch, "link", "set", "br0", "mtu", "9000", "up")
        yield names
    finally:
        for name in made:
            run_tool("ip", "netns", "del", name)


def inside(host: str, argv: list[str]) -> list[str]:
    return ["ip", "netns", "exec", host, *argv]


def test_senders_of_four_mtus_beside_an_attacker(hosts: list[str], tmp_path: Path) -> None:
    receiver, *senders, attacker = hosts
    output = tmp_path / "output"
    output.mkdir()
    with ExitStack() as running:
        there = running.enter_context(
            Process(inside(receiver, command("recv", "--listen", "10.9.0.1:7000", "--output", str(output), "--json")))
        )
        there.event("listening")
        flood = running.enter_context(
            subprocess.Popen(
                inside(attacker, [sys.executable, "-c", ATTACKER, "10.9.0.1", "7000", str(VERSION)]),
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
            argv = command("send", *map(str, files), "10.9.0.1:7000", "--json")
            sending.append(running.enter_context(Process(inside(host, argv))))
        for process in sending:
            for _ in range(FILES):
                assert process.event("sent")["sha256_ok"]
            assert process.wait() == 0
        assert flood.poll() is None, "the attacker went: this test shows nothing"
        assert len({path.name for path in output.iterdir()}) == FILES * len(MTUS)
        assert all((output / path.name).read_bytes() == path.read_bytes() for path in tmp_path.glob("*.bin"))
