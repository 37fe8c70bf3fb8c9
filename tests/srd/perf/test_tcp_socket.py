from __future__ import annotations

import socket

import pytest

from srd.perf import tcp_socket
from srd.perf.errors import UnavailableError
from srd.perf.tcp_socket import CUBIC, IPPROTO_MPTCP, SentCounts, make_socket, sent_by, why_unavailable


def test_make_socket__uses_the_named_algorithm() -> None:
    with make_socket(algorithm="reno", mptcp=False) as sock:
        name = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    assert name.rstrip(b"\0") == b"reno"


def test_make_socket__unknown_algorithm_bad_flow() -> None:
    with pytest.raises(UnavailableError, match="'teleport'"):
        make_socket(algorithm="teleport", mptcp=False)
    assert "'teleport'" in str(why_unavailable(algorithm="teleport", mptcp=False))


def test_why_unavailable__nothing_is_missing() -> None:
    assert why_unavailable(algorithm="reno", mptcp=False) is None


def test_make_socket__kernel_without_mptcp_bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: int) -> socket.socket:
        assert arguments[-1] == IPPROTO_MPTCP
        raise OSError(93, "Protocol not supported")

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(UnavailableError, match=r"mptcp.*Protocol not supported"):
        make_socket(algorithm=CUBIC, mptcp=True)


@pytest.mark.root  # TCP: a kernel may allow only root to choose cubic
@pytest.mark.parametrize("mptcp", [False, True])
def test_sent_by__counts_bytes(mptcp: bool) -> None:  # noqa: FBT001  a parameter of the test
    if mptcp and (reason := why_unavailable(algorithm=CUBIC, mptcp=True)):
        pytest.skip(reason)
    with make_socket(algorithm=CUBIC, mptcp=mptcp) as listener, make_socket(algorithm=CUBIC, mptcp=mptcp) as sock:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        sock.connect(listener.getsockname())
        with listener.accept()[0] as peer:
            sock.sendall(bytes(10_000))
            assert len(peer.recv(10_000, socket.MSG_WAITALL)) == 10_000
            sent = sent_by(sock)
    assert sent == SentCounts(bytes_sent=10_000, bytes_retransmitted=0, subflows=int(mptcp))


@pytest.mark.root  # TCP: a kernel may allow only root to choose cubic
def test_sent_by__mptcp_fallback_to_tcp() -> None:
    if reason := why_unavailable(algorithm=CUBIC, mptcp=True):
        pytest.skip(reason)
    with make_socket(algorithm=CUBIC, mptcp=False) as listener, make_socket(algorithm=CUBIC, mptcp=True) as sock:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        sock.connect(listener.getsockname())
        with listener.accept()[0] as peer:
            sock.sendall(bytes(3_000))
            assert len(peer.recv(3_000, socket.MSG_WAITALL)) == 3_000
            assert sent_by(sock) == SentCounts(bytes_sent=3_000, bytes_retransmitted=0)


def test_sent_by_tcp__old_kernel_bad_flow() -> None:
    with pytest.raises(UnavailableError, match=r"4\.19"):
        tcp_socket._sent_by_tcp(bytes(192))
