"""`srd perf latency`, `rate`, `write` and `read` as processes: perftest's tables, JSON, and what ends them."""

from __future__ import annotations

import json
import signal

import pytest

from netns.lab.lab import Lab
from srd.perf.figures import BANDWIDTH_HEAD, LATENCY_HEAD
from srd.perf.sweep.plan import ALL_SIZES
from tests.programs import run_to_end
from tests.srd.cli.perf_ends import HOST, TWO_MACHINES, server
from tests.srd.cli.processes import Called, Process, assert_fails, command, srd

TABLES = ["latency", "rate", "write", "read"]
# A kernel may allow only root to choose cubic.
OVER_TCP = [pytest.param(name, ("--tcp",), marks=pytest.mark.root) for name in ("latency", "rate")]


def table(name: str, port: str, *options: str, host: str = HOST) -> list[str]:
    return ["perf", name, host, "--plain", "--port", port, *options]


@pytest.mark.parametrize("name", TABLES)
def test_table__of_all_sizes_has_perftests_columns(name: str) -> None:
    with server() as (process, port):
        result = srd(*table(name, port, "--iters", "2", "--verify"))
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""
        assert f"{name} over SRD, sizes: 23" in (process.stdout.next() or "") + (process.stdout.next() or "")
    _, title, _, head, *rows, _ = result.stdout.splitlines()
    assert "payload compared" in title
    assert ("half of each round trip" in title) is (name == "latency")
    assert head == (LATENCY_HEAD if name == "latency" else BANDWIDTH_HEAD)
    assert [int(row.split()[0]) for row in rows] == [*ALL_SIZES]
    assert {len(row.split()) for row in rows} == {head.count("[") + 2}
    assert {row.split()[1] for row in rows} == {"2"}


@pytest.mark.parametrize(("name", "more"), [*((name, ()) for name in TABLES), *OVER_TCP])
def test_table__as_json(name: str, more: tuple[str, ...]) -> None:
    with server() as (_, port):
        result = srd(*table(name, port, "-J", "-s", "64", "-s", "8K", "-t", "0.05", *more))
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert [row["size_bytes"] for row in found["rows"]] == [64, 8192]
    assert all(row["iterations"] > 0 and row["remote_cpu_s"] > 0 for row in found["rows"])
    assert found["start"]["test"]["operation"] == name
    assert found["start"]["test"]["protocol"] == ("TCP" if more else "SRD")
    assert found["start"]["connecting_to"] == {"host": HOST, "port": int(port)}


@pytest.mark.parametrize("name", ["rate", pytest.param("read", marks=pytest.mark.long)])
def test_table__a_client_that_is_stopped_or_killed_leaves_the_server(name: str) -> None:
    with server() as (_, port):
        for number, status in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
            with Process(command(*table(name, port, *["-s", "64"], "-t", "600"))) as stopped:
                stopped.line("#bytes", of=stopped.stdout)
                stopped.kill(number)
                assert stopped.wait() == status
                assert stopped.stderr.all() == (["srd: stopped by SIGINT"] if number == signal.SIGINT else [])
            while (result := srd(*table(name, port, "-s", "64", "--iters", "5"))).returncode:
                assert "busy" in result.stderr


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("rate", ["-s", "64", "-a"], "--size and --all exclude each other"),
        ("rate", ["--iters", "5", "-t", "1"], "--iters and --time exclude each other"),
        ("rate", ["-C", "bbr"], "give --tcp, too"),
        ("rate", ["-s", "17M"], "too large"),
        ("rate", ["-s", "0"], "too small"),
        ("rate", ["--iters", "0"], "--iters"),
        ("rate", ["-t", "0"], "one of them"),
        ("rate", ["-t", "601"], "at most 600 s"),
        ("rate", ["-P", "129"], "129"),
        ("rate", ["-P", "2", "--tcp"], "TCP measures rate with one"),
        ("write", ["-s", "16M", "-P", "5"], "registered memory"),
        ("write", ["--tcp"], "--tcp"),
        ("latency", ["-P", "2"], "-P"),
        ("latency", ["--tcp", "-C", "a/b"], "a/b"),
    ],
)
def test_table__bad_flow(called: Called, name: str, options: list[str], error: str) -> None:
    assert_fails(called("perf", name, HOST, *options), status=2, error=error)


@pytest.mark.root
@pytest.mark.lab(TWO_MACHINES)
def test_tables_between_two_machines(lab: Lab) -> None:
    there = lab.address("far")
    with server(host=there, within=lab.command("far", [])) as (_, port):
        for name in TABLES:
            argv = command(*table(name, port, "--iters", "20", "--verify", "-s", "64", "-s", "8M", "-J", host=there))
            result = run_to_end(lab.command("near", argv))
            assert result.returncode == 0, (result.stdout, result.stderr)
            assert [row["iterations"] for row in json.loads(result.stdout)["rows"]] == [20, 20]
