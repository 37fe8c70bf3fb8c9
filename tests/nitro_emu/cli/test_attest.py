"""`nitro-card attest` and `update`, of a fake card in this process: with a chip, and without."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nitro_emu.card.control import CardControlServer
from nitro_emu.errors import TrustError
from nitro_emu.log_ring import LogRing
from nitro_emu.trust.audit_log import AuditLog, examine_log_untrusted
from tests.nitro_emu.fake_card import FakeCard, config_in
from tests.patience import PATIENCE_S

Called = Callable[..., subprocess.CompletedProcess[str]]

DOCUMENT = bytes(range(256))


@pytest.fixture
def card(tmp_path: Path) -> Iterator[FakeCard]:
    """A card whose control socket another thread serves, with an audit log."""
    made = FakeCard(config_in(tmp_path))
    made.document = DOCUMENT
    ready, loop, end = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        with AuditLog(tmp_path / "audit.log") as audit:
            server = CardControlServer(made, log=LogRing(), audit=audit, image="ab" * 48)
            await server.start()
            ready.set()
            await end.wait()
            await server.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(PATIENCE_S)
    yield made
    loop.call_soon_threadsafe(end.set)
    thread.join(PATIENCE_S)
    loop.close()


@pytest.fixture
def at(tmp_path: Path) -> tuple[str, str]:
    return "--run-dir", str(tmp_path)


@pytest.mark.usefixtures("card")
def test_document_is_base64_on_stdout(called: Called, at: tuple[str, str]) -> None:
    done = called("attest", *at, "--nonce", "00ff")
    assert (done.returncode, done.stderr) == (0, "")
    assert base64.b64decode(done.stdout, validate=False) == DOCUMENT
    assert done.stdout.count("\n") == 1


@pytest.mark.usefixtures("card")
def test_document_is_written_raw(called: Called, at: tuple[str, str], tmp_path: Path) -> None:
    done = called("attest", *at, "--output", str(tmp_path / "doc"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "doc").read_bytes() == DOCUMENT


def test_what_the_document_is_to_repeat(called: Called, at: tuple[str, str], tmp_path: Path, card: FakeCard) -> None:
    (tmp_path / "data").write_bytes(b"data")
    assert called("attest", *at, "--nonce", "0A").returncode == 0
    assert called("attest", *at, "--user-data", "0b").returncode == 0
    assert called("attest", *at, "--user-data", f"@{tmp_path / 'data'}").returncode == 0
    assert card.attested == [
        {"nonce": b"\x0a", "user_data": None},
        {"nonce": None, "user_data": b"\x0b"},
        {"nonce": None, "user_data": b"data"},
    ]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--nonce", "xy"], "Invalid value for '--nonce': 'xy' is not hexadecimal"),
        (["--user-data", "0"], "Invalid value for '--user-data': '0' is not hexadecimal"),
        (["--nonce", "00" * 1025], "Invalid value for '--nonce': has 1025 bytes; at most 1024 are taken"),
        (
            ["--user-data", "@/none"],
            "Invalid value for '--user-data': /none cannot be read: No such file or directory; name another file",
        ),
        (
            ["--user-data", "@/dev/zero"],
            "Invalid value for '--user-data': /dev/zero is no regular file; name one",
        ),
    ],
)
def test_wrong_arguments_are_one_line_and_status_2(called: Called, arguments: list[str], error: str) -> None:
    done = called("attest", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"nitro-card: {error}\n")


def test_card_without_a_chip_says_that_nothing_proves_it(
    called: Called, at: tuple[str, str], tmp_path: Path, card: FakeCard
) -> None:
    card.document = None
    done = called("attest", *at, "--nonce", "00")
    statement = json.loads(done.stdout)
    assert (done.returncode, statement["signed"], statement["nonce"]) == (0, False, "00")
    assert done.stderr == "nitro-card: nothing proves this statement: this card has no security chip\n"
    done = called("attest", *at, "--output", str(tmp_path / "doc"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"nitro-card: {tmp_path}/doc: not written: there is no signed document (this card has no security chip); leave "
        "out --output to see more\n"
    )
    assert not (tmp_path / "doc").exists()


@pytest.mark.usefixtures("card")
def test_document_that_cannot_be_written_is_one_line(called: Called, at: tuple[str, str]) -> None:
    done = called("attest", *at, "--output", "/none/doc")
    assert (done.returncode, done.stderr) == (
        1,
        "nitro-card: /none/doc: cannot be written: No such file or directory\n",
    )


def test_update_names_the_manifest_as_the_card_finds_it(
    called: Called, at: tuple[str, str], tmp_path: Path, card: FakeCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = called("update", *at, "card.manifest")
    assert (done.returncode, done.stdout.split()) == (0, ["version", "1"])
    assert json.loads(called("update", *at, "--json", "/m").stdout) == {"version": 2}
    assert card.manifests == [str(tmp_path / "card.manifest"), "/m"]


def test_update_that_is_refused_is_one_line(
    called: Called, at: tuple[str, str], card: FakeCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_manifest: str) -> None:
        raise TrustError("SEALED: version 3 is older than 4")

    monkeypatch.setattr(card, "update", refuse)
    done = called("update", *at, "/m")
    assert (done.returncode, done.stderr.endswith("SEALED: version 3 is older than 4\n")) == (1, True)


@pytest.mark.usefixtures("card")
def test_audit_head_is_what_verify_finds(called: Called, at: tuple[str, str], tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    assert called("update", *at, "/m").returncode == 0
    document = tmp_path / "head"
    shown = json.loads(called("audit", "head", *at, "--json", "-o", str(document)).stdout)
    assert document.read_text() == f"{shown['records']} {shown['head']}", "as the chip has signed it"
    assert (shown["file"], shown["records"]) == (str(log), 1)
    assert called("update", *at, "/n").returncode == 0
    done = called("audit", "verify", str(log), "--head", shown["head"], "--json")
    assert json.loads(done.stdout)["records_after_head"] == examine_log_untrusted(log).records - 1 > 0
