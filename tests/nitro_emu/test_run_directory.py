"""nitro_emu.run_directory: one card a directory; what it removes, and what it leaves."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nitro_emu.errors import CardError
from nitro_emu.run_directory import LOCK_FILE, RunDirectory, remedy
from tests.patience import PATIENCE_S

NAMES = ("efa_0", "control")


def bind(path: Path) -> None:
    """Leave a socket at `path`, as a process that was killed does."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_claim_makes_the_directory_and_close_removes_what_was_made(tmp_path: Path) -> None:
    with RunDirectory.claim(tmp_path / "a" / "run", names=NAMES) as directory:
        bind(directory.socket("efa_0"))
        assert names(directory.path) == {"efa_0.sock", LOCK_FILE}
    assert names(tmp_path / "a") == set()


def test_close_leaves_a_directory_that_was_there_and_foreign_files(tmp_path: Path) -> None:
    with RunDirectory.claim(tmp_path, names=NAMES) as directory:
        bind(directory.socket("efa_0"))
        bind(tmp_path / "foreign.sock")
        (tmp_path / "notes").touch()
    assert names(tmp_path) == {"foreign.sock", "notes"}


def test_second_card_is_refused_until_the_first_has_gone(tmp_path: Path) -> None:
    first = RunDirectory.claim(tmp_path, names=NAMES)
    bind(first.socket("efa_0"))
    with pytest.raises(CardError, match="a card serves it already; stop it, or set another run_dir"):
        RunDirectory.claim(tmp_path, names=("efa_1",))
    assert first.socket("efa_0").exists()
    first.close()
    RunDirectory.claim(tmp_path, names=NAMES).close()


def test_sockets_of_a_killed_card_are_removed(tmp_path: Path) -> None:
    code = (
        "import os, socket, sys; from pathlib import Path; from nitro_emu.run_directory import RunDirectory\n"
        "directory = RunDirectory.claim(Path(sys.argv[1]), names=('efa_7', 'control'))\n"
        "for name in ('efa_7', 'control'): socket.socket(socket.AF_UNIX).bind(str(directory.socket(name)))\n"
        "os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=PATIENCE_S, check=False)
    assert killed.returncode == -9
    assert names(tmp_path) == {"efa_7.sock", "control.sock", LOCK_FILE}
    with RunDirectory.claim(tmp_path, names=NAMES):
        assert names(tmp_path) == {LOCK_FILE}
        assert json.loads((tmp_path / LOCK_FILE).read_text()) == {
            "pid": os.getpid(),
            "sockets": list(NAMES),
            "made": False,
        }


@pytest.mark.parametrize("record", ["", "[]", "{", '{"sockets": 3}', '{"sockets": ["../x", 3, "a/b"]}', "[" * 60_000])
def test_record_of_another_program_is_ignored(tmp_path: Path, record: str) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    bind(tmp_path / "x.sock")
    (directory / LOCK_FILE).write_text(record)
    RunDirectory.claim(directory, names=NAMES).close()
    assert (tmp_path / "x.sock").exists()


def test_file_in_place_of_a_socket_stays(tmp_path: Path) -> None:
    (tmp_path / "efa_0.sock").write_text("precious")
    RunDirectory.claim(tmp_path, names=NAMES).close()
    assert (tmp_path / "efa_0.sock").read_text() == "precious"


def test_symbolic_link_in_place_of_the_lock_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    (tmp_path / LOCK_FILE).symlink_to(tmp_path / "target")
    with pytest.raises(CardError, match="cannot be used: Too many levels of symbolic links"):
        RunDirectory.claim(tmp_path, names=NAMES)
    assert (tmp_path / "target").read_text() == "precious"


def test_claim_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CardError, match="cannot be used: Not a directory; set run_dir to another directory"):
        RunDirectory.claim(tmp_path / "file", names=NAMES)


def test_socket_that_no_card_recorded_stays(tmp_path: Path) -> None:
    bind(tmp_path / "efa_0.sock")
    with RunDirectory.claim(tmp_path, names=NAMES) as directory:
        assert (tmp_path / "efa_0.sock").exists()
        assert json.loads((tmp_path / LOCK_FILE).read_text())["sockets"] == ["control"]
        bind(directory.socket("control"))
    assert names(tmp_path) == {"efa_0.sock"}


def test_directory_that_is_kept_belongs_to_the_next_card(tmp_path: Path) -> None:
    path = tmp_path / "run"
    first = RunDirectory.claim(path, names=NAMES)
    bind(first.socket("efa_0"))
    first.keep()
    first.close()
    assert names(path) == {LOCK_FILE}
    RunDirectory.claim(path, names=NAMES).close()
    assert not path.exists(), "removed by the second, though the first had made it"


def test_remedy_names_the_cards_that_run_beside_it(tmp_path: Path) -> None:
    missing = tmp_path / "nitro-card"
    assert remedy(missing, option="--run-dir") == (
        "start one with nitro-card run, or name its directory with --run-dir"
    )
    for name in ("nitro-card-b", "nitro-card-a"):
        (tmp_path / name).mkdir()
        bind(tmp_path / name / "control.sock")
    both = f"{tmp_path}/nitro-card-a, {tmp_path}/nitro-card-b"
    assert remedy(missing, option="--run-dir") == f"cards run in {both}: name one with --run-dir"
    assert remedy(tmp_path / "nitro-card-a", option="$X") == f"cards run in {tmp_path}/nitro-card-b: name one with $X"
    for number in range(3):
        (tmp_path / f"z{number}").mkdir()
        bind(tmp_path / f"z{number}" / "control.sock")
    assert remedy(missing, option="$X") == f"cards run in {both}, {tmp_path}/z0, {tmp_path}/z1 ...: name one with $X"
