"""`--metrics`, `srd metrics` and `srd top`, as processes and as text."""

from __future__ import annotations

import json
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from rich.console import Console

from srd.cli.top import headline, screen
from srd.errors import SrdError
from srd.metrics.sample import PathSample, PeerSample, Sample
from tests.patience import PATIENCE_S
from tests.srd.cli.processes import Called, Process, assert_fails, command, receiver, receives, srd
from tests.srd.metrics.test_exposition import families

metrics_module = import_module("srd.cli.metrics")  # its package has a command of that name


def metrics_address(process: Process) -> str:
    """Return what a process says first."""
    line = process.stderr.next()
    assert line is not None
    return line.split("/")[2]


def test_recv__is_seen_by_metrics_and_top(output: Path, inputs: Path, called: Called) -> None:
    path = inputs / "a.bin"
    path.write_bytes(bytes(3_000_000))
    argv = command(*receives(output, "--plain", "--json-lines"))
    with Process([*argv, "--metrics", "127.0.0.1:0"]) as process:
        listening = process.event("listening")
        metrics = listening["metrics"]
        assert process.stderr.next() == f"srd recv: metrics at http://{metrics}/metrics"
        assert srd("send", str(path), f"127.0.0.1:{listening['port']}", "--plain").returncode == 0
        process.event("received")
        result = called("metrics", metrics, "--prometheus")
        assert (result.returncode, result.stderr) == (0, "")
        found = families(result.stdout, as_openmetrics=True)
        read = {sample.name: sample.value for _, _, samples in found.values() for sample in samples}
        assert read["srd_recv_bytes_total"] > 3_000_000
        result = called("top", metrics, "--interval", "100ms", "--each-path")
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.splitlines()[0].startswith("srd recv on 127.0.0.1:0: 0 peer(s); sent 0 bit/s, received ")
        result = called("top", metrics, "--json-lines", "--interval", "100ms", "--count", "2")
        assert [json.loads(line)["endpoint"]["rx_pkts"] for line in result.stdout.splitlines()] == [
            read["srd_rx_pkts_total"]
        ] * 2
        with Process(command("top", metrics, "--interval", "100ms", "--count", "100000")) as top:
            assert top.stdout.next() is not None
            process.kill(signal.SIGTERM)
            assert process.wait() == 0
            assert top.wait() == 0
            assert top.stderr.all() == [f"srd top: {metrics}: has ended"]
    for name in ("metrics", "top"):
        assert_fails(called(name, metrics), status=1, error=f"{metrics}: nothing serves metrics there; start it with ")


def test_recv__a_metrics_port_that_is_taken_bad_flow(output: Path) -> None:
    with receiver(output, "--metrics", "127.0.0.1:0", "--plain") as (process, _):
        address = metrics_address(process)
        result = srd(*receives(output, "--metrics", address))
        assert_fails(result, status=1, error=f"--metrics {address}: cannot listen (")
        assert result.stderr.endswith("; choose another\n")


def test_perf__both_ends_have_metrics(called: Called) -> None:
    argv = command("perf", "server", "--plain", "--bind", "127.0.0.1", "--port", "0", "--one-off")
    with Process([*argv, "--metrics", "127.0.0.1:0"]) as server:
        port = server.line("listening on", of=server.stdout).rpartition(":")[2]
        metrics = metrics_address(server)
        client = command("perf", "client", "127.0.0.1", "--plain", "--port", port, "--time", "30")
        with Process([*client, "--metrics", "127.0.0.1:0"]) as process:
            for address, name in ((metrics, "rx_bytes"), (metrics_address(process), "tx_bytes")):
                result = called("top", address, "--json-lines", "--count", "2", "--interval", "300ms")
                first, second = (json.loads(line)["endpoint"][name] for line in result.stdout.splitlines())
                assert second >= first, result
            process.kill(signal.SIGTERM)
            process.wait()


def test_metrics__something_else_answers_bad_flow(called: Called) -> None:
    assert_fails(called("top", "127.0.0.1:99999"), status=2, error="is not HOST, or HOST:PORT")
    assert_fails(called("top", "127.0.0.1:9", "--interval", "1ms"), status=2, error="1ms is too short; at least 0.1 s")
    assert_fails(called("metrics", "nowhere.invalid:9400"), status=1, error="nowhere.invalid:9400: cannot be read: ")


def test_ask__an_answer_that_is_too_long_is_not_shown_in_part_bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing would look like metrics that are not there."""
    monkeypatch.setattr(metrics_module, "MAX_ANSWER_BYTES", 1 << 20)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def answer(size_bytes: int) -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % size_bytes)
                connection.sendall(b"x" * size_bytes)

        address = server.getsockname()
        serving = pool.submit(answer, 1 << 20)
        assert metrics_module.ask(address, "/metrics") == "x" * (1 << 20)
        serving.result(PATIENCE_S)
        serving = pool.submit(answer, (1 << 20) + 1)
        with pytest.raises(SrdError, match="answers more than 1 MiB to /metrics"):
            metrics_module.ask(address, "/metrics")
        serving.result(PATIENCE_S)


def peer(number: int, *, sent: int, paths: tuple[PathSample, ...] = ()) -> PeerSample:
    return PeerSample(number, "192.0.2.1:7000\x1b[31m", sent, 2 * sent, 7, 0.0015, 1 << 20, 1024, paths)


def path(number: int, state: str = "active") -> PathSample:
    return PathSample(number, state, None if number else 0.0005, 2048, 1000 * number, 1, 2, 3)


def shown(*samples: Sample, with_paths: bool = False, columns: int = 120) -> str:
    console = Console(width=columns)
    with console.capture() as capture:
        console.print(screen(*samples, with_paths=with_paths, columns=columns))
    return capture.get()


def test_screen__rates_of_the_interval() -> None:
    before = Sample("t", 10.0, 1, 1_000_000, 0, 0, (peer(4, sent=1000),))
    now = Sample(
        "t", 12.0, 70, 3_500_000, 0, 5, (peer(4, sent=251_000, paths=(path(0), path(1, "suspect"))), peer(9, sent=9))
    )
    text = shown(before, now, with_paths=True)
    assert "t: 70 peer(s), 68 not shown; sent 10.00 Gbit/s" not in text
    assert "t: 70 peer(s), 68 not shown; sent 10 Mbit/s, received 0 bit/s; 5 datagrams dropped here" in text
    rows = [line for line in text.splitlines() if line.startswith("192.0.2.1:7000\\x1b[31m")]
    assert rows[0].split()[1:3] == ["1M", "2M"]
    assert rows[0].rstrip().endswith("1, 1 suspect")
    assert rows[1].split()[1] == "0", "it was not there before"
    assert any(
        line.split()[0] == "1" and line.rstrip().endswith("suspect") for line in text.splitlines() if line.strip()
    )
    assert "\x1b" not in text


@pytest.mark.parametrize("address", ["255.255.255.255:65535", "[2001:db8:1111:2222:3333:4444:5555:6666]:65535"])
def test_screen__is_complete_at_80_columns(address: str) -> None:
    busy = replace(
        peer(4, sent=10**12, paths=tuple(path(number) for number in range(32))),
        address=address,
        retrans_pkts=234_567,
        smoothed_rtt_s=0.123456,
        cwnd_bytes=123_456 << 10,
        inflight_bytes=123_456 << 10,
    )
    idle = replace(busy, tx_bytes=0, rx_bytes=0, retrans_pkts=0)
    before, now = Sample("t", 10.0, 1, 0, 0, 0, (idle,)), Sample("t", 12.0, 1, 0, 0, 0, (busy,))
    text = shown(before, now, columns=80)
    row = next(line for line in text.splitlines() if line.startswith(address[:21]))
    assert row.split()[1:] == ["4000G", "8000G", "123.456", "123456", "123456", "117284", "234567", "32"]
    assert "".join(line[:21].strip() for line in text.splitlines()[3:]) == address


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(0, "0"), (124, "992"), (125, "1k"), (42_812_500, "342M"), (590_000_000, "4.72G")]
)
def test_rate__in_few_characters(size_bytes: int, text: str) -> None:
    now, before = (Sample("t", at_s, 1, 0, 0, 0, (peer(1, sent=sent),)) for at_s, sent in ((1.0, size_bytes), (0.0, 0)))
    assert shown(before, now).splitlines()[3].split()[1] == text


def test_screen__another_process_has_taken_the_address() -> None:
    """Counters begin anew, times even go back: no rate is negative, and nothing is divided by zero."""
    before = Sample("t", 12.0, 1, 500, 500, 0, (peer(4, sent=1000),))
    now = Sample("u", 3.0, 1, 0, 0, 0, (peer(4, sent=0),))
    assert "-" not in headline(before, now, seconds=1e-9)
    assert "u: 1 peer(s); sent 0 bit/s, received 0 bit/s" in shown(before, now)
