"""netns.base.standard_streams by the commands: streams that are closed, full, or have no reader. One line each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.srd.cli.processes import receiver

COMMANDS = {
    "srd": "from srd.command import main; main()",
    "srd-lab": "from netns.command import main; main()",
    "nitro-card": "from nitro_emu.command import nitro_card; nitro_card()",
    "efa-bw": "from nitro_emu.command import efa_bw; efa_bw()",
}
LINES = {
    "/dev/full": "the output cannot be written: No space left on device\n",
    "a pipe": "the output was closed by its reader\n",
}


def run(name: str, *arguments: str, closed: str = "", stdout: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command; `closed`: descriptors, as digits."""
    redirections = " ".join(f"{fd}>&-" for fd in closed)
    program = f"import sys; sys.argv = sys.argv[1:]; {COMMANDS[name]}"
    argv = ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-c", program, name, *arguments]
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@contextmanager
def unwritable(kind: str) -> Iterator[int]:
    if kind == "/dev/full":
        fd = os.open(kind, os.O_WRONLY)
    else:
        reader, fd = os.pipe()
        os.close(reader)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.mark.parametrize("closed", ["0", "1", "2", "012"])
def test_closed__a_file_is_sent(closed: str, tmp_path: Path) -> None:
    """libuv, which closes the event loop, ends a process that has one of its descriptors there."""
    file, output = tmp_path / "a.bin", tmp_path / "output"
    file.write_bytes(b"content")
    output.mkdir()
    with receiver(output) as (_, target):
        result = run("srd", "send", str(file), target, closed=closed, stdout=subprocess.PIPE)
    assert result.returncode == 0, result.stderr
    assert ("verified" in result.stdout) is ("1" not in closed)
    assert (output / "a.bin").read_bytes() == b"content"


@pytest.mark.parametrize(
    ("arguments", "closed", "line"),
    [
        (("send", "-", "127.0.0.1:9"), "0", "srd: -: standard input is closed\n"),
        (("recv", "-B", "127.0.0.1", "-p", "0", "-o", "-"), "1", "srd: --output -: standard output is closed\n"),
    ],
)
def test_closed__is_said_where_it_is_needed_bad_flow(arguments: tuple[str, ...], closed: str, line: str) -> None:
    result = run("srd", *arguments, closed=closed)
    assert (result.returncode, result.stderr) == (2, line)


@pytest.mark.parametrize("name", COMMANDS)
def test_closed__every_command(name: str) -> None:
    result = run(name, "--help", closed="01")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("name", COMMANDS)
def test_unwritable__every_command_bad_flow(name: str, kind: str) -> None:
    with unwritable(kind) as fd:
        result = run(name, "--help", stdout=fd)
    assert (result.returncode, result.stderr) == (1, f"{name}: {LINES[kind]}")


@pytest.mark.parametrize("kind", LINES)
def test_unwritable__events_and_text_of_a_command_bad_flow(kind: str, tmp_path: Path) -> None:
    file, output = tmp_path / "a.bin", tmp_path / "output"
    file.write_bytes(b"content")
    output.mkdir()
    with receiver(output, "--overwrite") as (_, target), unwritable(kind) as fd:
        for options in ((), ("--json-lines",)):
            result = run("srd", "send", *options, str(file), target, stdout=fd)
            assert (result.returncode, result.stderr) == (1, f"srd: {LINES[kind]}")
        result = run("srd", "recv", "-B", "127.0.0.1", "-p", "0", "--output", str(output), "--json-lines", stdout=fd)
        assert (result.returncode, result.stderr) == (1, f"srd: {LINES[kind]}")
        result = run("srd-lab", "plan", "reference", stdout=fd)
        assert (result.returncode, result.stderr) == (1, f"srd-lab: {LINES[kind]}")
