"""Who has which address of a listener's network, with processes: who comes first, who comes back, and all at once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.srd.tunnel.two_ends import Connection, ends, exchange, inner, outer

pytestmark = pytest.mark.root

USED = f"{inner(1)} is used by another client"


@pytest.fixture(params=[pytest.param("plain", marks=pytest.mark.long), "psk"])
def security(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """Options with which clients have no keys of their own."""
    if request.param == "plain":
        return ("--plain",)
    key = tmp_path / "psk"
    key.write_text("a" * 64)
    key.chmod(0o600)
    return ("--psk-file", str(key))


def test_an_address_in_use__is_refused_to_others(tmp_path: Path, security: tuple[str, ...]) -> None:
    with ends(tmp_path, *security, clients=2) as made:
        made.listen()
        made.connect(1)
        with Connection(made) as connection:
            connection.exchange(1)
            assert made.connect_in_vain(2, address_of=1) == f"srd: {outer(2, listener=True)}:19880: refuses: {USED}"
            assert f": refused: {USED}" in made.await_line(0, "refused")
            connection.exchange(1)
        assert made.stats(0)["refused"] == 1
        made.connect(2)
        exchange(made, client=2, megabytes=1)


def test_an_address__is_its_client_s_after_kill_9_and_return(tmp_path: Path, security: tuple[str, ...]) -> None:
    with ends(tmp_path, *security) as made:
        made.listen()
        client = made.connect()
        with Connection(made) as connection:
            connection.exchange(1)
            client.kill(signal.SIGKILL)
            client.wait()
            made.connect()
            connection.exchange(1)
        assert made.stats(0)["refused"] == 0


def test_an_address_of_a_client_that_does_not_answer__is_the_next_one_s(tmp_path: Path) -> None:
    with ends(tmp_path, "--plain", clients=2) as made:
        made.listen()
        first = made.connect(1)
        exchange(made, megabytes=1)
        first.kill(signal.SIGSTOP)
        made.connect(2, address_of=1)
        first.kill(signal.SIGCONT)
        made.await_line(1, "lost")
        made.await_line(1, f"refuses: {USED}")
        [peer] = made.stats(0)["peers"]
        assert outer(2) in peer["address"]


def test_an_address_of_the_listener__is_refused(tmp_path: Path) -> None:
    with ends(tmp_path) as made:
        made.listen()
        line = made.connect_in_vain(1, address_of=0)
        assert f"refuses: {inner(0)} is not a free address of 10.88.0.0/24, fd88::/64" in line
        assert made.stats(0)["refused"] == 1


@pytest.mark.long
def test_all_clients_come_back__when_the_listener_does(tmp_path: Path) -> None:
    clients = (1, 2, 3)
    with ends(tmp_path, clients=len(clients)) as made:
        listener = made.listen()
        for client in clients:
            made.connect(client)
        listener.kill(signal.SIGKILL)
        listener.wait()
        for client in clients:
            made.await_line(client, "lost")
        made.listen()
        for client in clients:
            made.await_line(client, "connected to")
        for client in clients:
            exchange(made, client=client, megabytes=1)
        assert len(made.stats(0)["peers"]) == len(clients)
