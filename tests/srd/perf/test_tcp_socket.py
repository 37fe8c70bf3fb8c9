from __future__ import annotations

import socket

import pytest

from srd.perf.errors import UnavailableError
from srd.perf.tcp_info import IPPROTO_MPTCP
from srd.perf.tcp_socket import CUBIC, make_socket, why_unavailable


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
