"""examples.tunnel.hosts: commands, servers that end with what started them, and errors of one line."""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples.tunnel.hosts import HERE, ExampleError, TunnelHost, require, table
from tests.patience import PATIENCE_S
from tests.ports import own_port
from tests.programs import run_to_end

SERVE = (
    "import socket, time\n"
    "with socket.create_server(('127.0.0.1', {port})):\n"
    "    open({path!r}, 'w').write('up')\n"
    "    while True: time.sleep(60)\n"
)


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def server(port: int, path: Path) -> tuple[str, ...]:
    return (sys.executable, "-c", SERVE.format(port=port, path=str(path)))


def test_command__is_quoted_for_ssh_only() -> None:
    argv = ["echo", "two words"]
    assert HERE.command(argv) == argv
    assert TunnelHost(("ip", "netns", "exec", "h1")).command(argv) == ["ip", "netns", "exec", "h1", *argv]
    assert TunnelHost(("/usr/bin/ssh", "h1")).command(argv) == ["/usr/bin/ssh", "h1", "echo 'two words'"]


def test_run__gives_output_and_the_reason_of_a_failure() -> None:
    assert HERE.run("cat", given="some text") == "some text"
    with pytest.raises(ExampleError, match=r"^sh: status 3: the last line$"):
        HERE.shell("echo before >&2; echo the last line >&2; exit 3")
    with pytest.raises(ExampleError, match=r"^sleep: not done within 0.05 s$"):
        HERE.run("sleep", "60", timeout_s=0.05)


def test_directory__is_removed() -> None:
    with HERE.directory() as path:
        HERE.write(f"{path}/file", "text")
        assert Path(path, "file").read_text() == "text"
    assert not Path(path).exists()


def test_serving__ends_the_server(tmp_path: Path) -> None:
    port = own_port()
    with HERE.serving(*server(port, tmp_path / "up"), port=port):
        assert listens(port)
    assert not listens(port)


def test_serving__a_server_that_fails() -> None:
    with (
        pytest.raises(ExampleError, match=r"^sh: status 4: no such interface$"),
        HERE.serving("sh", "-c", "echo no such interface >&2; exit 4", port=own_port()),
    ):
        pass


def test_serving__ends_with_an_example_that_is_killed(tmp_path: Path) -> None:
    port = own_port()
    program = (
        "import time\n"
        "from examples.tunnel.hosts import HERE\n"
        f"with HERE.serving(*{server(port, tmp_path / 'up')!r}, port={port}):\n"
        "    print('serving', flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=Path.cwd()) as example:
        assert example.stdout is not None
        assert example.stdout.readline() == b"serving\n"
        example.send_signal(signal.SIGKILL)
    give_up_at = time.monotonic() + PATIENCE_S
    while listens(port):
        assert time.monotonic() < give_up_at


def test_require() -> None:
    require([1], "not raised")
    with pytest.raises(ExampleError, match=r"^nothing came$"):
        require([], "nothing came")


def test_table__has_a_column_for_each_figure() -> None:
    made = table(
        [{"test": "TCP", "per_s": 12345.678, "objects": 10_000}, {"test": "UDP", "per_s": 0.12345, "objects": 1}]
    )
    assert [column.header for column in made.columns] == ["test", "per s", "objects"]
    assert [list(column.cells) for column in made.columns] == [["TCP", "UDP"], ["12,346", "0.1235"], ["10,000", "1"]]


def test_main__prints_a_row_or_the_reason() -> None:
    command = [sys.executable, "-m", "examples.tunnel.iperf3"]
    helped = run_to_end([*command, "--help"], check=True)
    assert "--server PREFIX" in helped.stdout
    failed = run_to_end([*command, "--server", shlex.join(["sh", "-c", "echo no host >&2; exit 1"]), "192.0.2.1"])
    assert failed.returncode == 1
    assert failed.stderr == "192.0.2.1: ss: status 1: no host\n"
