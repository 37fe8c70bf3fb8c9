"""srd.cli.tunnel: who may connect is said, or nothing is started."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.srd.cli.processes import assert_fails, srd
from tests.srd.tunnel.two_ends import ends, inner

SAID_NOTHING = "nothing says who may connect: give --peers FILE"


def listen(*options: str) -> subprocess.CompletedProcess[str]:
    return srd("tunnel", "listen", "--address", "10.88.0.1/24", *options)


@pytest.mark.installed  # its metadata name the command
@pytest.mark.parametrize("options", [[], ["--plain"], ["--fallback"], ["--key", "k"], ["--route", "10.1.0.0/16"]])
def test_listen__does_not_start_unless_it_is_said_who_may_connect(options: list[str]) -> None:
    assert_fails(listen(*options), status=2, error=SAID_NOTHING)


@pytest.mark.installed
@pytest.mark.parametrize("option", ["--peers", "--psk-file", "--cert"])
def test_listen__anyone_and_some_exclude_each_other(option: str, tmp_path: Path) -> None:
    error = f"--allow-anyone and {option} exclude each other"
    assert_fails(listen("--allow-anyone", option, str(tmp_path / "file")), status=2, error=error)


@pytest.mark.root
def test_listen__says_that_anyone_may_connect(tmp_path: Path) -> None:
    with ends(tmp_path) as made:
        address = ("--address", f"{inner(0)}/24", "--bind", "192.0.2.1")  # which the host does not have
        said = made.run(0, "listen", *address, "--allow-anyone").stderr
        assert "any client may connect, whatever its key, and reach 10.88.0.0/24" in said
