"""netns.backends.uml: one boot of a guest, and the errors that need none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import netns.backends.uml
from netns.backends.uml import _error_line, run_uml
from netns.errors import BackendError
from netns.processes import start_time_ticks
from tests.patience import wait_until
from tests.terminal import Terminal


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Have a kernel and `insmod`, which these tests do not run: their packages may be absent."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("insmod", netns.backends.uml.KERNEL):
        (programs / name).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return programs


@pytest.mark.long
def test_run_uml__output_status_files_and_a_network_of_its_own(tmp_path: Path) -> None:
    script = "echo out; echo $WORD >&2; tc qdisc add dev lo root netem delay 1ms && ls /sys/class/net > seen; exit 7"
    command = ["sh", "-c", f"cd {tmp_path} && {script}"]
    with (tmp_path / "out").open("w+b") as out, (tmp_path / "err").open("w+b") as err:
        status = run_uml(
            command, stdout=out, stderr=err, environment={"PATH": "/usr/sbin:/usr/bin:/bin", "WORD": "it's two words"}
        )
    assert (tmp_path / "out").read_bytes() == b"out\n"
    assert (tmp_path / "err").read_bytes() == b"it's two words\n"
    assert status == 7
    assert (tmp_path / "seen").read_text().split() == ["lo"]
    assert not list(Path("/tmp").glob("srd-lab-uml-*/status"))  # noqa: S108 - where guests keep their state


@pytest.mark.long
@pytest.mark.parametrize("cpu", ["with AMX", "this one"])
def test_run_uml__vector_registers_survive_page_faults(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpu: str
) -> None:
    if cpu == "with AMX":
        monkeypatch.setattr(netns.backends.uml, "_has_amx", lambda: True)
    sums = "import numpy; print(*(int(numpy.arange(1 << shift).sum()) for shift in range(8, 22)))"
    with (tmp_path / "out").open("w+b") as out:
        assert run_uml([sys.executable, "-c", sums], stdout=out) == 0
    expected = [(1 << shift) * ((1 << shift) - 1) // 2 for shift in range(8, 22)]
    assert [int(word) for word in (tmp_path / "out").read_text().split()] == expected


@pytest.mark.long
def test_run_uml__a_terminal_shows_how_far_the_boot_is_and_then_the_command_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (
        Terminal() as terminal,
        (tmp_path / "out").open("w+b") as out,
        open(terminal.slave, "wb", closefd=False) as stderr,
    ):
        monkeypatch.setattr(sys, "stderr", terminal.stream)
        assert run_uml(["sh", "-c", "echo said >&2"], stdout=out, stderr=stderr, is_shown=True) == 0
        shown = terminal.text
    assert "] srd-lab: booting linux.uml: 0:03 left: the kernel starts" in shown
    assert "left: its modules are loaded" in shown
    assert shown.endswith("\r\x1b[Ksaid\r\n")


@pytest.mark.usefixtures("installed")
def test_run_uml__without_a_compiler_bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netns.backends.uml, "_has_amx", lambda: True)
    find = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if name == "cc" else find(name, path=path))
    with pytest.raises(BackendError, match=r"^cc: not installed; install the package gcc$"):
        run_uml(["true"])


def test_run_uml__not_installed_bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netns.backends.uml, "KERNEL", "linux.none")
    with pytest.raises(BackendError, match=r"^linux.none: not installed; install the package user-mode-linux$"):
        run_uml(["true"])


@pytest.mark.usefixtures("installed")
def test_run_uml__a_kernel_that_fails_bad_flow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    boots = tmp_path / "boots"
    kernel = tmp_path / "linux.broken"
    kernel.write_text(f"#!{sys.executable}\nopen({str(boots)!r}, 'a').write('x')\nprint('Kernel panic - by design')\n")
    kernel.chmod(0o755)
    monkeypatch.setattr(netns.backends.uml, "KERNEL", str(kernel))
    with pytest.raises(BackendError, match="did not run the command: Kernel panic - by design"):
        run_uml(["true"])
    assert len(boots.read_text()) == netns.backends.uml.BOOTS


def test_error_line() -> None:
    assert _error_line("a\nKernel panic - x\n stack\n") == "Kernel panic - x"
    assert _error_line("first\nlast\n\n") == "last"
    assert _error_line("") == "nothing"


HELPED = """#!/bin/sh
sleep 1000 &
echo $$ $! >{pid_file}
exec sleep 1000
"""
RUN_HELPED = """
import tempfile, netns.backends.uml
tempfile.tempdir, netns.backends.uml.KERNEL = {state!r}, {kernel!r}
netns.backends.uml.run_uml(["true"])
"""


@pytest.mark.usefixtures("installed")
def test_run_uml__ends_with_a_killed_caller(tmp_path: Path) -> None:
    kernel, pid_file, state = tmp_path / "linux.helped", tmp_path / "pid_file", tmp_path / "state"
    kernel.write_text(HELPED.format(pid_file=pid_file))
    kernel.chmod(0o755)
    state.mkdir()
    program = RUN_HELPED.format(state=str(state), kernel=str(kernel))
    with subprocess.Popen([sys.executable, "-c", program]) as caller:
        wait_until(lambda: pid_file.exists() and len(pid_file.read_text().split()) == 2)
        pids = [int(word) for word in pid_file.read_text().split()]
        assert all(start_time_ticks(pid) for pid in pids)
        assert list(state.iterdir())
        caller.kill()
    wait_until(lambda: not any(start_time_ticks(pid) for pid in pids))
    wait_until(lambda: not list(state.iterdir()))
