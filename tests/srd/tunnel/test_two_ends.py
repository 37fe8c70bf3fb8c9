"""`srd tunnel listen` and `connect` as processes: every byte of what programs send through them is compared."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from netns.backends.relay.tap import inside
from tests.patience import PATIENCE_S
from tests.programs import run_to_end
from tests.srd.cli.processes import command
from tests.srd.tunnel.cable import ip
from tests.srd.tunnel.inner import ipv4, tcp
from tests.srd.tunnel.two_ends import UDP_PORT, Ends, ends, exchange, inner, joined

pytestmark = pytest.mark.root

LARGEST_DATAGRAM = 65_507


@pytest.mark.parametrize("mtu", [1500, 9000])
def test_tunnel__carries_tcp_and_udp(tmp_path: Path, mtu: int) -> None:
    with joined(tmp_path, mtu=mtu) as made:
        for version in (4, 6):
            exchange(made, version=version)
        with made.udp(0) as near, made.udp(1) as far:
            for size in (0, 1, 1000, 1025, 1472, 9000, 30_000, LARGEST_DATAGRAM):
                payload = os.urandom(size)
                for here, there in ((near, far), (far, near)):
                    here.sendto(payload, there.getsockname())
                    assert there.recv(1 << 16) == payload
        stats = made.stats(1)
        assert stats["tx_bytes"] > 8 << 20
        assert stats["ena_srd_tx_pkts"] > stats["tx_messages"] > 0
        assert set(stats["dropped"]) <= {"queue"}


@pytest.mark.parametrize(
    "options", [("--plain",), ("--psk-file", "psk"), ("--busy-poll",)], ids=["plain", "psk", "busy poll"]
)
def test_tunnel__options(tmp_path: Path, options: tuple[str, ...]) -> None:
    key = tmp_path / "psk"
    key.write_text("a" * 64)
    key.chmod(0o600)
    with joined(tmp_path, *(str(key) if each == "psk" else each for each in options)) as made:
        exchange(made, megabytes=1)


def test_tunnel__a_connection_survives_the_death_of_both_ends(tmp_path: Path) -> None:
    with ends(tmp_path) as made:
        listener, client = made.listen(), made.connect()
        with made.connection() as connection:
            connection.exchange(1)
            listener.kill(signal.SIGKILL)
            made.await_line(1, "lost")
            made.listen()
            made.await_line(1, "connected to")
            connection.exchange(1)
            client.kill(signal.SIGKILL)
            assert client.wait() == -signal.SIGKILL
            assert made.interfaces(1) == []
            made.connect()
            connection.exchange(1)


def test_tunnel__its_interface_renamed_downed_and_deleted_while_in_use(tmp_path: Path) -> None:
    with ends(tmp_path) as made:
        made.listen()
        made.connect(1, "--interface", "first")
        with made.connection() as connection:
            connection.exchange(1)
            ip("link", "set", "first", "name", "second", netns=made.netns[1])
            made.await_line(1, "first: is now called second")
            connection.exchange(1)
            ip("link", "set", "second", "down", netns=made.netns[1])
            made.await_line(1, "second: is down")
            ip("link", "set", "second", "up", netns=made.netns[1])
            made.await_line(1, "second: is up again")
            connection.exchange(1)
            ip("link", "delete", "second", netns=made.netns[1])
            made.await_line(1, "second: was deleted; made again")
            connection.exchange(1)
            assert made.interfaces(1) == ["second"]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGKILL]
)
def test_tunnel__leaves_no_trace(tmp_path: Path, number: signal.Signals) -> None:
    with ends(tmp_path) as made:
        rules = [ip("rule", "show", netns=each) for each in made.netns]
        processes = [made.listen(), made.connect(1, "--route", "0.0.0.0/0")]
        exchange(made, megabytes=1)
        for process in reversed(processes):
            process.kill(number)
            assert process.wait() == (-number if number is signal.SIGKILL else 0)
        assert [made.interfaces(host) for host in range(2)] == [[], []]
        if number is not signal.SIGKILL:  # what rules are left then is in test_interface
            assert rules == [ip("rule", "show", netns=each) for each in made.netns]
        for each in made.netns:
            assert "10.88." not in ip("route", "show", "table", "all", netns=each)
            assert "fd88:" not in ip("-6", "route", "show", "table", "all", netns=each)


def test_tunnel__a_forged_source_is_dropped_and_counted(tmp_path: Path) -> None:
    with joined(tmp_path, clients=2) as made:
        ip("address", "add", f"{inner(7)}/32", "dev", "srd0", netns=made.netns[1])
        with made.udp(0) as target, made.udp(1) as honest, made.udp(1, address=inner(7)) as forger:
            forger.sendto(b"forged", (inner(0), UDP_PORT))
            honest.sendto(b"honest", (inner(0), UDP_PORT))
            assert target.recv(100) == b"honest"
        stats = made.stats(0)
        assert stats["dropped"]["forged_source"] == 1
        shown = made.run(0, "metrics", "--prometheus").stdout
        assert f'srd_tunnel_dropped_total{{interface="{stats["interface"]}",reason="forged_source"}} 1.0\n' in shown
        assert shown.endswith("# EOF\n")


def test_tunnel__acks_that_wait_are_merged(tmp_path: Path) -> None:
    with ends(tmp_path) as made:
        made.listen()
        client = made.connect()
        acks = [bytes(ipv4(src=inner(1), dst=inner(0)) / tcp(ack=1000 * number)) for number in range(1, 6)]
        with inside(made.netns[1]):
            sender = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        with inside(made.netns[0]):
            target = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
        target.settimeout(PATIENCE_S)
        with sender, target:
            client.popen.send_signal(signal.SIGSTOP)
            for ack in (*acks, acks[-1]):  # the last one is a duplicate
                sender.sendto(ack, (inner(0), 0))
            client.popen.send_signal(signal.SIGCONT)
            assert [target.recv(100)[20:] for _ in range(2)] == [acks[-1][20:]] * 2
        assert made.stats(1)["acks_merged"] == 4


def test_tunnel__clients_reach_each_other_through_a_listener_that_forwards(tmp_path: Path) -> None:
    with joined(tmp_path, clients=2) as made:
        with inside(made.netns[0]):
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        exchange(made, client=1, server=2, megabytes=1)


def test_listen__only_the_peers_of_a_file_with_their_addresses(tmp_path: Path) -> None:
    with ends(tmp_path, clients=2) as made:
        keys = []
        for host in (1, 2):
            key = tmp_path / f"key{host}"
            keys.append(keygen(made, host, key))
        peers = tmp_path / "peers"
        peers.write_text(f"{keys[0]} {inner(1)},{inner(1, version=6)}\n")
        made.listen("--peers", str(peers))
        made.connect(1, "--key", str(tmp_path / "key1"))
        exchange(made, megabytes=1)
        made.connect(2, "--key", str(tmp_path / "key2"), awaits="srd: ")
        refused = made.processes[2]
        assert refused is not None
        assert refused.wait() == 1


def keygen(made: Ends, host: int, path: Path) -> str:
    """Make a key; return the public one."""
    environment = os.environ | {"SRD_HOME": str(made.homes[host])}
    done = run_to_end(command("keygen", str(path)), env=environment, check=True)
    return done.stdout.splitlines()[0]
