"""netns.observe.pcapng: blocks as the draft has them, read back by a reader of its own."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from netns.errors import BackendError
from netns.observe.pcapng import MAKER, PcapngFile, check_writable


def blocks(path: Path) -> list[tuple[int, bytes]]:
    content, found, at = path.read_bytes(), [], 0
    while at < len(content):
        kind, length = struct.unpack_from("=II", content, at)
        assert struct.unpack_from("=I", content, at + length - 4) == (length,)
        assert length % 4 == 0
        found.append((kind, content[at + 8 : at + length - 4]))
        at += length
    return found


def options(body: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at < len(body):
        kind, length = struct.unpack_from("=HH", body, at)
        found[kind] = body[at + 4 : at + 4 + length]
        at += 4 + length + -length % 4
    return found


def test_blocks(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    with PcapngFile(path, interfaces=("a>b", "b>a"), comment="a lab") as file:
        file.packet(b"12345", interface=1, at_ns=(7 << 32) + 9, length_bytes=1500)
        file.statistics(interface=0, at_ns=1 << 32, received=3, dropped=2)
    section, first, second, packet, statistics = blocks(path)
    assert section[0] == 0x0A0D0D0A
    assert struct.unpack_from("=IHHq", section[1]) == (0x1A2B3C4D, 1, 0, -1)
    assert options(section[1][16:])[1] == MAKER + b"a lab"
    assert [options(body[8:]) for _, body in (first, second)] == [
        {2: b"a>b", 9: b"\x09", 0: b""},
        {2: b"b>a", 9: b"\x09", 0: b""},
    ]
    assert struct.unpack_from("=IIIII", packet[1]) == (1, 7, 9, 5, 1500)
    assert packet[1][20:] == b"12345\0\0\0"
    assert struct.unpack_from("=III", statistics[1]) == (0, 1, 0)
    assert options(statistics[1][12:]) == {4: struct.pack("=Q", 3), 5: struct.pack("=Q", 2), 0: b""}


def test_full_disk__the_file_ends_with_its_last_whole_block_bad_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, room = tmp_path / "b.pcapng", 300
    real = os.write

    def write(fd: int, data: bytes) -> int:
        nonlocal room
        if room == 0:
            raise OSError(28, "No space left on device")
        written = real(fd, data[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", write)
    with PcapngFile(path, interfaces=("a>b",), comment="") as file:
        for _ in range(4):
            file.packet(bytes(20), interface=0, at_ns=0, length_bytes=20)
        with pytest.raises(BackendError, match=f"^{path}: No space left on device after 4 packets; the file is whole"):
            file.packet(bytes(20), interface=0, at_ns=0, length_bytes=20)
    assert [kind for kind, _ in blocks(path)] == [0x0A0D0D0A, 1, 6, 6, 6, 6]


def test_unwritable__bad_flow(tmp_path: Path) -> None:
    for name in ("no/file", "x" * 300):
        with pytest.raises(BackendError, match=r"; name a file that can be written$"):
            PcapngFile(tmp_path / name, interfaces=(), comment="")
        with pytest.raises(BackendError, match=r"; name a file that can be written$"):
            check_writable(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_existing_file__is_replaced_on_request_if_it_is_a_capture(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    with PcapngFile(path, interfaces=("a>b",), comment="first") as file:
        file.packet(bytes(200), interface=0, at_ns=0, length_bytes=200)
    with pytest.raises(BackendError, match=rf"^{path}: exists already; name another, or overwrite an earlier capture"):
        PcapngFile(path, interfaces=(), comment="")
    with pytest.raises(BackendError, match="exists already"):
        check_writable(path)
    check_writable(path, overwrite=True)
    assert len(blocks(path)) == 3
    with PcapngFile(path, interfaces=("a>b",), comment="second", overwrite=True):
        pass
    section, _ = blocks(path)
    assert options(section[1][16:])[1] == MAKER + b"second"
    with PcapngFile(tmp_path / "new", interfaces=(), comment="", overwrite=True):
        pass
    check_writable(tmp_path / "newer", overwrite=True)
    assert not (tmp_path / "newer").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_existing_file__other_than_a_capture_bad_flow(tmp_path: Path, *, overwrite: bool) -> None:
    capture, other = tmp_path / "capture", tmp_path / "other"
    with PcapngFile(capture, interfaces=(), comment=""):
        pass
    before = capture.read_bytes()
    other.write_bytes(before.replace(MAKER, b"dumpcap: ", 1))
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to(capture)
    (tmp_path / "dangling").symlink_to(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe")
    content = other.read_bytes()
    for path in (
        other,
        *(tmp_path / name for name in ("empty", "link", "dangling", "pipe")),
        tmp_path,
        Path("/dev/full"),
    ):
        with pytest.raises(BackendError, match=rf"^{path}: "):
            check_writable(path, overwrite=overwrite)
        with pytest.raises(BackendError, match=rf"^{path}: "):
            PcapngFile(path, interfaces=(), comment="", overwrite=overwrite)
    assert (capture.read_bytes(), other.read_bytes()) == (before, content)
    assert not (tmp_path / "absent").exists()
