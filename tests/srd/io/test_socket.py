"""srd.io.socket: the sockets of paths, the route's MTU, ICMP errors, drops."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from srd.io import socket as module
from srd.io import syscalls
from srd.io.socket import ECT_0, dropped_packets, icmp_errors, is_wildcard, open_socket, route_to, socket_id
from tests.patience import wait_until
from tests.srd.io.exchange import LOOPBACK, wait_readable

FAMILIES = [socket.AF_INET, socket.AF_INET6]
pytestmark = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def free_port(family: socket.AddressFamily) -> syscalls.Address:
    """Return an address at which nothing listens."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind(LOOPBACK[family])
        address: syscalls.Address = probe.getsockname()
        return address


def test_open_socket__sets_ect_on_its_packets(family: socket.AddressFamily) -> None:
    with open_socket(LOOPBACK[family], family=family) as one, open_socket(LOOPBACK[family], family=family) as two:
        one.sendto(b"x", two.getsockname())
        wait_readable(two)
        _, ancillary, _, _ = two.recvmsg(10, 256)
        kinds = {(socket.IPPROTO_IP, socket.IP_TOS), (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)}
        assert [data[0] for level, kind, data in ancillary if (level, kind) in kinds] == [ECT_0]


def test_open_socket__address_in_use_bad_flow(family: socket.AddressFamily) -> None:
    with open_socket(LOOPBACK[family], family=family) as sock:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count is all that is wanted
        with pytest.raises(OSError, match="in use"):
            open_socket(sock.getsockname(), family=family)
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_route_to__loopback(family: socket.AddressFamily) -> None:
    host, _, *rest = LOOPBACK[family]
    with open("/sys/class/net/lo/mtu") as file:  # noqa: PTH123 - one number
        mtu = int(file.read())
    mtu = min(mtu, 65_535) if family == socket.AF_INET else mtu  # IP_MAX_MTU (net/ip.h)
    assert route_to((host, 9, *rest), family=family) == (mtu, host)  # type: ignore[arg-type]


def test_is_wildcard__what_the_kernel_calls_any_address(family: socket.AddressFamily) -> None:
    any_host = "::" if family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104 - only to look at it
    with open_socket((any_host, 0), family=family) as one, open_socket(LOOPBACK[family], family=family) as other:
        assert is_wildcard(one.getsockname()[0])
        assert not is_wildcard(other.getsockname()[0])


def test_icmp_errors__names_the_destination_once(family: socket.AddressFamily) -> None:
    closed = free_port(family)
    with open_socket(LOOPBACK[family], family=family) as sock:
        assert icmp_errors(sock) == ([], {})
        sock.sendto(b"anyone?", closed)
        wait_readable(sock)
        assert icmp_errors(sock) == ([closed], {})
        assert icmp_errors(sock) == ([], {})


def test_dropped_packets__counts_what_a_full_buffer_lost(family: socket.AddressFamily) -> None:
    with open_socket(LOOPBACK[family], family=family) as one, open_socket(LOOPBACK[family], family=family) as two:
        assert dropped_packets(two) == 0
        two.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(100):
            one.sendto(bytes(1000), two.getsockname())
        received = 0

        def all_came() -> bool:
            nonlocal received
            with suppress(BlockingIOError):
                while two.recv(2000):
                    received += 1
            return received + dropped_packets(two) == 100

        wait_until(all_came)
        assert 0 < received < 100


@pytest.mark.sources  # replaces the files
def test_socket_id__the_same_after_a_restart_and_nowhere_else(
    family: socket.AddressFamily, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    del family
    here = socket_id(("10.0.0.1", 19870))
    assert socket_id(("10.0.0.1", 19870)) == here
    others = [socket_id(("10.0.0.2", 19870)), socket_id(("10.0.0.1", 7001))]
    (tmp_path / "boot_id").write_text("another boot\n")
    for name, path in (
        ("BOOT_ID", tmp_path / "boot_id"),
        ("NETWORK_NAMESPACE", tmp_path),
        ("BOOT_ID", tmp_path / "gone"),
    ):
        monkeypatch.setattr(module, name, path)
        others.append(socket_id(("10.0.0.1", 19870)))
    others.append(socket_id(("10.0.0.1", 19870)))  # without /proc it is random
    assert len({here, *others}) == 7
