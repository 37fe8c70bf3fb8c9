"""nitro_emu.examples.messages: messages through two cards, compared; mistakes are one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nitro_emu.examples.messages import MESSAGE_BYTES, MOST
from tests.nitro_emu.cards import running_card
from tests.nitro_emu.processes import loopback_vf
from tests.srd.cli.processes import Process

GID = "00" * 16


def program(*arguments: str | Path) -> Process:
    return Process([sys.executable, "-m", "nitro_emu.examples.messages", *map(str, arguments)])


@pytest.fixture(scope="module")
def run_dirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Those of two cards, which encrypt."""
    with ExitStack() as cards:
        one, two = (
            cards.enter_context(running_card(tmp_path_factory.mktemp(name), vfs=[loopback_vf()])) for name in "ab"
        )
        yield one.run_dir, two.run_dir


@pytest.mark.parametrize("messages", [["one", "two", "Grüße"], ["x" * MESSAGE_BYTES] * MOST], ids=["few", "most"])
def test_messages__arrive(run_dirs: tuple[Path, Path], messages: list[str]) -> None:
    with program("receive", "--run-dir", run_dirs[0], "efa_0", str(len(messages))) as receiver:
        address = receiver.stdout.next() or ""
        with program("send", "--run-dir", run_dirs[1], "efa_0", address, *messages) as sender:
            assert (sender.wait(), receiver.wait()) == (0, 0), sender.stderr.all() + receiver.stderr.all()
        assert sorted(receiver.stdout.all()[-len(messages) :]) == sorted(messages)


def test_messages__with_a_wrong_qkey(run_dirs: tuple[Path, Path]) -> None:
    with program("receive", "--run-dir", run_dirs[0], "efa_0", "1") as receiver:
        gid, qpn, qkey = (receiver.stdout.next() or "").split("/")
        address = f"{gid}/{qpn}/{int(qkey) ^ 1}"
        with program("send", "--run-dir", run_dirs[1], "efa_0", address, "guess") as sender:
            assert sender.wait() == 1
            assert "a request ended with REM_INV_RD_REQ_ERR" in sender.stderr.all()[0]
        assert receiver.popen.poll() is None


@pytest.mark.parametrize(
    ("address", "messages", "line"),
    [
        ("10.0.0.1:7000", ["a"], "10.0.0.1:7000: is no GID/QPN/QKEY; take what the receiver prints"),
        (f"{GID}/1/x", ["a"], "is no GID/QPN/QKEY"),
        (f"{GID}/1/2", ["a" * (MESSAGE_BYTES + 1)], f"up to {MOST} messages of up to {MESSAGE_BYTES} bytes"),
        (f"{GID}/1/2", ["a"] * (MOST + 1), f"up to {MOST} messages"),
    ],
)
def test_mistake__is_one_line(run_dirs: tuple[Path, Path], address: str, messages: list[str], line: str) -> None:
    with program("send", "--run-dir", run_dirs[0], "efa_0", address, *messages) as sender:
        assert sender.wait() == 2
        (said,) = sender.stderr.all()
        assert line in said
