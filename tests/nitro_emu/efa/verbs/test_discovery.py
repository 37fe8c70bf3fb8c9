"""Devices are the sockets in the card's directory."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest

from nitro_emu.efa.verbs import Context, card_directory, device_names
from nitro_emu.errors import VerbsError


def listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    return listener


def test_devices_are_sockets_but_control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sockets = [listen(tmp_path / f"{name}.sock") for name in ("efa_1", "efa_0", "control")]
    (tmp_path / "efa_2.sock").write_text("a file")
    (tmp_path / "efa_3.sock").symlink_to(tmp_path / "missing")
    (tmp_path / "efa_4.sock").symlink_to(tmp_path / "efa_0.sock")
    monkeypatch.setenv("NITRO_CARD_DIR", str(tmp_path))
    assert card_directory() == tmp_path
    assert device_names() == ["efa_0", "efa_1", "efa_4"]
    for each in sockets:
        each.close()


def test_without_a_card_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NITRO_CARD_DIR", raising=False)
    assert card_directory() == Path("/run/nitro-card")
    assert device_names(tmp_path / "missing") == []


@pytest.mark.parametrize("name", ["efa_9", "../efa_0", "control", ""])
def test_unknown_devices(tmp_path: Path, name: str) -> None:
    with pytest.raises(VerbsError, match="is no device in") as raised:
        Context(name, directory=tmp_path)
    assert raised.value.errno == errno.ENODEV


def test_a_socket_that_nobody_listens_on(tmp_path: Path) -> None:
    with listen(tmp_path / "efa_0.sock"), pytest.raises(VerbsError, match="cannot be opened") as raised:
        Context("efa_0", directory=tmp_path)
    assert raised.value.errno == errno.ECONNREFUSED
