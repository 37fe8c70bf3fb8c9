"""`nitro-chip`: in this process, where that will do, and as a process that is killed and started again."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from nitro_emu.chip.client import ChipClient
from nitro_emu.cli.chip import cli
from nitro_emu.errors import TrustError
from nitro_emu.trust.pki import load_certificate_untrusted
from nitro_emu.trust.verify import Expectation, verify_untrusted
from tests.nitro_emu.chip.chips import FILES, write_files
from tests.patience import PATIENCE_S
from tests.srd.cli.processes import Process

Done = subprocess.CompletedProcess[str]


class Commands:
    """The command line in this process, in a directory with a vendor's key, a chip, and the files of a card."""

    def __init__(self, directory: Path, *, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.chip = directory / "chip"
        self.config = directory / "card-a.yaml"
        self.manifest = directory / "card-a.manifest"
        self.image = write_files(directory / "image", FILES)
        self._capsys, self._patch = capsys, patch
        self.config.write_text("name: card-a\n")
        self("make-vendor-key", f"{directory}/vendor.pem")
        self("init", f"{self.chip}", "--vendor-key", f"{directory}/vendor.pub.pem", "--card", "card-a")
        self.sign(1)

    def __call__(self, *arguments: str, status: int = 0) -> Done:
        self._patch.setattr(sys, "argv", ["nitro-chip", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli()
        out, err = self._capsys.readouterr()
        assert caught.value.code == status, err
        if status:
            assert err.startswith("nitro-chip: ")
            assert err.count("\n") == 1, err
        return subprocess.CompletedProcess(arguments, status, out, err)

    def sign(self, version: int, *more: str, status: int = 0) -> Done:
        files = ("--config", str(self.config), "--image-root", str(self.image), "-o", str(self.manifest))
        key = ("--key", str(self.directory / "vendor.pem"))
        return self("sign-manifest", *key, "--card", "card-a", "--edition", str(version), *files, *more, status=status)

    @contextmanager
    def running(self, *options: str) -> Iterator[Process]:
        """Run the chip as a process; a test may end it before the block ends."""
        argv = [sys.executable, "-m", "nitro_emu.cli.chip", "run", str(self.chip), "--json-lines", *options]
        with Process(argv) as process:
            assert process.event("ready")["card"] == "card-a"
            yield process

    def boot(self, client: ChipClient) -> bytes:
        secret = bytearray(32)
        boot = client.boot(image_root=self.image, manifest=self.manifest, configuration=self.config, secret=secret)
        asyncio.run(boot)
        return bytes(secret)


@pytest.fixture
def commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(tmp_path, capsys=capsys, patch=monkeypatch)


# -- the process ------------------------------------------------------------------------------------------------


def test_a_chip_boots_and_attests(commands: Commands) -> None:
    signed = json.loads(commands.sign(1, "--json").stdout)
    with commands.running() as process, ChipClient.connect(commands.chip) as client:
        secret = commands.boot(client)
        public_key = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
        assert commands("key", f"{commands.chip}").stdout == base64.b64encode(public_key).decode() + "\n"
        document = asyncio.run(client.attest(nonce=b"nonce", user_data=None, public_key=public_key))
        root = load_certificate_untrusted(commands("root", f"{commands.chip}").stdout.encode(), name="root")
        pcrs = {int(name.removeprefix("PCR")): bytes.fromhex(value) for name, value in signed["pcrs"].items()}
        verify_untrusted(document, expected=Expectation(root=root, pcrs=pcrs, nonce=b"nonce", public_key=public_key))
        process.kill(signal.SIGTERM)
        assert process.wait() == 0
        assert "confined" in "\n".join(process.stderr.all())
        with pytest.raises(TrustError, match="the chip has gone"):
            asyncio.run(client.status())
    assert not (commands.chip / "chip.sock").exists()


def test_secret_and_lowest_version_survive_a_kill(commands: Commands) -> None:
    commands.sign(5)
    with commands.running() as process:
        with ChipClient.connect(commands.chip) as client:
            before = commands.boot(client)
        process.kill(signal.SIGKILL)
        process.wait()
    assert (commands.chip / "chip.sock").exists(), "it was killed"
    with commands.running(), ChipClient.connect(commands.chip) as client:
        assert asyncio.run(client.status())["minimum_version"] == 5
        commands.sign(4)
        with pytest.raises(TrustError, match="SEALED: version 4 is below 5"):
            commands.boot(client)
        commands.sign(5)
        assert commands.boot(client) == before


def test_a_changed_file_seals(commands: Commands) -> None:
    (commands.image / "srd" / "engine.py").write_text("engine = 2\n")
    with commands.running("--no-confine"), ChipClient.connect(commands.chip) as client:
        with pytest.raises(TrustError, match=r"SEALED: .* srd/engine\.py was changed"):
            commands.boot(client)
        shown = commands("status", f"{commands.chip}").stdout
        assert "SEALED" in shown
        assert "srd/engine.py was changed" in shown
        status = json.loads(commands("status", f"{commands.chip}", "--json").stdout)
        assert (status["state"], status["version"], len(status["pcrs"])) == ("SEALED", None, 16)
        assert "SEALED" in commands("log", f"{commands.chip}").stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_process_of_a_chip_is_refused(commands: Commands, number: signal.Signals) -> None:
    with commands.running() as process:
        done = commands("run", f"{commands.chip}", status=1)
        assert "a process serves this chip already" in done.stderr
        process.kill(number)
        assert process.wait() == 0


def test_another_socket(commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "other.sock"
    with commands.running("--socket", str(path), "--card-uid", "12345") as process:
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        with ChipClient.connect(path) as client:
            commands.boot(client)
            assert json.loads(commands("status", f"{path}", "--json").stdout)["state"] == "RUN"
        process.kill(signal.SIGTERM)
        assert process.wait() == 0
    assert not path.exists()


def test_systemd_is_told(commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with commands.running() as process:
            assert systemd.recv(1000).startswith(b"READY=1")
            process.kill(signal.SIGTERM)
            assert systemd.recv(1000) == b"STOPPING=1"


# -- the log ----------------------------------------------------------------------------------------------------


def test_the_log_makes_the_registers(commands: Commands) -> None:
    with commands.running() as process:
        with ChipClient.connect(commands.chip) as client:
            commands.boot(client)
            shown = commands("log", f"{commands.chip}").stdout
            assert "the registers of the running chip are what the log makes them" in shown
            assert "the card's name, card-a" in shown
            assert json.loads(commands("log", f"{commands.chip}", "--json").stdout)["state"] == "RUN"
        process.kill(signal.SIGTERM)
        process.wait()
    assert "the registers of the log's own record" in commands("log", f"{commands.chip}").stdout


def test_a_changed_log_is_found(commands: Commands) -> None:
    path = commands.chip / "boot.json"
    with commands.running(), ChipClient.connect(commands.chip) as client:
        commands.boot(client)
        record = json.loads(path.read_text())
        for position, event in enumerate(record["events"]):
            changed = [*record["events"]]
            changed[position] = {**event, "digest": "00" * 48}
            path.write_text(json.dumps({**record, "events": changed}))
            index = event["index"]
            assert f"PCR{index} of the running chip is not what the log makes it" in log_error(commands)
        path.write_text(json.dumps({**record, "events": record["events"][1:], "pcrs": {}}))
        assert "PCR8 of the running chip" in log_error(commands)


def log_error(commands: Commands) -> str:
    return commands("log", f"{commands.chip}", "--json", status=1).stderr


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"events": [1]}', '{"events": [], "pcrs": 5}', "[" * 100_000])
def test_a_log_that_is_none(commands: Commands, text: str) -> None:
    (commands.chip / "boot.json").write_text(text)
    commands("log", f"{commands.chip}", status=1)


def test_no_log(commands: Commands) -> None:
    assert "boot.json cannot be read" in commands("log", f"{commands.chip}", status=1).stderr


# -- what there is not ------------------------------------------------------------------------------------------


def test_manifests_show_registers(commands: Commands) -> None:
    shown = commands.sign(2).stdout.splitlines()
    assert shown[0].endswith("card card-a, version 2, 4 files")
    assert [line.split()[0] for line in shown[1:]] == ["PCR0", "PCR2", "PCR3", "PCR4", "PCR8"]


def test_a_manifest_of_this_software(commands: Commands) -> None:
    arguments = ("--key", f"{commands.directory}/vendor.pem", "--card", "card-a", "--edition", "1")
    files = ("--config", f"{commands.config}", "-o", f"{commands.manifest}")
    assert "files" in commands("sign-manifest", *arguments, *files).stdout


def test_failures_are_one_line(commands: Commands) -> None:
    chip, vendor = f"{commands.chip}", f"{commands.directory}/vendor.pub.pem"
    assert "no chip answers" in commands("status", chip, status=1).stderr
    assert "it has files" in commands("init", chip, "--vendor-key", vendor, "--card", "card-a", status=1).stderr
    assert "no card's name" in commands("init", f"{chip}2", "--vendor-key", vendor, "--card", "A b", status=1).stderr
    assert "exists" in commands("make-vendor-key", f"{commands.directory}/vendor.pem", status=1).stderr
    assert "cannot be read" in commands("key", f"{chip}2", status=1).stderr
    assert "cannot be read" in commands("root", f"{chip}2", status=1).stderr
    assert "cannot be used" in commands("run", f"{chip}2", status=1).stderr
    private = vendor.replace("pub.pem", "pem")
    assert "has a private key" in commands("init", f"{chip}2", "--vendor-key", private, "--card", "a", status=1).stderr
    assert "cannot be written" in commands.sign(1, "-o", "/nowhere/manifest", status=1).stderr
    assert "has no files" in commands.sign(1, "--image-root", f"{commands.directory}", status=1).stderr


def test_wrong_usage(commands: Commands) -> None:
    assert "no command given" in commands(status=2).stderr
    commands.sign(0, status=2)
    uid = str(os.geteuid() + 12345)
    assert "--card-uid needs --socket" in commands("run", f"{commands.chip}", "--card-uid", uid, status=2).stderr
