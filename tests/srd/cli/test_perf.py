"""`srd perf` as processes, as a user runs it: over loopback, and between two namespaces."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from netns.lab.lab import Lab
from srd.perf.tcp_socket import CUBIC, why_unavailable
from tests.programs import run_to_end
from tests.srd.cli.perf_ends import HOST, TWO_MACHINES, server
from tests.srd.cli.processes import Called, Process, assert_fails, command, srd


def client(port: str, *options: str, host: str = HOST) -> list[str]:
    return ["perf", "client", host, "--plain", "--port", port, *options]


def report(port: str, *options: str) -> dict[str, Any]:
    """Run a client to its end; return its report."""
    result = srd(*client(port, "--json", *options))
    assert result.returncode == 0, (result.stdout, result.stderr)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_client__text_and_output_of_the_server() -> None:
    with server() as (_, port):
        result = srd(*client(port, "--bytes", "3M", "--verify", "--get-server-output", "--parallel", "2"))
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    own, _, servers = result.stdout.partition("Server output:")
    assert f"Connecting to host {HOST}, port {port}" in own
    assert [line.split()[-1] for line in own.splitlines() if line.endswith(("sender", "receiver"))] == [
        *["sender", "receiver"] * 3
    ]
    assert "Accepted connection from" in servers
    assert servers.rstrip().endswith("srd perf done.")


@pytest.mark.root  # TCP: a kernel may allow only root to choose cubic
def test_client__several_tests_of_one_server() -> None:
    with server() as (_, port):
        for options in (
            ["--tcp", "-C", CUBIC],
            ["--bidir"],
            ["--reverse", "--tcp"],
            ["-t", "0.2", "-b", "10M", "-l", "1K"],
        ):
            size = [] if "-t" in options else ["-n", "2M"]
            found = report(port, *size, *options)
            end = found["end"]
            assert end["sum_sent"]["bytes"] == end["sum_received"]["bytes"] > 0
            assert found["start"]["test_start"]["protocol"] == ("TCP" if "tcp" in str(options) else "SRD")
            assert end.get("sender_tcp_congestion") == (CUBIC if "tcp" in str(options) else None)


def test_server__one_off_prints_a_document_into_a_file(tmp_path: Path) -> None:
    log = tmp_path / "server.json"
    argv = command("perf", "server", "--plain", "--bind", HOST, "-p", "0", "--one-off", "--json", "--logfile", str(log))
    with Process(argv) as process:
        port = (process.stderr.next() or "").rpartition(":")[2]
        found = report(port, "-n", "1M", "--get-server-output")
        assert process.wait() == 0
    assert json.loads(log.read_text()) == found["server_output_json"]
    assert found["server_output_json"]["end"]["streams"][0]["receiver"]["bytes"] == 1 << 20


def test_server__keys_and_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with Process(command("perf", "server", "--bind", HOST, "--port", "0")) as process:
        hint = process.stderr.next() or ""
        target = hint.partition("srd perf client ")[2]
        result = srd("perf", "client", target, "-n", "1M")
        assert result.returncode == 0, result.stderr
        other = srd("perf", "client", f"{target.partition('#')[0]}#{'A' * 43}", "-n", "1M")
        assert_fails(other, status=1, error="key")


def test_server__goes_on_when_a_client_is_killed() -> None:
    with server() as (process, port):
        with Process(command(*client(port, "--time", "600"))) as killed:
            killed.line("Interval", of=killed.stdout)
            busy = srd(*client(port, "--bytes", "1M", "--json"))
            assert busy.returncode == 1
            assert "busy" in json.loads(busy.stdout)["error"]
            killed.kill(signal.SIGKILL)
        while (result := srd(*client(port, "--bytes", "1M"))).returncode:
            assert "busy" in result.stderr
        process.kill(signal.SIGTERM)
        assert process.wait() == 0


def test_client__that_is_stopped_prints_what_it_knows() -> None:
    with server() as (process, port):
        with Process(command(*client(port, "--time", "600", "-i", "0.1"))) as stopped:
            stopped.line("0.10-", of=stopped.stdout)
            stopped.kill(signal.SIGINT)
            assert stopped.wait() == 130
            assert stopped.stdout.all()[-2].endswith("sender")
            assert stopped.stderr.all() == ["srd: stopped by SIGINT"]
        assert "closed" in (process.stderr.next() or "") + (process.stderr.next() or "")
    with server() as (process, port), Process(command(*client(port, "--time", "600", "--json"))) as stopped:
        process.line(" 0.00-", of=process.stdout)  # an interval
        stopped.kill(signal.SIGINT)
        assert stopped.wait() == 130
        found = json.loads("\n".join(stopped.stdout.all()))
    assert found["error"] == "interrupt - the client has terminated"
    assert "sum_sent" in found["end"]


def test_client__reverse_and_ipv4_at_a_server_of_both() -> None:
    with server(host="::") as (process, port):
        result = srd(*client(port, "-n", "1M", "-R", "--get-server-output"))
        assert result.returncode == 0, result.stderr
        assert f"Reverse mode, remote host {HOST} is sending" in result.stdout
        assert f"Accepted connection from {HOST}, port" in result.stdout
        assert f"local {HOST} port {port} connected to {HOST}" in result.stdout.partition("Server output")[2]
        assert "\n\n\n" not in result.stdout
        with Process(command(*client(port, "-t", "600"))) as killed:
            killed.line("Interval", of=killed.stdout)
            killed.kill(signal.SIGINT)
            killed.wait()
        process.stderr.next()
        assert (process.stderr.next() or "").count(HOST) == 1


@pytest.mark.parametrize("options", [["-n", "1M"], ["-n", "1M", "--json"]])
def test_client__a_log_that_cannot_be_written(options: list[str]) -> None:
    with server() as (_, port):
        result = srd(*client(port, *options, "--logfile", "/dev/full"))
        assert_fails(result, status=1, error="--logfile /dev/full: cannot be written (No space left on device)")


def test_client__no_such_congestion_control_at_the_server() -> None:
    with server() as (_, port):
        result = srd(*client(port, "--tcp", "-C", "nosuchcontrol"))
        assert_fails(
            result, status=1, error="at the server: tcp: this kernel has no congestion control 'nosuchcontrol'"
        )


def test_client__no_server() -> None:
    assert_fails(srd(*client("9", "--connect-timeout", "100ms")), status=1, error="127.0.0.1:9")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["-t", "1", "-n", "1M"], "--time and --bytes exclude each other"),
        (["-R", "--bidir"], "--reverse and --bidir exclude each other"),
        (["-n", "1M", "-O", "1"], "omitted"),
        (["-t", "0"], "--time 0"),
        (["-t", "2days"], "not a time"),
        (["-t", "100000"], "too long; at most 86400 s"),
        (["-P", "129"], "129"),
        (["-P", "65", "--bidir"], "number of streams"),
        (["-l", "17M"], "too large"),
        (["-l", "2M", "--tcp"], "length of a block of TCP"),
        (["-b", "fast"], "not a number"),
        (["-b", "-1"], "too slow; at least 0"),
        (
            ["-b", "100K", "-l", "1M"],
            "--length 1048576: takes 83.9 s at --bitrate 100000, which cannot be kept; give at most 6250",
        ),
        (["-i", "0.01"], "too short"),
        (["-C", "cubic"], "give --tcp or --mptcp"),
        (["--tcp", "--mptcp"], "--tcp and --mptcp exclude each other"),
        (["--tcp", "-C", "a/b"], "a/b"),
        (["--plain", "--psk-file", "x"], "exclude each other"),
        (["--paths", "65"], "65"),
    ],
)
def test_client__bad_flow(called: Called, options: list[str], error: str) -> None:
    assert_fails(called("perf", "client", HOST, *options), status=2, error=error)


def test_client__no_fingerprint(called: Called) -> None:
    assert_fails(called("perf", "client", "host#short"), status=2, error="fingerprint of 43 characters")


def test_server__port_in_use() -> None:
    with server() as (_, port):
        assert_fails(srd("perf", "server", "--plain", "--bind", HOST, "--port", port), status=1, error=port)


@pytest.mark.root
@pytest.mark.lab(TWO_MACHINES)
def test_between_two_machines(lab: Lab) -> None:
    there = lab.address("far")
    mptcp = [] if why_unavailable(algorithm=CUBIC, mptcp=True) else [["--mptcp"]]
    with server(host=there, within=lab.command("far", [])) as (_, port):
        for options in ([], ["--tcp"], *mptcp, ["-R", "--bind", lab.address("near")]):
            argv = command(*client(port, "-n", "5M", "--verify", "--json", *options, host=there))
            result = run_to_end(lab.command("near", argv))
            assert result.returncode == 0, (result.stdout, result.stderr)
            found = json.loads(result.stdout)
            assert found["end"]["sum_received"]["bytes"] == 5 << 20
            connected = found["start"]["connected"][0]
            assert (connected["local_host"], connected["remote_host"]) == (lab.address("near"), there)


@pytest.mark.parametrize("options", [[], pytest.param(["--reverse"], marks=pytest.mark.long), ["--tcp"]], ids=str)
@pytest.mark.root  # TCP: a kernel may allow only root to choose cubic
def test_client__a_low_rate_is_kept_from_the_first_block_on(options: list[str]) -> None:
    with server() as (_, port):
        found = report(port, "-t", "1", "-b", "100K", *options)
    sent = found["end"]["sum_sent"]
    assert 0 < sent["bytes"] * 8 / sent["seconds"] / 100_000 < 1.1, "less only while the machine is busy"
