from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from netns.backends.kernel.netlink import apply
from netns.backends.relay.tap import inside
from netns.lab.operations import SyncCarrier
from srd.tunnel import tun as module
from srd.tunnel.errors import InterfaceGoneError, TunnelError
from srd.tunnel.tun import (
    ALL_OFFLOAD,
    HEADER_BYTES,
    MAX_READ_BYTES,
    NO_OFFLOAD,
    TSO,
    USO,
    Offload,
    Tun,
    WriteDrop,
)
from tests.patience import PATIENCE_S
from tests.programs import run_to_end
from tests.srd.tunnel.cable import ADDRESSES, Connection, Pair, ip, namespaces, open_in, pair_of_tuns

pytestmark = pytest.mark.root

PORT = 9000
UDP_SEGMENT = 103
SOON_S = 2
"""After this, what did not come of a burst is sent again: nothing promises that UDP arrives."""
NEEDS_CHECKSUM = 1  # VIRTIO_NET_HDR_F_NEEDS_CSUM of linux/virtio_net.h
GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, GSO_ECN = 0, 1, 4, 5, 0x80
HEADER = bytes(HEADER_BYTES)
IPV4 = bytes([0x45, 0, 0, 20]) + bytes(16)

OFFLOADS = [
    ALL_OFFLOAD,
    ALL_OFFLOAD & ~USO,
    ALL_OFFLOAD & ~Offload.TSO_ECN,
    ALL_OFFLOAD & ~Offload.TSO4,
    ALL_OFFLOAD & ~Offload.TSO6,
    ALL_OFFLOAD & ~TSO & ~Offload.TSO_ECN,
    Offload.CHECKSUM,
    NO_OFFLOAD,
]


@pytest.fixture
def netns() -> Iterator[str]:
    with namespaces(1) as (name,):
        yield name


def send_over_tcp(pair: Pair, *, version: int, megabytes: int = 4) -> None:
    """Send random bytes both ways at once over one connection; compare every byte."""
    with Connection(*pair.netns, to=(ADDRESSES[version][1], PORT)) as connection:
        connection.exchange(megabytes)


# -- over an exec -------------------------------------------------------------------------------------------------


def test_interface__stays_with_the_descriptors_that_are_kept(netns: str) -> None:
    with open_in(netns, "kept0", queues=2) as before:
        ip("address", "add", "10.9.0.1/24", "dev", "kept0", netns=netns)
        ip("link", "set", "kept0", "up", netns=netns)
        fds, index = before.keep_over_exec(), before.index
    assert all(map(os.get_inheritable, fds))
    with Tun.adopt(fds, index=index, offload=NO_OFFLOAD) as after:
        assert not any(map(os.get_inheritable, fds))
        assert (after.name, after.index, after.fds, after.offload) == ("kept0", index, fds, NO_OFFLOAD)
        assert "10.9.0.1/24" in ip("address", "show", "kept0", netns=netns)
        assert after.write((HEADER, IPV4)) is None
    assert "kept0" not in ip("link", netns=netns)


def test_interface__that_was_deleted_since_says_so_when_it_is_used(netns: str) -> None:
    with open_in(netns, "kept0") as before:
        ip("link", "delete", "kept0", netns=netns)
        fds = before.keep_over_exec()
    with Tun.adopt(fds, index=before.index) as after, pytest.raises(InterfaceGoneError):
        after.read_into(memoryview(bytearray(MAX_READ_BYTES)))


def test_descriptor__of_something_else_is_refused() -> None:
    with open(os.devnull, "rb") as file, pytest.raises(TunnelError):  # noqa: PTH123
        Tun.adopt((file.fileno(),), index=1)


# -- packets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offload", OFFLOADS, ids=str)
def test_tun__tcp_over_a_pair(offload: Offload) -> None:
    with pair_of_tuns(offload=offload) as pair:
        assert [tun.offload for tun in pair.tuns] == [offload, offload]
        for version in (4, 6):
            send_over_tcp(pair, version=version)
        longest, kinds = {4: 0, 6: 0}, set()
        for length, head in pair.cable.heads:
            longest[head[HEADER_BYTES] >> 4] = max(length, longest[head[HEADER_BYTES] >> 4])
            kinds.add(head[1] & ~GSO_ECN)
            if not offload:
                assert head[0] & NEEDS_CHECKSUM == 0, "the kernel computes the checksum"
        assert (longest[4] > 1500) == (Offload.TSO4 in offload)
        assert (longest[6] > 1500) == (Offload.TSO6 in offload)
        wanted = {(Offload.TSO4, GSO_TCPV4), (Offload.TSO6, GSO_TCPV6)}
        assert kinds == {GSO_NONE} | {kind for bit, kind in wanted if bit in offload}


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("offload", [ALL_OFFLOAD, ALL_OFFLOAD & ~USO, NO_OFFLOAD], ids=str)
def test_tun__udp_segments(offload: Offload, version: int) -> None:
    datagrams = [os.urandom(1000) for _ in range(30)]
    with pair_of_tuns(offload=offload) as pair:
        family = socket.AF_INET6 if version == 6 else socket.AF_INET
        with inside(pair.netns[0]):
            sender = socket.socket(family, socket.SOCK_DGRAM)
        with inside(pair.netns[1]):
            receiver = socket.socket(family, socket.SOCK_DGRAM)
        with sender, receiver:
            receiver.settimeout(SOON_S)
            receiver.bind((ADDRESSES[version][1], PORT))
            sender.setsockopt(socket.SOL_UDP, UDP_SEGMENT, 1000)
            received = set[bytes]()
            give_up_at = time.monotonic() + PATIENCE_S
            while len(received) < len(datagrams):
                assert time.monotonic() < give_up_at, f"{len(received)} of {len(datagrams)} came"
                sender.sendto(b"".join(datagrams), (ADDRESSES[version][1], PORT))
                with suppress(TimeoutError):
                    for _ in datagrams:
                        received.add(receiver.recv(65536))
            assert received == set(datagrams)
        kinds = {head[1] for length, head in pair.cable.heads if length > 1000}
        assert kinds == ({GSO_UDP_L4} if USO in offload else {GSO_NONE})


def test_tun__several_queues() -> None:
    with pair_of_tuns(queues=3) as pair:
        assert [len(tun.fds) for tun in pair.tuns] == [3, 3]
        threads = [Thread(target=send_over_tcp, args=(pair,), kwargs={"version": version}) for version in (4, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_tun__flows_are_spread_over_queues(netns: str) -> None:
    with open_in(netns, queues=3) as tun:
        ip("address", "add", "10.9.0.1/24", "dev", tun.name, netns=netns)
        ip("link", "set", tun.name, "up", netns=netns)
        apply([SyncCarrier(netns, tun.name)])
        with inside(netns), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for port in range(9000, 9100):
                sock.sendto(b"flow", ("10.9.0.2", port))
        buffer = memoryview(bytearray(MAX_READ_BYTES))
        assert all(tun.read_into(buffer, queue=queue) is not None for queue in range(3))


@pytest.mark.parametrize("bytes_", [1, 19, 1500, 1501, 9000, 65_535])
def test_write__of_any_length(netns: str, bytes_: int) -> None:
    with open_in(netns) as tun:
        ip("link", "set", tun.name, "up", netns=netns)
        assert tun.write((HEADER, IPV4 + bytes(bytes_))) is None
        assert tun.write((HEADER, IPV4[:1], (IPV4 + bytes(bytes_))[1:])) is None, "in several pieces"
        assert set(tun.dropped.values()) == {0}


def test_write__drops_are_counted_by_reason(netns: str) -> None:
    with open_in(netns) as tun:
        assert tun.write((HEADER, IPV4)) is WriteDrop.DOWN
        assert tun.dropped == {WriteDrop.DOWN: 1, WriteDrop.FULL: 0, WriteDrop.NO_MEMORY: 0, WriteDrop.REFUSED: 0}
        ip("link", "set", tun.name, "up", netns=netns)
        refused = [
            (HEADER, b""),
            (HEADER, bytes([0x55]) + bytes(30)),
            (HEADER[1:],),
            (struct.pack("<BBHHHH", NEEDS_CHECKSUM, 0, 0, 0, 60_000, 0), IPV4),
            (struct.pack("<BBHHHH", 0, GSO_TCPV4, 60_000, 1000, 0, 0), IPV4),
            (struct.pack("<BBHHHH", 0, 77, 0, 0, 0, 0), IPV4),
            (struct.pack("<BBHHHH", 0, GSO_TCPV4, 20, 0, 0, 0), IPV4),
        ]
        assert {tun.write(views) for views in refused} == {WriteDrop.REFUSED}
        assert tun.dropped[WriteDrop.REFUSED] == len(refused)
        assert tun.dropped[WriteDrop.DOWN] == 1


def test_read_into__an_oversized_packet_of_ipv6_fits(netns: str) -> None:
    with open_in(netns, offload=NO_OFFLOAD) as tun:
        ip("link", "set", tun.name, "mtu", "65535", "up", netns=netns)
        ip("address", "add", "fd09::1/64", "dev", tun.name, "nodad", netns=netns)
        apply([SyncCarrier(netns, tun.name)])
        with inside(netns), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.sendto(bytes(65_535 - 48), ("fd09::2", PORT))
        buffer = memoryview(bytearray(MAX_READ_BYTES))
        lengths = []
        while (length := tun.read_into(buffer)) is not None:
            lengths.append(length)
        assert HEADER_BYTES + 65_535 in lengths


# -- the interface's life ---------------------------------------------------------------------------------------


def test_open__numbers_names(netns: str) -> None:
    with open_in(netns) as one, open_in(netns) as two, open_in(netns, "inner") as three:
        assert [one.name, two.name, three.name] == ["srd0", "srd1", "inner"]
        links = {
            line.split(":")[1].strip(): int(line.split(":")[0]) for line in ip("-o", "link", netns=netns).splitlines()
        }
        assert [links[tun.name] for tun in (one, two, three)] == [one.index, two.index, three.index]
    assert "inner" not in ip("link", netns=netns)
    assert "srd" not in ip("link", netns=netns)


def test_open__descriptors_are_not_inherited_and_do_not_block(netns: str) -> None:
    with open_in(netns, queues=2) as tun:
        assert not any(os.get_inheritable(fd) or os.get_blocking(fd) for fd in tun.fds)
        assert all(tun.read_into(memoryview(bytearray(MAX_READ_BYTES)), queue=queue) is None for queue in (0, 1))


def test_tun__renamed_downed_and_up_again_while_in_use() -> None:
    with pair_of_tuns() as pair:
        send_over_tcp(pair, version=4, megabytes=1)
        name, index = pair.tuns[0].name, pair.tuns[0].index
        ip("link", "set", name, "down", netns=pair.netns[0])
        assert pair.tuns[0].write((HEADER, IPV4)) is WriteDrop.DOWN
        ip("link", "set", name, "name", "other", netns=pair.netns[0])
        assert (pair.tuns[0].name, pair.tuns[0].index) == ("other", index)
        ip("link", "set", "other", "up", netns=pair.netns[0])
        send_over_tcp(pair, version=4, megabytes=1)


@pytest.mark.parametrize("queues", [1, 2])
def test_tun__deleted_while_in_use(netns: str, queues: int) -> None:
    with open_in(netns, queues=queues) as tun:
        ip("link", "set", tun.name, "up", netns=netns)
        ip("link", "delete", tun.name, netns=netns)
        assert select.select(tun.fds, [], [], PATIENCE_S)[0] == list(tun.fds), "whoever waits for packets is woken"
        for queue in range(queues):
            with pytest.raises(InterfaceGoneError, match=r"^the tunnel's interface was deleted$"):
                tun.read_into(memoryview(bytearray(100)), queue=queue)
            with pytest.raises(InterfaceGoneError):
                tun.write((HEADER, IPV4), queue=queue)
        with pytest.raises(InterfaceGoneError):
            _ = tun.name


TRY = """
from srd.tunnel.errors import TunnelError
from srd.tunnel.tun import Tun
try:
    Tun.open()
except TunnelError as error:
    print(error)
"""


# -- what cannot be had -----------------------------------------------------------------------------------------


def test_open__name_is_taken(netns: str) -> None:
    with open_in(netns, "taken"), pytest.raises(TunnelError, match=r"^cannot make the interface taken: there is an "):
        open_in(netns, "taken")
    with pytest.raises(TunnelError, match=r"^cannot make the interface lo: there is an interface of this name; "):
        open_in(netns, "lo")


@pytest.mark.parametrize(
    "name", ["", "a" * 16, "\N{LATIN SMALL LETTER E WITH ACUTE}" * 8, "a/b", "a b", "a%d", "a:1", "a\0b", "."]
)
def test_open__no_name_for_an_interface(netns: str, name: str) -> None:
    with pytest.raises(TunnelError, match=r"^interface name '.*': use "):
        open_in(netns, name)


def test_open__too_many_queues(netns: str) -> None:
    with pytest.raises(TunnelError, match=r"^cannot make the interface many: too many queues$"):
        open_in(netns, "many", queues=300)
    assert "many" not in ip("link", netns=netns)


@pytest.mark.sources
def test_open__without_the_device_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "DEVICE", str(tmp_path / "tun"))
    with pytest.raises(TunnelError, match=r"tun: load the module tun; start a container with --device /dev/net/tun$"):
        Tun.open()


def test_open__without_the_capability() -> None:
    without = ["unshare", "--net", "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"]
    done = run_to_end([*without, sys.executable, "-c", TRY], check=True)
    assert done.stdout.startswith("cannot make an interface: run as root or with CAP_NET_ADMIN")


class OldKernel:
    """ioctl of a kernel that has only some offloads and not every call."""

    def __init__(self, *, known: Offload, without: int = 0) -> None:
        self._known, self._without = known, without
        self._ioctl = fcntl.ioctl

    def __call__(self, fd: int, request: int, argument: Any = 0) -> Any:
        if request == self._without or (request == module.TUNSETOFFLOAD and argument & ~self._known.value):
            raise OSError(errno.EINVAL, "Invalid argument")
        return self._ioctl(fd, request, argument)


@pytest.mark.parametrize(
    "known",
    [ALL_OFFLOAD & ~USO, Offload.CHECKSUM | TSO, Offload.CHECKSUM, NO_OFFLOAD],
    ids=str,
)
def test_open__on_a_kernel_with_fewer_offloads(netns: str, known: Offload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "ioctl", OldKernel(known=known))
    with open_in(netns) as tun:
        assert tun.offload == known


@pytest.mark.parametrize(
    ("asked", "accepted"),
    [
        (TSO, NO_OFFLOAD),
        (Offload.CHECKSUM | Offload.USO4, Offload.CHECKSUM),
        (Offload.CHECKSUM | Offload.TSO_ECN, Offload.CHECKSUM),
        (Offload.CHECKSUM | Offload.TSO6 | Offload.TSO_ECN, Offload.CHECKSUM | Offload.TSO6 | Offload.TSO_ECN),
    ],
    ids=str,
)
def test_open__offloads_that_need_others(netns: str, asked: Offload, accepted: Offload) -> None:
    with open_in(netns, offload=asked) as tun:
        assert tun.offload == accepted


def test_open__on_a_kernel_without_tunsetvnetle(netns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "ioctl", OldKernel(known=ALL_OFFLOAD, without=module.TUNSETVNETLE))
    with open_in(netns) as tun:
        assert tun.offload == ALL_OFFLOAD
    monkeypatch.setattr(sys, "byteorder", "big")
    with pytest.raises(TunnelError, match=r"^TUN interfaces need Linux 4.0 on this processor: Invalid argument$"):
        open_in(netns)
    assert "srd" not in ip("link", netns=netns)
