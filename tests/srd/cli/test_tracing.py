"""`--trace` of `srd send` and `srd recv`, as processes: the file's content for every end of the command."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import click
import pytest

from srd.cli.peer_options import PeerOptions
from srd.proto.trace import ProbeSent
from srd.qlog.errors import TraceError
from srd.qlog.reader import TraceReader
from srd.qlog.summary import PeerSummary, summarise
from tests.srd.cli.processes import Called, Process, assert_fails, command, long_file, receiver, receives, srd
from tests.srd.file_transfer.ends import digest_of

SIZE = 3_000_000


def options(trace_file: Path | None) -> PeerOptions:
    """Return what a command is given that has no other options of a peer."""
    return PeerOptions(
        plain=True, key=None, psk_file=None, cert=None, ca=None, paths=1, busy_poll=False, trace_file=trace_file
    )


def whole(path: Path) -> tuple[TraceReader, dict[int, PeerSummary]]:
    """Read a trace that ends where a record does."""
    with path.open("rb") as stream:
        reader = TraceReader(stream, name=path.name)
        peers = summarise(reader.read_untrusted())
    assert not reader.cut_off
    return reader, peers


def test_tracing__both_ends_of_a_transfer(file: Path, output: Path, tmp_path: Path) -> None:
    there, here = tmp_path / "recv.sqlog", tmp_path / "send.sqlog"
    with receiver(output, "--once", "--trace", str(there)) as (process, target):
        result = srd("send", str(file), target, "--paths", "4", "--trace", str(here))
        assert (result.returncode, result.stderr) == (0, "")
        assert process.wait() == 0
    reader, peers = whole(here)
    assert (reader.title, reader.vantage_point) == (f"srd send to {target}", "client")
    sent = peers[0]
    assert (sent.address, sent.incoming, sent.end[:3]) == (target, False, "OK,")
    replaced = [path for path in sent.sent.values() if path.state_changes]
    assert len(set(sent.sent) - {0, 1, 2, 3}) <= len(replaced), "a standby carries data only for a path that timed out"
    assert sum(path.packets - path.retransmitted for path in sent.sent.values()) >= SIZE // 8916
    assert sent.acked_bytes[-1] > SIZE
    assert sent.ports.keys() >= {0, 1, 2, 3} | {*sent.sent}, "of each path that carried anything, standby ones too"
    assert len({*sent.ports.values()}) == len(sent.ports)
    assert set(sent.completed) == {"OK"}
    assert all(rtt > 0 for path in sent.sent.values() for rtt in path.rtt_us)
    reader, peers = whole(there)
    assert (reader.title, reader.vantage_point) == ("srd recv on 127.0.0.1:0", "server")
    assert peers[0].incoming
    assert peers[0].landed_bytes[-1] > SIZE, "the file, and the control messages"
    result = srd("trace", str(here))
    assert result.returncode == 0
    assert f"peer 0 to {target}: " in result.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_tracing__a_signal_leaves_whole_files(
    inputs: Path, output: Path, tmp_path: Path, number: signal.Signals
) -> None:
    there, here = tmp_path / "recv.sqlog", tmp_path / "send.sqlog"
    with receiver(output, "--trace", str(there)) as (process, target):
        with Process(command("send", str(long_file(inputs)), target, "--trace", str(here))) as sender:
            process.event("progress")
            sender.kill(number)
            assert sender.wait() == 128 + number
            assert sender.stderr.all() == [f"srd: stopped by {number.name}"]
        process.kill(number)
        process.wait()
    assert whole(here)[1][0].end.startswith("OK, ")
    assert whole(there)[1][0].end == "OK, closed by the other end"


def test_tracing__an_attempt_that_failed(file: Path, tmp_path: Path) -> None:
    here = tmp_path / "send.sqlog"
    result = srd("send", str(file), "127.0.0.1:9", "--trace", str(here))
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert whole(here)[1][0].end.startswith("LOCAL_ERROR_UNREACH_REMOTE, nothing listens there")


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("/dev/full", "/dev/full: the trace cannot be written (No space left on device); choose another place"),
        ("gone/a", "gone/a: the trace cannot be written (No such file or directory); choose another place"),
    ],
)
def test_tracing__an_invalid_path_bad_flow(file: Path, output: Path, place: str, error: str) -> None:
    assert_fails(srd("send", str(file), "127.0.0.1:9", "--trace", place), status=1, error=error)
    assert_fails(srd(*receives(output, "--trace", place)), status=1, error=error)


def test_tracing__a_trace_that_breaks_does_not_break_the_transfer(file: Path, output: Path, tmp_path: Path) -> None:
    """A pipe without a reader stands for a full disk: a limit of file sizes applies to memory, too."""
    here = tmp_path / "pipe"
    os.mkfifo(here)
    with receiver(output) as (_, target), Process(command("send", str(file), target, "--trace", str(here))) as sender:
        with here.open("rb", buffering=0) as stream:
            assert stream.read(1) == b"\x1e"
        assert sender.wait() == 1
        (line,) = sender.stdout.all()
        assert line.endswith(f"BLAKE3 {digest_of(file.read_bytes())} verified")
        assert sender.stderr.all() == [f"srd: {here}: the trace cannot be written (Broken pipe); choose another place"]
    assert (output / "a.bin").read_bytes() == file.read_bytes()


def test_tracing__a_file_to_send_is_not_overwritten_bad_flow(file: Path, inputs: Path, called: Called) -> None:
    (inputs / "link").symlink_to(file)
    for name in ("a.bin", "link"):
        result = called("send", str(file), "127.0.0.1:9", "--trace", str(inputs / name))
        assert_fails(result, status=2, error="is a file to send; the trace would replace it")
    assert file.stat().st_size == SIZE


def test_check_trace__nothing_to_check(tmp_path: Path) -> None:
    options(None).check_trace(inputs=[tmp_path])
    options(tmp_path / "new").check_trace(inputs=[tmp_path / "gone"])
    options(tmp_path / ("x" * 300)).check_trace(inputs=[tmp_path])
    with pytest.raises(click.UsageError):
        options(tmp_path).check_trace()


def test_tracing__is_whole_when_the_block_raises(tmp_path: Path) -> None:
    def fail() -> None:
        with options(tmp_path / "a").tracing(title="t", vantage_point="client") as trace:
            assert trace is not None
            trace.record(ProbeSent(0, 0), peer=0, now=0.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert whole(tmp_path / "a")[1][0].sent[0].probes == 1
    with pytest.raises(TraceError), options(Path("/dev/full")).tracing(title="t", vantage_point="client"):
        raise AssertionError("not reached")
