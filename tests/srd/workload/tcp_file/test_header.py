from __future__ import annotations

import contextlib
import json
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.workload.tcp_file.errors import TransferError
from srd.workload.tcp_file.header import Header, Verification, receive_header, receive_verification, send_record

SHA = "ab" * 32


def received(data: bytes) -> Header:
    """Return what a receiver parses from exactly these bytes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        return receive_header(ours)


def framed(record: object) -> bytes:
    text = json.dumps(record).encode()
    return struct.pack("!I", len(text)) + text


def test_records__round_trip() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_record(ours, Header(name="a file.bin", byte_count=0, sha256=SHA))
        assert receive_header(theirs) == Header(name="a file.bin", byte_count=0, sha256=SHA)
        send_record(theirs, Verification(sha256=SHA, sha256_ok=False))
        assert receive_verification(ours) == Verification(sha256=SHA, sha256_ok=False)


@pytest.mark.parametrize(
    ("record", "named"),
    [
        ({"name": "../x", "byte_count": 1, "sha256": SHA}, "'../x'"),
        ({"name": ".x", "byte_count": 1, "sha256": SHA}, "'.x'"),
        ({"name": "", "byte_count": 1, "sha256": SHA}, "''"),
        ({"name": 7, "byte_count": 1, "sha256": SHA}, "7"),
        ({"name": "x", "byte_count": -1, "sha256": SHA}, "-1"),
        ({"name": "x", "byte_count": True, "sha256": SHA}, "True"),
        ({"name": "x", "byte_count": 1, "sha256": "zz"}, "'zz'"),
        ({"name": "x", "byte_count": 1}, "None"),
        ([], "object"),
    ],
)
def test_receive_header__bad_flow(record: object, named: str) -> None:
    with pytest.raises(TransferError, match=named):
        received(framed(record))


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", "0 of 4"),
        (struct.pack("!I", 10) + b"{}", "2 of 10"),
        (struct.pack("!I", 1 << 30), str(1 << 30)),
        (struct.pack("!I", 1) + b"{", "JSON"),
    ],
)
def test_receive_header__cut_or_oversized_bad_flow(data: bytes, named: str) -> None:
    with pytest.raises(TransferError, match=named):
        received(data)


@given(st.binary(max_size=200))
def test_receive_header__garbage_raises_only_our_error(data: bytes) -> None:
    with contextlib.suppress(TransferError):
        received(struct.pack("!I", len(data)) + data)
