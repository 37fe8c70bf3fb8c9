"""`srd-lab uml`: its arguments; the guest is tested in tests/netns/backends/test_uml.py."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import netns.cli.rootless
from netns.cli import main


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["uml"], 2, "Missing argument 'COMMAND...'"),
        (["uml", "--memory", "big", "true"], 2, "'big' is not a number with a unit (for example 256M)"),
        *(([command, "--"], 2, "Missing argument 'COMMAND...'") for command in ("uml", "rootless")),
        *(([command, "nosuch"], 1, "srd-lab: nosuch: no such command") for command in ("uml", "rootless")),
    ],
)
def test_uml_and_rootless__bad_flow(arguments: list[str], status: int, message: str) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == status
    assert message in done.output


def test_uml__gives_the_command_and_takes_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[str], int]] = []

    def run(command: list[str], *, memory_bytes: int, is_shown: bool) -> int:
        assert is_shown
        seen.append((command, memory_bytes))
        return 9

    monkeypatch.setattr(netns.cli.rootless, "run_uml", run)
    done = CliRunner().invoke(main, ["uml", "--memory", "0.5G", "--", "sh", "-c", "exit 9"])
    assert done.exit_code == 9
    assert seen == [(["sh", "-c", "exit 9"], 512 << 20)]
