from __future__ import annotations

import socket
import struct

import pytest

from srd.perf import tcp_info
from srd.perf.errors import UnavailableError
from srd.perf.tcp_info import Sent, sent_by
from srd.perf.tcp_socket import CUBIC, make_socket, why_unavailable


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
    assert sent.bytes_sent == 10_000
    assert sent.retransmitted_fraction == 0.0
    assert sent.remote_addresses == (("127.0.0.1",) if mptcp else ())
    assert sent.local_addresses == (("127.0.0.1",) if mptcp else ())


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
            assert sent_by(sock) == Sent(bytes_sent=3_000, bytes_retransmitted=0)


def test_sent_by_tcp__reads_the_two_fields() -> None:
    info = bytearray(256)
    struct.pack_into("=2Q", info, 200, 1000, 250)
    sent = tcp_info._sent_by_tcp(bytes(info))
    assert (sent.bytes_sent, sent.bytes_retransmitted, sent.retransmitted_fraction) == (1000, 250, 0.25)


def test_sent_by_tcp__old_kernel_bad_flow() -> None:
    with pytest.raises(UnavailableError, match=r"4\.19"):
        tcp_info._sent_by_tcp(bytes(192))


def test_sent__nothing_sent_is_nothing_retransmitted() -> None:
    assert Sent(bytes_sent=0, bytes_retransmitted=0).retransmitted_fraction == 0.0
