"""`nitro-card run` with devices: what a card says of itself, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from nitro_emu.card.control import ask
from nitro_emu.card.metrics import metrics_text
from nitro_emu.counters import DeviceCounters, PortCounters
from nitro_emu.efa.verbs import Context
from nitro_emu.gid import gid_of, gid_text
from tests.nitro_emu.processes import card_file, loopback_address, nitro_card

Called = Callable[..., subprocess.CompletedProcess[str]]
PLAIN = "security: {mode: plain}"


def test_card_serves_devices_until_a_signal(tmp_path: Path) -> None:
    address = loopback_address()
    vfs = [f"name: efa_0, address: {address}, {PLAIN}", f"name: efa_1, address: {address}, port: 19876, {PLAIN}"]
    run_dir = tmp_path / "run"
    with nitro_card("run", str(card_file(tmp_path, vfs=vfs)), "--json-lines") as card:
        assert card.event("ready")["vfs"] == ["efa_0", "efa_1"]
        status = ask(run_dir, "status")
        assert (status["name"], status["state"]) == ("card", "ready")
        assert status["vfs"]["efa_1"]["gid"] == gid_text(gid_of(address, port=19876))
        with Context("efa_0", directory=run_dir) as context:
            assert context.attributes.gid == gid_of(address, port=19875)
            stats = ask(run_dir, "stats")
        assert stats["vfs"]["efa_0"]["port"].keys() == asdict(PortCounters()).keys()
        assert stats["vfs"]["efa_0"]["device"].keys() == asdict(DeviceCounters()).keys()
        assert stats["vfs"]["efa_0"]["device"]["submitted_cmds"] > 0
        assert stats["vfs"]["efa_1"]["device"]["submitted_cmds"] == 0
        assert 'efa_submitted_cmds_total{vf="efa_0"}' in metrics_text(stats)
        card.kill(signal.SIGTERM)
        assert card.wait() == 0
        records = [json.loads(line) for line in card.stderr.all()]
        assert not [record for record in records if record["level"] in {"error", "warning"}]
    assert not run_dir.exists()


def test_run_dir_option_replaces_the_files(tmp_path: Path) -> None:
    vfs = [f"name: efa_0, address: {loopback_address()}, {PLAIN}"]
    with nitro_card("run", str(card_file(tmp_path, vfs=vfs)), "--run-dir", str(tmp_path / "other")) as card:
        assert card.stdout.next() == f"nitro-card: card serves VFs efa_0 in {tmp_path / 'other'}"
        assert {path.name for path in (tmp_path / "other").iterdir()} == {"card.lock", "control.sock", "efa_0.sock"}


def test_card_after_a_killed_one_serves_the_same_devices(tmp_path: Path) -> None:
    config = card_file(tmp_path, vfs=[f"name: efa_0, address: {loopback_address()}, {PLAIN}"])
    for number in (signal.SIGKILL, signal.SIGTERM):
        with nitro_card("run", str(config)) as card:
            assert card.stdout.next()
            Context("efa_0", directory=tmp_path / "run").close()
            card.kill(number)
            assert card.wait() in {0, -signal.SIGKILL}, card.stderr.all()


@pytest.mark.parametrize("address", ["203.0.113.7", "2001:db8::7"])
def test_address_of_another_host_is_one_line(tmp_path: Path, address: str) -> None:
    vfs = [f"name: efa_0, address: {loopback_address()}, {PLAIN}", f"name: efa_1, address: '{address}', {PLAIN}"]
    with nitro_card("run", str(card_file(tmp_path, vfs=vfs, more="log_level: error"))) as card:
        assert card.wait() == 1
        (line,) = card.stderr.all()
        assert line.startswith("nitro-card: ")
        assert address in line
        assert "srd-lab up reference" in line
    assert not (tmp_path / "run").exists()


def test_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    address = loopback_address()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((address, 19875))
        vfs = [f"name: efa_0, address: {address}, {PLAIN}"]
        with nitro_card("run", str(card_file(tmp_path, vfs=vfs, more="log_level: error"))) as card:
            assert card.wait() == 1
            (line,) = card.stderr.all()
            assert "19875" in line


def test_missing_key_is_one_line_and_status_2(tmp_path: Path) -> None:
    vfs = [f"name: efa_0, address: {loopback_address()}, security: {{mode: psk, psk_file: missing}}"]
    with nitro_card("run", str(card_file(tmp_path, vfs=vfs, more="log_level: error"))) as card:
        assert card.wait() == 2
        (line,) = card.stderr.all()
        assert line == f"nitro-card: efa_0: security: {tmp_path}/missing: cannot be read: No such file or directory"
