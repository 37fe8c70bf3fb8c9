"""nitro_emu.perf.exchange: two ends over TCP, and ends that are none."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator

import pytest

from nitro_emu.perf.exchange import MAX_LINE_BYTES, Exchange
from nitro_emu.perf.plan import PerfError
from tests.patience import PATIENCE_S


@pytest.fixture
def pair() -> Iterator[tuple[Exchange, Exchange]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Exchange.connect("127.0.0.1", port=listener.getsockname()[1])
        with client, Exchange(listener.accept()[0]) as server:
            yield client, server


@pytest.fixture
def raw() -> Iterator[tuple[socket.socket, Exchange]]:
    """An end that can send anything, and one that reads it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        with sender, Exchange(listener.accept()[0]) as exchange:
            yield sender, exchange


def test_objects_both_ways(pair: tuple[Exchange, Exchange]) -> None:
    client, server = pair
    client.send(plan={"sizes": [1]})
    assert server.receive() == {"plan": {"sizes": [1]}}
    server.send(ready=True)
    assert client.receive() == {"ready": True}


def test_check_sees_errors_and_ends_but_keeps_what_comes_early(pair: tuple[Exchange, Exchange]) -> None:
    client, server = pair
    server.check()
    client.send(end=64)
    server.check()
    assert server.receive() == {"end": 64}
    client.send(error="why")
    with pytest.raises(PerfError, match="the other end: why"):
        _check_until_error(server)
    client.close()
    with pytest.raises(PerfError, match="the other end has gone"):
        _check_until_error(server)


def _check_until_error(exchange: Exchange) -> None:
    while True:
        exchange.check()


def test_error_is_raised_where_an_object_is_due(pair: tuple[Exchange, Exchange]) -> None:
    pair[0].send(error="no device")
    with pytest.raises(PerfError, match="the other end: no device"):
        pair[1].receive()


def test_end_that_has_gone(pair: tuple[Exchange, Exchange]) -> None:
    pair[0].close()
    with pytest.raises(PerfError, match="the other end has gone"):
        pair[1].receive()


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "is none of these programs: it sent b'GET"),
        (b"[1]\n", "is none of these programs"),
        (b"[" * 60_000 + b"\n", "is none of these programs"),
        (b"\xff\n", "is none of these programs"),
        (b"x" * (3 * MAX_LINE_BYTES), "the other end has gone"),
        (b'{"a": 1}', "the other end has gone"),
    ],
)
def test_other_programs(raw: tuple[socket.socket, Exchange], sent: bytes, error: str) -> None:
    sender, exchange = raw
    sending = threading.Thread(target=_send_and_close, args=(sender, sent))
    sending.start()
    with pytest.raises(PerfError, match=error):
        exchange.receive()
    exchange.close()
    sending.join()


def _send_and_close(sender: socket.socket, sent: bytes) -> None:
    try:
        sender.sendall(sent)
        sender.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the other end has closed first


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(PerfError, match=f"127.0.0.1 port {port}: Connection refused; start the same command there"):
        Exchange.connect("127.0.0.1", port=port)


@pytest.mark.parametrize("probe", [b"", b"GET / HTTP/1.1\r\n\r\n"], ids=["closes", "http"])
def test_what_is_no_client_does_not_end_the_server(probe: bytes) -> None:
    """A scanner of ports, or a check of a load balancer."""
    ports, accepted = queue.Queue[int](), queue.Queue[Exchange]()
    thread = threading.Thread(target=lambda: accepted.put(Exchange.accept(0, on_listening=ports.put)), daemon=True)
    thread.start()
    port = ports.get(timeout=PATIENCE_S)
    with socket.create_connection(("127.0.0.1", port)) as other:
        other.sendall(probe)
    with Exchange.connect("127.0.0.1", port=port) as client:
        client.send(plan={})
        with accepted.get(timeout=PATIENCE_S) as server:
            assert server.receive() == {"plan": {}}
    thread.join(PATIENCE_S)


def test_port_that_is_taken() -> None:
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PerfError, match=f"port {port}: cannot listen: .*; choose another with --port"):
            Exchange.accept(port, on_listening=lambda _: None)
