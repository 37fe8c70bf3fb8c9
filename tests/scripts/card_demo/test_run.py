"""scripts/demo card as a process, as a user runs it: a lab, cards with chips, a control plane, tenants."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest
from click.testing import CliRunner

from scripts.card_demo import run as subject
from scripts.card_demo import tables
from scripts.card_demo.checks import DemoCheck
from scripts.card_demo.stage import DemoStage
from tests.patience import PATIENCE_S

ROOT: Final = Path(__file__).resolve().parents[3]
PROGRAM: Final = """
import sys
from scripts.card_demo import run
run.LAB_NAME = sys.argv.pop(1)  # a user's demonstration may be running under the default name
run.command()
"""
CHECKS: Final = {
    "transfers within a VPC": (
        ("red", "172.31.0.5 to 172.31.0.6", "600 SENDs of 1 KiB"),
        ("blue", "172.31.0.5 to 172.31.0.6", "2 RDMA WRITEs of 1 MiB"),
    ),
    "on the wire": (("the tenants' transfers", " 0 matches"), ("a file of such data by srd send --plain", " matches")),
    "denied": (
        ("red-1 to red-3", "EINVAL"),
        ("red-1 to blue-3", "EINVAL"),
        ("red-4 to red-1", "LOCAL_ERROR_UNREACH_REMOTE; card-h1: 1 alarm"),
        ("red-1 to red-2, under way", "LOCAL_ERROR_UNREACH_REMOTE after"),
    ),
    "attested": (
        ("card-h1's document", "verified"),
        ("for another nonce", "refused: the nonce"),
        ("with the root of card-h2", "refused: the document's root"),
        ("with one bit of PCR 0 changed", "refused: the COSE message's signature"),
    ),
    "tampered with": (
        ("a byte of its settings changed", "SEALED: the configuration card-h1.yaml"),
        ("a byte of its software changed", "SEALED: the image", "nitro_emu/__init__.py was changed"),
        ("the signed manifest of version 1", "SEALED: version 1 is below 2"),
        ("as it was signed", "runs"),
    ),
}


def start(*arguments: str, directory: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "400", "TMPDIR": str(directory)}
    command = [sys.executable, "-c", PROGRAM, f"cd-{os.getpid()}", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=4 * PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out, err


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory for files of the demonstration. pytest's own may be too long for the path of a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="cd-") as name:
        yield Path(name)


@pytest.mark.root
def test_demo_card__everything_comes_out_as_expected_over_a_lossy_fabric(short_path: Path) -> None:
    status, out, err = ended(start("--share", "0.03", "--loss", "2", directory=short_path))
    assert status == 0, err + out
    assert "4 paths, 2 % loss on each spine" in out
    assert re.search(r"card-h1 +efa_0", out)
    for title, rows in CHECKS.items():
        part = out[out.index(f"\n{title}") :]
        for words in rows:
            assert re.search(".*".join(map(re.escape, words)) + r".* yes *$", part, re.MULTILINE), (words, out)
    assert not re.search(" NO *$", out, re.MULTILINE), out
    assert not list(short_path.iterdir()), "files are left"


@pytest.mark.root
@pytest.mark.long
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_demo_card__a_signal_ends_all_of_it(short_path: Path, number: signal.Signals, status: int) -> None:
    process = start("--share", "0.03", directory=short_path)
    assert process.stdout is not None
    assert process.stderr is not None
    backstop = threading.Timer(4 * PATIENCE_S, process.kill)
    backstop.start()
    while not process.stdout.readline().startswith("transfers"):  # a line at least before the end of the output
        assert process.poll() is None, process.stderr.read()
    backstop.cancel()
    process.send_signal(number)
    assert ended(process)[0] == status
    assert not list(short_path.iterdir()), "files are left"
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [command for command in commands if os.fsencode(short_path) in command], "processes are left"


def test_demo_card__bad_usage_is_one_line(tmp_path: Path) -> None:
    status, _, err = ended(start("--loss", "much", directory=tmp_path))
    assert status == 2
    assert err.startswith("demo-card: ")
    assert len(err.splitlines()) == 1


@contextmanager
def no_lab() -> Iterator[SimpleNamespace]:
    yield SimpleNamespace(backend="none", topology=SimpleNamespace(spines=()))


@pytest.mark.parametrize("outcome", ["as expected", "not as expected"])
def test_demo_card__what_is_not_as_expected_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    as_expected = outcome == "as expected"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subject, "Lab", SimpleNamespace(up=lambda _: no_lab()))
    monkeypatch.setattr(DemoStage, "build", lambda _: None)
    monkeypatch.setattr(subject, "_show", lambda *_, share: as_expected and share == 1)
    result = CliRunner().invoke(subject.command)
    assert result.exit_code == (0 if as_expected else 1)
    assert result.stderr == ("" if as_expected else "demo-card: not everything came out as expected\n")


def test_tables__what_is_not_as_expected_stands_out(capsys: pytest.CaptureFixture[str]) -> None:
    tables.print_checks(
        "tried", [DemoCheck("this", "done", as_expected=True), DemoCheck("that", "done", as_expected=False)]
    )
    out = capsys.readouterr().out
    assert re.search(r"this +done +yes", out)
    assert re.search(r"that +done +NO", out)
