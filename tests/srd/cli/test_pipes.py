"""`srd send -` and `srd recv -o -` as processes in pipelines: what arrives, who waits, and how they end."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.patience import PATIENCE_S
from tests.programs import run_to_end
from tests.srd.cli.processes import Called, Lines, Process, assert_fails, command, names, receiver
from tests.srd.file_transfer.ends import digest_of, file_of
from tests.srd.loopback import content

SEED = 63
SIGNALS = [signal.SIGTERM, signal.SIGINT]
ZERO = Path("/dev/zero")


class Piped:
    """A command with given standard streams, and the lines of its stderr; killed at the end if it still runs."""

    def __init__(self, argv: list[str], *, stdin: int | IO[bytes], stdout: int | IO[bytes]) -> None:
        self.popen = subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)
        assert self.popen.stderr is not None
        self.stderr = Lines(os.fdopen(os.dup(self.popen.stderr.fileno())))

    @property
    def stdin(self) -> IO[bytes]:
        assert self.popen.stdin is not None
        return self.popen.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self.popen.stdout is not None
        return self.popen.stdout

    def wait(self) -> int:
        return self.popen.wait(PATIENCE_S)

    def end(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if stream is not None:
                stream.close()
        self.stderr.close()


@contextmanager
def piped(argv: list[str], *, stdin: int | IO[bytes], stdout: int | IO[bytes]) -> Iterator[Piped]:
    process = Piped(argv, stdin=stdin, stdout=stdout)
    try:
        yield process
    finally:
        process.end()


@contextmanager
def receiving(stdout: int | IO[bytes] = subprocess.PIPE) -> Iterator[tuple[Piped, str]]:
    """`srd recv -o -` on loopback; gives it and HOST:PORT."""
    argv = command("recv", "-B", "127.0.0.1", "-p", "0", "-o", "-")
    with piped(argv, stdin=subprocess.DEVNULL, stdout=stdout) as process:
        line = process.stderr.next() or ""
        assert line.startswith("srd recv: listening on 127.0.0.1:"), line
        assert line.endswith(", file goes to standard output"), line
        assert (process.stderr.next() or "").startswith("srd recv: send with: srd send FILE 127.0.0.1:")
        yield process, line.split()[4].removesuffix(",")


def sending(target: str, *options: str) -> list[str]:
    return command("send", "-", target, *options)


def sent(payload: bytes, target: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    """`srd send -` of a pipe to its end."""
    return subprocess.run(
        sending(target, *options), input=payload, capture_output=True, timeout=PATIENCE_S, check=False
    )


# -- success --------------------------------------------------------------------------------------------------------


def test_pipeline__tar_to_tar(inputs: Path, output: Path) -> None:
    """By a shell, as in --help."""
    file_of(inputs, 3_000_000, name="a b")
    (inputs / "sub").mkdir()
    file_of(inputs / "sub", 5)
    with (
        receiving() as (process, target),
        subprocess.Popen(["tar", "x", "-C", str(output)], stdin=process.stdout) as unpacking,
    ):
        packing = f"tar c -C {shlex.quote(str(inputs))} . | {shlex.join(sending(target))}"
        result = subprocess.run(packing, shell=True, capture_output=True, timeout=PATIENCE_S, check=True)  # noqa: S602
        assert result.stderr == b""
        assert process.wait() == 0
        assert unpacking.wait(PATIENCE_S) == 0
    for name in ("a b", "sub/a.bin"):
        assert (output / name).read_bytes() == (inputs / name).read_bytes()


def test_send__standard_input_into_a_directory(output: Path) -> None:
    payload = content(1_500_000, seed=SEED)
    with receiver(output) as (process, target):
        result = sent(payload, target, "--name", "sub/a.tar", "--json-lines")
        assert (result.returncode, result.stderr) == (0, b"")
        assert f'"name": "sub/a.tar", "bytes": {len(payload)}' in result.stdout.decode()
        received = process.event("received")
        assert (received["name"], received["bytes"], received["digest"]) == (
            "sub/a.tar",
            len(payload),
            digest_of(payload),
        )
        assert (output / "sub/a.tar").read_bytes() == payload
        refused = sent(payload, target)
        assert refused.returncode == 1
        assert refused.stderr.decode() == (
            "srd: -: not delivered: standard input, or a pipe, needs a name in the receiver's directory: "
            "add --name NAME to srd send\n"
        )
        again = sent(payload, target, "--name", "sub/a.tar")
        assert b"exists already at the receiver" in again.stderr
    assert names(output / "sub") == ["a.tar"]


# -- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "name"), [((), "fifo"), (("--name", "b"), "b")])
def test_send__a_fifo_whose_writer_comes_later(
    tmp_path: Path, output: Path, options: tuple[str, ...], name: str
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with receiver(output) as (_, target), Process(command("send", *options, str(fifo), target)) as sender:
        fifo.write_bytes(b"content")  # opens when it is read from
        assert sender.wait() == 0, sender.stderr.all()
    assert (output / name).read_bytes() == b"content"


def test_send__what_a_shell_makes_of_a_command_needs_a_name(output: Path) -> None:
    """As `srd send <(command) HOST:PORT`: /dev/fd/63 has none."""
    with receiver(output) as (_, target):
        for options, status in (((), 1), (("--name", "a"), 0)):
            reader, writer = os.pipe()
            os.write(writer, b"content")
            os.close(writer)
            argv = command("send", *options, f"/dev/fd/{reader}", target)
            result = run_to_end(argv, pass_fds=[reader])
            os.close(reader)
            assert (result.returncode, "add --name NAME" in result.stderr) == (status, bool(status))
    assert (output / "a").read_bytes() == b"content"


def test_recv__a_directory_to_standard_output_and_then_an_archive(tmp_path: Path, inputs: Path) -> None:
    """What is refused writes nothing, and the receiver waits for who does better."""
    with (tmp_path / "out").open("wb") as out, receiving(out) as (process, target):
        argv = command("send", str(inputs), target)
        refused = run_to_end(argv)
        assert_fails(refused, status=1, error="tar c DIRECTORY | srd send - HOST")
        assert sent(b"archive", target).returncode == 0
        assert process.wait() == 0
    assert (tmp_path / "out").read_bytes() == b"archive"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["send", "-", "-", "127.0.0.1:9"], "-: one srd send sends one pipe, or standard input, once"),
        (
            ["send", "/dev/null", "127.0.0.1:9", "--name", "a"],
            "--name: is for standard input and pipes; give the PATH -",
        ),
        (["send", "/dev/null", "127.0.0.1:9"], "/dev/null: is a device or a socket, which is not sent; give a file"),
        (["send", "-", "127.0.0.1:9", "--name", "../a"], "--name: name '../a' is no path below"),
        (["send", "-", "127.0.0.1:9", "--name", "-"], "--name -: is no name"),
        (["send", "-", "127.0.0.1:9", "--devmem", "--plain"], "-: --devmem maps files, and this is none; leave it out"),
        (
            ["recv", "-B", "127.0.0.1", "-p", "0", "-o", "-", "--json-lines"],
            "--json-lines: prints events on standard output",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage__bad_flow(called: Called, arguments: list[str], error: str) -> None:
    assert_fails(called(*arguments), status=2, error=error)


# -- ends -----------------------------------------------------------------------------------------------------------


def test_recv__a_reader_that_leaves_ends_both() -> None:
    """As in `srd recv -o - | head -c 1`, of an endless input."""
    with (
        receiving() as (process, target),
        ZERO.open("rb") as zero,
        piped(sending(target), stdin=zero, stdout=subprocess.DEVNULL) as sender,
    ):
        assert os.read(process.stdout.fileno(), 1) == b"\0"
        process.stdout.close()
        assert process.wait() == 1
        assert sender.wait() == 1
        reason = "the receiver's standard output was closed by its reader"
        assert process.stderr.all()[2:] == [f"srd recv: {reason}"]
        assert sender.stderr.all() == [f"srd: -: not delivered: {reason}"]


@pytest.mark.parametrize("number", SIGNALS)
def test_recv__a_signal_while_its_reader_pauses(number: signal.Signals) -> None:
    with (
        receiving() as (process, target),
        ZERO.open("rb") as zero,
        piped(sending(target, "--retry-for", "0"), stdin=zero, stdout=subprocess.DEVNULL) as sender,
    ):
        assert os.read(process.stdout.fileno(), 1) == b"\0"
        process.popen.send_signal(number)
        assert process.wait() == 128 + number
        said = ["srd recv: stopped with 1 transfer(s) unfinished", f"srd: stopped by {number.name}"]
        assert process.stderr.all()[2:] == said
        assert sender.wait() == 1
        assert len(sender.stderr.all()) == 1


@pytest.mark.parametrize("number", SIGNALS)
def test_send__a_signal_while_its_input_is_silent(number: signal.Signals) -> None:
    with (
        receiving() as (process, target),
        piped(sending(target), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as sender,
    ):
        os.write(sender.stdin.fileno(), b"a line\n")
        assert os.read(process.stdout.fileno(), 100) == b"a line\n"
        sender.popen.send_signal(number)
        assert sender.wait() == 128 + number
        assert sender.stderr.all() == [f"srd: stopped by {number.name}"]
        assert process.wait() == 1
        (error,) = process.stderr.all()[2:]
        assert "closed by the other end" in error
        assert process.stdout.read() == b""


def test_send__goes_on_after_the_peer_was_lost() -> None:
    """The sender is stopped until the receiver has given it up: both go on where they were."""
    with (
        receiving() as (process, target),
        piped(sending(target), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as sender,
    ):
        os.write(sender.stdin.fileno(), b"one\n")
        assert os.read(process.stdout.fileno(), 100) == b"one\n"
        sender.popen.send_signal(signal.SIGSTOP)
        assert "- is kept for 60 s, for its sender to go on" in (process.stderr.next() or "")
        os.write(sender.stdin.fileno(), b"two\n")
        sender.stdin.close()
        sender.popen.send_signal(signal.SIGCONT)
        assert sender.wait() == 0
        assert process.wait() == 0
        assert process.stdout.read() == b"two\n"
        digest = digest_of(b"one\ntwo\n")
        assert process.stderr.all()[-1] == f"srd recv: -: 8 bytes, BLAKE3 {digest} verified"
