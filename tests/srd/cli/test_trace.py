"""`srd trace`: what it prints of a transfer in virtual time, and what it refuses."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from srd.proto.trace import PeerEnded, PeerOpened
from srd.qlog.writer import TraceWriter
from tests.simulation import Network, connected
from tests.srd.cli.processes import Called, assert_fails, srd

MIB = 1 << 20


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Network]:
    """Both ends' traces of 8 MiB over four links, one of which fails halfway; and the network afterwards."""
    directory = tmp_path_factory.mktemp("traces")
    with (
        TraceWriter(directory / "a.sqlog", now=100.0, title="sender") as a,
        TraceWriter(directory / "b.sqlog", now=100.0, title="receiver") as b,
    ):
        network, number, _ = connected(seed=3, traces={"a": a, "b": b})
        network.carry_while_links_die(number, length=8 * MIB, links={1})
    return directory / "a.sqlog", directory / "b.sqlog", network


def rows(text: str, heading: str) -> list[list[str]]:
    """The rows of the table with this column, split at runs of spaces."""
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if heading in line)
    found = []
    for line in lines[start + 1 :]:
        if not re.match(r" *(\d|all)", line):
            if line.strip():
                break
            continue
        found.append(re.split(r" {2,}", line.strip()))
    return found


def test_trace__of_a_sender(traces: tuple[Path, Path, Network], called: Called) -> None:
    path, _, network = traces
    result = called("trace", str(path))
    assert (result.returncode, result.stderr) == (0, "")
    sender = network.a.core.peer(0).sender
    lines = result.stdout.splitlines()
    assert lines[0] == f"{path}: sender, 1 peer(s)"
    assert any(line.startswith("peer 0 to b:0: 0.") and line.endswith("not ended in this trace") for line in lines)
    assert any(line.startswith("requests: 1 OK; acks taken: ") for line in lines)
    assert any(line.startswith("latency of those completed with OK: least ") for line in lines)
    table = rows(result.stdout, "bursts")
    used = [path for path in sender.paths if path.counters.packets]
    assert len(used) > 24
    assert [row[0] for row in table] == [*(str(path.index) for path in used), "all"]
    for path_state, row in zip(used, table, strict=False):
        counters = path_state.counters
        assert [row[2], row[4], row[5]] == [str(counters.packets), str(counters.retransmitted), str(counters.lost)]
        assert row[10].startswith(path_state.state.name.lower())
    assert table[-1][2] == str(sender.packets)
    assert 0.99 <= float(table[-1][7]) <= float(table[-1][8]) <= float(table[-1][9])
    times = rows(result.stdout, "lost: reordering")
    assert len(times) == 10
    assert sum(int(row[4]) for row in times) == sum(state.counters.lost for state in sender.paths) > 0
    assert re.search(r"^longest times without an ack\w+: \d+\.\d{3} ms at 0\.\d+ s, ", result.stdout, re.MULTILINE)
    said = ("longest", str(path))  # sentences, which a terminal wraps
    assert all(len(line) <= 120 for line in lines if not line.startswith(said) and " MiB acknowledged in" not in line)


def test_trace__of_a_receiver(traces: tuple[Path, Path, Network], called: Called) -> None:
    _, path, _ = traces
    result = called("trace", str(path))
    assert (result.returncode, result.stderr) == (0, "")
    assert "peer 0 from a:0: " in result.stdout
    assert "messages received: 1, writes: 0, given up by the other end: 0\n" in result.stdout
    table = rows(result.stdout, "of it again")
    assert table[-1][0] == "all"
    assert float(table[-1][3]) - float(table[-1][4]) == pytest.approx(8.0, abs=0.02)
    assert "longest times without new data: " in result.stdout


def test_trace__plots(traces: tuple[Path, Path, Network], tmp_path: Path) -> None:
    out = tmp_path / "a.png"
    result = srd("trace", str(traces[0]), "--plot", str(out))
    assert (result.returncode, result.stderr) == (0, "")
    assert out.read_bytes().startswith(b"\x89PNG")


def test_trace__without_matplotlib_bad_flow(
    traces: tuple[Path, Path, Network], tmp_path: Path, called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "srd.qlog.plot", raising=False)
    result = called("trace", str(traces[0]), "--plot", str(tmp_path / "a.png"))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"srd: --plot {tmp_path / 'a.png'}: needs matplotlib")
    assert line.endswith("; install it, in the checkout: pip install '.[report]'")


def test_trace__cut_off(traces: tuple[Path, Path, Network], tmp_path: Path, called: Called) -> None:
    cut = tmp_path / "cut.sqlog"
    cut.write_bytes(traces[0].read_bytes()[:20_000])
    result = called("trace", str(cut))
    assert result.returncode == 0
    assert result.stdout.splitlines()[0].endswith("1 peer(s); cut off: its writer was killed, or had no room")


def test_trace__of_nothing(tmp_path: Path, called: Called) -> None:
    TraceWriter(tmp_path / "a", now=0.0, title="empty").close()
    assert called("trace", str(tmp_path / "a")).stdout == f"{tmp_path / 'a'}: empty, 0 peer(s)\n"


def test_trace__of_an_attempt(tmp_path: Path, called: Called) -> None:
    with TraceWriter(tmp_path / "a", now=0.0) as trace:
        trace.record(PeerEnded("LOCAL_ERROR_UNREACH_REMOTE", "no answer within 10 s"), peer=0, now=1.0)
    assert "LOCAL_ERROR_UNREACH_REMOTE, no answer within 10 s\n" in called("trace", str(tmp_path / "a")).stdout


def test_trace__writes_only_text_to_the_terminal(tmp_path: Path, called: Called) -> None:
    evil = "\x1b]0;owned\x07\r\n[red]\ud800\u202e"
    with TraceWriter(tmp_path / "a", now=0.0, title=evil) as trace:
        trace.record(PeerOpened(evil, incoming=False, datagram_bytes=1472, paths=1), peer=0, now=0.0)
        trace.record(PeerEnded("OK", evil), peer=0, now=0.0)
    out = called("trace", str(tmp_path / "a")).stdout
    assert out.count(r"\x1b]0;owned\x07\r\n[red]\ud800\u202e") == 3
    assert set(out) - {"\n"} <= {char for char in out if char.isprintable()}


# -- usage errors ---------------------------------------------------------------------------------------------------


def test_trace__no_such_file_bad_flow(tmp_path: Path, called: Called) -> None:
    gone = tmp_path / "gone"
    assert_fails(called("trace", str(gone)), status=2, error=f"{gone}: No such file or directory; give a file that")
    assert_fails(called("trace", str(tmp_path)), status=2, error=f"{tmp_path}: Is a directory; give a file that")
    assert_fails(called("trace", "x" * 300), status=2, error="File name too long")
    assert_fails(called("trace"), status=2, error="Missing argument 'FILE'")


def test_trace__damage_bad_flow(traces: tuple[Path, Path, Network], tmp_path: Path, called: Called) -> None:
    data = bytearray(traces[0].read_bytes())
    data[2000] ^= 0x80
    damaged = tmp_path / "damaged"
    damaged.write_bytes(data)
    assert_fails(called("trace", str(damaged)), status=1, error=f"{damaged}: record ")
    damaged.write_bytes(b"PK\x03\x04" + bytes(1000))
    assert_fails(called("trace", str(damaged)), status=1, error=f"{damaged}: is no trace")
    damaged.write_bytes(b"")
    assert_fails(called("trace", str(damaged)), status=1, error=f"{damaged}: has no header; it is empty")
