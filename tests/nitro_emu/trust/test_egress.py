"""nitro_emu.trust.egress: which calls of Python the guard refuses, each with an alarm."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
from collections.abc import Callable, Iterator

import pytest

from nitro_emu.errors import TrustError
from nitro_emu.trust.alarms import Alarms
from nitro_emu.trust.egress import MAX_HOSTS, EgressGuard, EgressRefusedError


@pytest.fixture
def alarms() -> Alarms:
    return Alarms()


@pytest.fixture
def guard(alarms: Alarms) -> Iterator[EgressGuard]:
    """An installed guard that allows 127.0.0.2 and ::1."""
    guard = EgressGuard(alarms)
    guard.set_allowed(frozenset({"127.0.0.2", "::1"}))
    guard.install()
    yield guard
    guard.close()


@pytest.fixture
def udp() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        yield sock


@pytest.mark.parametrize("host", ["127.0.0.2", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.2"])
def test_check_knows_every_spelling_of_an_allowed_host(host: str, alarms: Alarms) -> None:
    guard = EgressGuard(alarms)
    guard.set_allowed(frozenset({"127.0.0.2", "::1"}))
    guard.check(host)
    assert not alarms.counts


@pytest.mark.parametrize("host", ["127.0.0.1", "203.0.113.7", "::2", "", "example.org", "127.0.0.2.", "0x7f000002"])
def test_check_refuses_others_with_an_alarm(host: str, alarms: Alarms) -> None:
    guard = EgressGuard(alarms)
    guard.set_allowed(frozenset({"127.0.0.2", "::1"}))
    with pytest.raises(TrustError, match="the control plane did not ask for it"):
        guard.check(host)
    assert alarms.counts == {"egress": 1}


def test_new_guard_allows_nothing_and_one_without_a_control_plane_any_host() -> None:
    guard = EgressGuard(Alarms())
    with pytest.raises(EgressRefusedError):
        guard.check("127.0.0.1")
    guard.set_allowed(None)
    guard.check("203.0.113.7")


def test_what_is_no_address_is_not_allowed_and_changes_nothing() -> None:
    guard = EgressGuard(Alarms())
    guard.set_allowed(frozenset({"127.0.0.2"}))
    with pytest.raises(TrustError, match="'example' is no IP address"):
        guard.set_allowed(frozenset({"example"}))
    with pytest.raises(TrustError, match="are more than 65536"):
        guard.set_allowed(frozenset(map(str, range(MAX_HOSTS + 1))))
    guard.check("127.0.0.2")


def test_refusal_is_a_firewalls(guard: EgressGuard, udp: socket.socket) -> None:
    with pytest.raises(PermissionError) as caught:
        udp.sendto(b"x", ("127.0.0.1", 9))
    assert caught.value.errno == errno.EPERM
    assert str(caught.value) == "egress guard: 127.0.0.1: the control plane did not ask for it"
    guard.close()
    udp.sendto(b"x", ("127.0.0.1", 9))


@pytest.mark.parametrize(
    "call",
    [
        lambda udp: udp.sendto(b"x", ("127.0.0.1", 9)),
        lambda udp: udp.sendto(b"x", 0, ("127.0.0.1", 9)),
        lambda udp: udp.sendmsg([b"x"], [], 0, ("127.0.0.1", 9)),
        lambda udp: udp.connect(("127.0.0.1", 9)),
        lambda udp: udp.connect_ex(("127.0.0.1", 9)),
        lambda _: socket.create_connection(("127.0.0.2", 9)),
        lambda _: socket.getaddrinfo("example.org", 80),
        lambda _: socket.gethostbyname("example.org"),
        lambda _: socket.gethostbyname_ex("example.org"),
        lambda _: socket.gethostbyaddr("example.org"),
        lambda _: socket.gethostbyaddr("127.0.0.1"),
        lambda _: socket.getnameinfo(("127.0.0.2", 80), 0),
        lambda _: subprocess.run(["true"], check=False),
        lambda _: os.system("true"),  # noqa: S605
        lambda _: os.posix_spawn("/bin/true", ["true"], {}),
        lambda _: os.fork(),
        lambda _: os.execv("/bin/true", ["true"]),  # noqa: S606
    ],
)
@pytest.mark.usefixtures("guard")
def test_each_way_out_is_refused_with_an_alarm(
    alarms: Alarms, udp: socket.socket, call: Callable[[socket.socket], object]
) -> None:
    with pytest.raises(EgressRefusedError):
        call(udp)
    assert alarms.counts == {"egress": 1}


@pytest.mark.usefixtures("guard")
async def test_connection_of_asyncio_is_refused() -> None:
    with pytest.raises(EgressRefusedError):
        await asyncio.open_connection("127.0.0.2", 9)


@pytest.mark.usefixtures("guard")
def test_allowed_hosts_and_unix_sockets_pass(alarms: Alarms, udp: socket.socket) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.2", 0))
        udp.sendto(b"x", receiver.getsockname())
        udp.sendmsg([b"x"], [], 0, receiver.getsockname())
        udp.connect(receiver.getsockname())
        udp.send(b"x")
        udp.sendmsg([b"x"])
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"x")
        left.sendmsg([b"x"])
    with socket.socket(socket.AF_UNIX) as local, pytest.raises(FileNotFoundError):
        local.connect("/nothing.sock")
    assert socket.getaddrinfo("127.0.0.1", 80)
    assert socket.getaddrinfo("localhost", 80)
    assert not alarms.counts


def test_one_exec_passes_when_it_was_allowed(guard: EgressGuard) -> None:
    guard.allow_exec()
    with pytest.raises(FileNotFoundError):
        os.execv("/nothing", ["nothing"])  # noqa: S606
    with pytest.raises(EgressRefusedError, match="a card starts no programs"):
        os.execv("/nothing", ["nothing"])  # noqa: S606


@pytest.mark.usefixtures("guard")
def test_second_guard_is_refused_while_the_first_is_installed() -> None:
    second = EgressGuard(Alarms())
    with pytest.raises(TrustError, match="another egress guard is installed"):
        second.install()
    second.close()
    with pytest.raises(EgressRefusedError):
        os.fork()


def test_installing_twice_counts_a_call_once(guard: EgressGuard, alarms: Alarms) -> None:
    guard.install()
    with pytest.raises(EgressRefusedError):
        os.fork()
    assert alarms.counts == {"egress": 1}


def test_answer_to_a_stranger__is_refused_without_an_alarm(guard: EgressGuard, alarms: Alarms) -> None:
    """A datagram that arrives at a served port must not raise an alarm about what the card does."""
    guard.set_allowed(frozenset({"127.0.0.2"}))
    guard.install()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as served:
        served.bind(("127.0.0.1", 0))
        with pytest.raises(EgressRefusedError, match="no answer"):
            served.sendto(b"x", ("127.0.0.1", 9))
    assert not alarms.counts
