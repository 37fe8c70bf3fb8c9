from __future__ import annotations

import os
import socket
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from netns.backends.relay.tap import Tap, attach, identity_of, inside
from netns.errors import BackendError

if TYPE_CHECKING:
    from tests.netns.backends.conftest import TapPair

pytestmark = pytest.mark.root

UDP_SEGMENT = 103
ETHERNET_BYTES, IP_BYTES, UDP_BYTES = 14, 20, 8


def own_namespace() -> str:
    return str(Path("/proc/thread-self/ns/net").readlink())


def frames_of(tap: Tap) -> list[bytes]:
    frames = []
    try:
        while True:
            frames.append(os.read(tap.fd, 65536))
    except BlockingIOError:
        return frames


def ones_complement_sum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def test_attach__a_super_packet_arrives_segmented_and_checksummed(pair: TapPair) -> None:
    tap = attach(netns=pair.a, ifname="tap0")
    assert tap.frame_bytes == 9000 + ETHERNET_BYTES + 4, "the MTU, and a VLAN tag beside the header"
    with pair.udp("a") as sender:
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1200)
        payload = bytes(range(200)) * 60
        sender.sendto(payload, (pair.address_b, 7))
    frames = frames_of(tap)
    tap.close()
    headers_bytes = ETHERNET_BYTES + IP_BYTES + UDP_BYTES
    assert [len(frame) for frame in frames] == [headers_bytes + 1200] * 10
    assert b"".join(frame[headers_bytes:] for frame in frames) == payload
    for frame in frames:
        packet = frame[ETHERNET_BYTES:]
        pseudo_header = packet[12:20] + struct.pack("!HH", socket.IPPROTO_UDP, len(packet) - IP_BYTES)
        assert ones_complement_sum(pseudo_header + packet[IP_BYTES:]) == 0xFFFF, "a valid UDP checksum sums to -0"


def test_attach__bad_flow(pair: TapPair) -> None:
    before = own_namespace()
    with pytest.raises(BackendError, match=f"there is no network namespace {pair.a}x"):
        attach(netns=f"{pair.a}x", ifname="tap0")
    with pytest.raises(BackendError, match=f"{pair.a}: there is no interface tap9"):
        attach(netns=pair.a, ifname="tap9")
    with pytest.raises(BackendError, match=f"{pair.a}: cannot attach to lo: it is not a TAP device"):
        attach(netns=pair.a, ifname="lo")
    tap = attach(netns=pair.a, ifname="tap0")
    with pytest.raises(BackendError, match="tap0: another process holds it"):
        attach(netns=pair.a, ifname="tap0")
    tap.close()
    assert own_namespace() == before


def test_dropped_unread__counts_queue_overflows(pair: TapPair) -> None:
    subprocess.run(["ip", "-n", pair.a, "link", "set", "tap0", "txqueuelen", "16"], check=True)
    tap = attach(netns=pair.a, ifname="tap0")
    before = tap.dropped_unread()
    with pair.udp("a") as sender:
        for number in range(50):
            sender.sendto(bytes([number]), (pair.address_b, 7))
    kept = len(frames_of(tap))
    assert kept < 50
    assert tap.dropped_unread() - before == 50 - kept
    tap.close()


def fail_inside(netns: str) -> None:
    before = own_namespace()
    with inside(netns):
        assert own_namespace() != before
        raise ZeroDivisionError


def test_inside__returns_to_the_namespace_after_an_error(pair: TapPair) -> None:
    before = own_namespace()
    with pytest.raises(ZeroDivisionError):
        fail_inside(pair.b)
    assert own_namespace() == before


def test_inside__bad_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a namespace")
    monkeypatch.setattr("netns.backends.relay.tap.NETNS_DIRECTORY", tmp_path)
    with pytest.raises(BackendError, match="cannot enter the network namespace file: "), inside("file"):
        pass


def test_identity_of__distinguishes_a_later_namespace_of_the_same_name(pair: TapPair) -> None:
    first = identity_of(pair.a)
    assert first is not None
    assert first == identity_of(pair.a)
    assert first != identity_of(pair.b)
    with Path(f"/run/netns/{pair.a}").open("rb"):  # an open descriptor keeps the first namespace, as an open TAP does
        subprocess.run(["ip", "netns", "delete", pair.a], check=True)
        assert identity_of(pair.a) is None
        subprocess.run(["ip", "netns", "add", pair.a], check=True)
        assert identity_of(pair.a) not in {None, first}
