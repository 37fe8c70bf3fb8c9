"""What no program and no peer should send, and places that fail: dropped and counted, or carried; nothing ends."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from scapy.layers.inet import fragment
from scapy.packet import Packet, Raw

from netns.backends.relay.tap import inside
from tests.patience import PATIENCE_S
from tests.programs import run_to_end
from tests.srd.tunnel.inner import EXTENSIONS, extended, ipv4, ipv6, udp
from tests.srd.tunnel.two_ends import UDP_PORT, Ends, ends, exchange, inner, joined, outer

pytestmark = pytest.mark.root

ETH_P_IP, ETH_P_IPV6 = 0x0800, 0x86DD
HERE, THERE = 1, 0


def from_program(made: Ends, packet: bytes) -> None:
    """Give the interface of the client a packet, as a program with a packet socket does."""
    protocol = ETH_P_IPV6 if packet[:1] and packet[0] >> 4 == 6 else ETH_P_IP
    with inside(made.netns[HERE]):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
        with sock:
            sock.sendto(packet, ("srd0", protocol))


def addressed(packet: Packet) -> Packet:
    """The same from the client to the listener."""
    version = packet.version
    packet.src, packet.dst = inner(HERE, version=version), inner(THERE, version=version)
    return packet


def fragments(packet: Packet, *, fragsize: int) -> list[Packet]:
    made: list[Packet] = fragment(packet, fragsize=fragsize)  # type: ignore[no-untyped-call]  # scapy's
    return made


def test_packets_that_are_none__are_dropped_and_counted(tmp_path: Path) -> None:
    good = bytes(addressed(ipv4() / udp(dport=UDP_PORT) / Raw(b"good")))
    bad_checksum = good[:10] + bytes([good[10] ^ 1]) + good[11:]
    dropped = {
        "truncated": [b"E", good[:-1], good[:19]],
        "bad_version": [b"\x00" * 40, b"\xf5" * 100],
        "bad_checksum": [bad_checksum],
        "no_peer": [bytes(ipv4(src=inner(HERE), dst="192.0.2.1") / udp())],
    }
    with joined(tmp_path, "--plain") as made:
        before = made.stats(HERE)["dropped"]
        for packet in (each for packets in dropped.values() for each in packets):
            from_program(made, packet)
        with made.udp(THERE) as sock:
            from_program(made, good)
            assert sock.recv(100) == b"good"
        counted = made.stats(HERE)["dropped"]
        found = {reason: counted.get(reason, 0) - before.get(reason, 0) for reason in dropped}
        assert found == {reason: len(packets) for reason, packets in dropped.items()}


def test_unusual_packets__are_carried(tmp_path: Path) -> None:
    payload = os.urandom(3000)
    with joined(tmp_path, "--plain", "--mtu", "65535") as made:
        with made.udp(THERE) as sock:
            for each in fragments(addressed(ipv4(id=7) / udp(dport=UDP_PORT) / Raw(payload)), fragsize=600):
                from_program(made, bytes(each))
            assert sock.recv(1 << 16) == payload, "reassembled from fragments"
            longest = os.urandom(65_507)
            from_program(made, bytes(addressed(ipv4() / udp(dport=UDP_PORT) / Raw(longest))))
            assert sock.recv(1 << 16) == longest, "in a packet of 65,535 bytes"
            broken = addressed(ipv4() / udp(dport=UDP_PORT, chksum=1) / Raw(b"wrong checksum"))
            from_program(made, bytes(broken))
            from_program(made, bytes(addressed(ipv4() / udp(dport=UDP_PORT) / Raw(b"right checksum"))))
            assert sock.recv(100) == b"right checksum", "a wrong checksum of UDP is for the other end's kernel"
        with made.udp(THERE, version=6) as sock:
            for names in (["hop-by-hop"], ["destination"], ["atomic fragment"], ["hop-by-hop", "destination"]):
                assert set(names) <= EXTENSIONS.keys()
                payload = "+".join(names).encode()
                from_program(made, bytes(addressed(extended(ipv6(), names, udp(dport=UDP_PORT) / Raw(payload)))))
                assert sock.recv(100) == payload
        assert set(made.stats(HERE)["dropped"]) <= {"no_peer"}
        assert made.stats(THERE)["dropped"] == {}


@pytest.mark.long
def test_any_bytes_from_programs__end_nothing(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with joined(tmp_path, "--plain", "--mtu", "65535") as made:
        for _ in range(500):
            start = rng.choice([b"", b"\x45\x00", b"\x60\x00"])
            from_program(made, start + rng.randbytes(rng.choice([1, 18, 40, 80, 1400, 9000])))
        exchange(made, megabytes=1)


def test_a_hostile_client__ends_its_own_peer_at_most(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with ends(tmp_path, "--plain", clients=2) as made:
        listener = made.listen()
        made.connect()
        attacker = ["ip", "netns", "exec", made.netns[2], sys.executable, "-m", "tests.srd.tunnel.hostile_client"]
        done = run_to_end([*attacker, outer(2, listener=True), str(seed)], within_s=2 * PATIENCE_S)
        assert done.returncode == 0, done.stderr
        exchange(made, megabytes=1)
        assert listener.popen.poll() is None
        assert made.stats(THERE)["dropped"].keys() & {"malformed", "truncated", "bad_version", "forged_source"}


def test_a_full_disk_of_logs__ends_nothing(tmp_path: Path) -> None:
    with ends(tmp_path, "--plain") as made:
        made.listen()
        shell = 'exec "$@" 2>/dev/full'
        argv = made.argv(1, "connect", outer(1, listener=True) + ":19880", "--address", f"{inner(1)}/24", "--plain")
        with subprocess.Popen(["sh", "-c", shell, "sh", *argv]) as client:
            made.await_line(0, "joined")
            exchange(made, megabytes=1)
            client.terminate()
            assert client.wait(PATIENCE_S) == 0
