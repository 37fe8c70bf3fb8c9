"""`efa-pingpong` and `efa-bw` between two cards on loopback, as processes; every payload is compared."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from srd.perf.figures import BANDWIDTH_HEAD, LATENCY_HEAD
from tests.nitro_emu.processes import card_file, efa_tool, loopback_address, nitro_card
from tests.srd.cli.processes import Process

TOOLS = ["pingpong", "bw"]
FIGURES = {"pingpong": ("min_us", "typical_us", "p99_us"), "bw": ("peak_mb_per_s", "million_messages_per_s")}
ONE_AT_ONCE = ["pingpong", pytest.param("bw", marks=pytest.mark.long)]
"""Where the other finds the same: they differ in their figures alone."""
ENDLESS = ("--iters", "10000000")


@pytest.fixture(scope="module")
def run_dirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Two cards: their run directories."""
    with ExitStack() as started:
        directories = []
        for name in ("a", "b"):
            directory = tmp_path_factory.mktemp(name)
            vf = f"name: efa_0, address: {loopback_address()}, security: {{mode: plain}}"
            card = started.enter_context(nitro_card("run", str(card_file(directory, vfs=[vf]))))
            assert card.stdout.next(), card.stderr.all()
            directories.append(str(directory / "run"))
        yield directories[0], directories[1]


@contextmanager
def server(tool: str, run_dir: str, *options: str) -> Iterator[tuple[Process, str]]:
    """A server, and the port that it listens at."""
    with efa_tool(tool, "--run-dir", run_dir, "-p", "0", *options) as process:
        found = re.fullmatch(r"waiting for a client at TCP port (\d+)", process.stdout.next() or "")
        assert found, process.stderr.all()
        yield process, found[1]


@contextmanager
def measuring(tool: str, run_dirs: tuple[str, str], *options: str) -> Iterator[tuple[Process, Process]]:
    """Client and server."""
    with (
        server(tool, run_dirs[0]) as (serving, port),
        efa_tool(tool, "127.0.0.1", "--run-dir", run_dirs[1], "-p", port, *options) as client,
    ):
        yield client, serving


@pytest.mark.parametrize(
    ("tool", "operation"),
    [
        ("pingpong", "send"),
        ("bw", "write"),
        *(pytest.param("pingpong", operation, marks=pytest.mark.long) for operation in ("write", "read")),
        *(pytest.param("bw", operation, marks=pytest.mark.long) for operation in ("send", "read")),
    ],
)
def test_every_payload_is_right(run_dirs: tuple[str, str], tool: str, operation: str) -> None:
    options = (f"--{operation}", "--iters", "20", "-s", "4K", "--verify", "--json")
    with measuring(tool, run_dirs, *options) as (client, serving):
        rows = json.loads("\n".join(client.stdout.all()))["rows"]
        assert client.wait() == 0, client.stderr.all()
        assert serving.wait() == 0, serving.stderr.all()
        assert serving.stdout.all()[-1] == f"1 size of 20 {operation.upper()}s, every payload compared"
    assert [(row["size_bytes"], row["iterations"]) for row in rows] == [(4096, 20)]
    assert all(rows[0][name] > 0 for name in FIGURES[tool])


@pytest.mark.parametrize("tool", ONE_AT_ONCE)
def test_all_sizes_of_a_send_are_those_of_a_packet(run_dirs: tuple[str, str], tool: str) -> None:
    with measuring(tool, run_dirs, "--send", "--iters", "5", "-a", "--verify", "--json") as (client, serving):
        sizes = [row["size_bytes"] for row in json.loads("\n".join(client.stdout.all()))["rows"]]
        assert serving.wait() == 0, serving.stderr.all()
    assert sizes[:12] == [1 << shift for shift in range(1, 13)]
    assert sizes[-1] < 65536


def test_writes_up_to_8_mib(run_dirs: tuple[str, str]) -> None:
    with measuring("bw", run_dirs, "--iters", "3", "-a", "--verify", "--json") as (client, serving):
        sizes = [row["size_bytes"] for row in json.loads("\n".join(client.stdout.all()))["rows"]]
        assert serving.wait() == 0, serving.stderr.all()
    assert sizes == [1 << shift for shift in range(1, 24)]


@pytest.mark.parametrize("tool", ONE_AT_ONCE)
def test_events_instead_of_polling(run_dirs: tuple[str, str], tool: str) -> None:
    with (
        server(tool, run_dirs[0], "--events") as (serving, port),
        efa_tool(
            tool, f"127.0.0.1:{port}", "--run-dir", run_dirs[1], "--events", "--iters", "20", "--verify", "--send"
        ) as client,
    ):
        assert client.wait() == 0, client.stderr.all()
        assert serving.wait() == 0, serving.stderr.all()


@pytest.mark.parametrize(("tool", "head", "columns"), [("pingpong", LATENCY_HEAD, 9), ("bw", BANDWIDTH_HEAD, 5)])
def test_table_of_perftest(run_dirs: tuple[str, str], tool: str, head: str, columns: int) -> None:
    with measuring(tool, run_dirs, "--iters", "5") as (client, _):
        lines = client.stdout.all()
    assert lines[5] == head
    assert len(lines[6].split()) == columns
    assert lines[2].startswith(" local  address: GID fe80:4da3:")


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("tool", ONE_AT_ONCE)
def test_end_that_is_killed_ends_the_other(run_dirs: tuple[str, str], tool: str, victim: int) -> None:
    with measuring(tool, run_dirs, *ENDLESS, "--send") as ends:
        assert any("remote address" in line for line in iter(ends[0].stdout.next, None))
        ends[victim].kill(signal.SIGKILL)
        assert ends[1 - victim].wait() == 1
        (line,) = ends[1 - victim].stderr.all()
        assert line.startswith("efa-")


def test_message_that_is_too_long_for_a_send(run_dirs: tuple[str, str]) -> None:
    with measuring("pingpong", run_dirs, "-s", "1000000") as (client, serving):
        assert client.wait() == 1
        assert re.search(r"size: 1000000 is more than a SEND may have, \d+; use less", client.stderr.all()[0])
        assert serving.wait() == 1
        assert re.search(r"size: 1000000 is more than a SEND may have", serving.stderr.all()[0])


def test_client_without_its_device_asks_nobody(run_dirs: tuple[str, str]) -> None:
    with server("pingpong", run_dirs[0]) as (serving, port):
        with efa_tool("pingpong", "127.0.0.1", "--run-dir", run_dirs[1], "-p", port, "-d", "efa_9") as client:
            assert client.wait() == 1
            assert "'efa_9' is no device in" in client.stderr.all()[0]
        with efa_tool("pingpong", "127.0.0.1", "--run-dir", run_dirs[1], "-p", port, "--iters", "5") as client:
            assert client.wait() == serving.wait() == 0


def test_server_without_its_device_waits_for_nobody() -> None:
    with efa_tool("bw", "--run-dir", "/none", "-p", "0") as serving:
        assert serving.wait() == 1
        assert "no device there; start one with nitro-card run, or name its directory" in serving.stderr.all()[0]
        assert serving.stdout.all() == []


@pytest.mark.parametrize("tool", TOOLS)
def test_wrong_usage(tool: str) -> None:
    with efa_tool(tool, "-s", "0") as process:
        assert process.wait() == 2
        (line,) = process.stderr.all()
        assert line.startswith("efa-")
