"""srd.secure.key_log: what was logged decrypts what was recorded; what does not fit is an error in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.base.errors import PacketError, UsageError
from srd.proto.wire.control import Close
from srd.proto.wire.data import HEADER_BYTES, IMMEDIATE, VERSION, PacketType
from srd.secure.key_log import KeyLog, secret_log
from srd.secure.packets import Suite
from srd.secure.session import Session
from tests.srd.secure.sessions import CONTEXT, ONE, OTHER, pair, plain_headers, seal, unseal

BACK = 5
CLOSE = Close(CONTEXT, 7).encode()


def logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, suite: Suite) -> tuple[Session, Session, KeyLog]:
    """Two ends whose secrets are in a log file, and what was read of it."""
    path = tmp_path / "keys.log"
    monkeypatch.setenv("SRDKEYLOGFILE", str(path))
    one, other = pair(suite=suite, log_secret=secret_log())
    one.on_contexts(own=BACK, remote=CONTEXT)
    assert path.stat().st_mode & 0o777 == 0o600
    return one, other, KeyLog.read(path)


@pytest.mark.parametrize("suite", Suite)
def test_open__all_packets_of_both_directions_over_key_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suite: Suite
) -> None:
    one, other, log = logged(tmp_path, monkeypatch, suite=suite)
    for turn in range(4):
        payloads = [bytes([turn]) * 100] * 3
        plain = plain_headers(3, path=2, sequence=3 * turn, flags=IMMEDIATE, message=9, segment=100)
        packets = seal(one, payloads, sequence=3 * turn, path=2, flags=IMMEDIATE)
        for index in (1, 0, 2):  # one was overtaken
            header = plain[index * HEADER_BYTES : (index + 1) * HEADER_BYTES]
            assert log.open_untrusted(packets[index].datagram) == header + payloads[index]
            assert unseal(other, packets[index])
        assert log.open_untrusted(one.seal_control(CLOSE, context=CONTEXT, now=0.0)) == CLOSE
        back = other.seal_control(CLOSE, context=BACK, now=0.0)
        assert log.open_untrusted(back) == CLOSE
        one.open_control_untrusted(back, now=0.0)
        late = seal(one, payloads[:1], sequence=100 + turn, path=3)
        one.update(now=0.0)
        (newer,) = seal(one, payloads[:1], sequence=200 + turn, path=4)
        assert log.open_untrusted(newer.datagram)
        assert log.open_untrusted(late[0].datagram), "sent with the keys before"
        assert unseal(other, newer)


def test_open__sequences_beyond_2_to_32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _, log = logged(tmp_path, monkeypatch, suite=Suite.AES_256_GCM)
    for sequence in (0, (1 << 31) - 10, (1 << 32) - 20, (1 << 32) + 5):
        (packet,) = seal(one, [b"x"], sequence=sequence)
        assert log.open_untrusted(packet.datagram).endswith(b"x")


def test_open__bad_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _, log = logged(tmp_path, monkeypatch, suite=Suite.AES_256_GCM)
    (packet,) = seal(one, [b"secret"])
    for bit in range(16, 8 * len(packet.datagram)):
        with pytest.raises(PacketError):
            log.open_untrusted(packet.flipped(bit).datagram)
    assert log.open_untrusted(packet.datagram).endswith(b"secret")


@given(st.binary(max_size=200))
def test_open__arbitrary_bytes(data: bytes) -> None:
    log = KeyLog([f"SRD_SECRET {CONTEXT:016x} 1 {ONE.hex()}", f"SRD_SECRET {BACK:016x} 2 {OTHER.hex()}"])
    for datagram in (data, bytes([VERSION, PacketType.DATA, 0, 0]) + bytes(4) + CONTEXT.to_bytes(8, "big") + data):
        with pytest.raises(PacketError):
            log.open_untrusted(datagram)


@pytest.mark.parametrize(
    "line", ["SRD_SECRET", "SRD_SECRET 5 1", "SRD_SECRET x 1 00", "SRD_SECRET 5 9 00", "SRD_SECRET 5 1 xy"]
)
def test_read__bad_flow(tmp_path: Path, line: str) -> None:
    path = tmp_path / "keys.log"
    path.write_text(f"# a comment\n\n{line}\n")
    with pytest.raises(UsageError, match=rf"{path}, line 3: is no SRD_SECRET with context, suite and secret"):
        KeyLog.read(path)
    with pytest.raises(UsageError, match="cannot be read"):
        KeyLog.read(tmp_path / "gone")


def test_secret_log__none_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SRDKEYLOGFILE", raising=False)
    assert secret_log() is None


def test_secret_log__a_file_that_cannot_be_written_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, or a directory that is gone, must not end peers."""
    (tmp_path / "a").mkdir()
    monkeypatch.setenv("SRDKEYLOGFILE", str(tmp_path / "a" / "keys.log"))
    log = secret_log()
    assert log is not None
    (tmp_path / "a" / "keys.log").unlink()
    (tmp_path / "a").rmdir()
    log(1, Suite.AES_256_GCM, bytes(32))
