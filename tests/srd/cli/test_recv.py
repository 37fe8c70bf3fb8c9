"""`srd recv` as a process: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from srd.endpoint import Endpoint
from srd.file_transfer.protocol import CONTROL_MESSAGE, encode
from tests.patience import PATIENCE_S
from tests.small_file_system import mounted
from tests.srd.cli.processes import Called, Process, assert_fails, command, long_file, names, receiver, receives, srd
from tests.srd.file_transfer.ends import digest_of, file_of, offer_fields
from tests.srd.loopback import receive, send

SEED = 61
SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture
def unwritable(tmp_path: Path) -> Iterator[Path]:
    """A file system that even root cannot write to; for tests marked `root`."""
    with mounted(tmp_path / "unwritable", "ro") as directory:
        yield directory


# -- usage errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gone", "a.bin", "x" * 300], ids=["missing", "a file", "too long"])
def test_recv__output_is_no_directory_bad_flow(tmp_path: Path, name: str, called: Called) -> None:
    file_of(tmp_path, 1)
    result = called(*receives(tmp_path / name))
    assert_fails(result, status=2, error=f"--output {tmp_path / name}: is not a directory; make it first")


@pytest.mark.root
def test_recv__output_is_not_writable_bad_flow(unwritable: Path, called: Called) -> None:
    result = called(*receives(unwritable))
    assert_fails(
        result, status=1, error=f"--output {unwritable}: cannot be written to (Read-only file system); choose another"
    )


def test_recv__needs_no_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes its directory, and prints a target that reaches it; files of an earlier one are there."""
    monkeypatch.chdir(tmp_path)
    path = file_of(tmp_path, 1000)
    with Process(command("recv", "-p", "0")) as process:
        assert (process.stderr.next() or "").endswith(", files go to incoming")
        target = (process.stderr.next() or "").rpartition(" ")[2]
        assert srd("send", path.name, target).returncode == 0
        process.kill(signal.SIGTERM)
        assert process.wait() == 0
    assert (tmp_path / "incoming" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["recv", "-p", "70000"], "70000"),
        (["recv", "host"], "host"),
        (["recv", "--wrong"], "--wrong"),
        (["receive"], "receive"),
    ],
    ids=str,
)
def test_recv__missing_or_unknown_options_bad_flow(arguments: list[str], error: str, called: Called) -> None:
    assert_fails(called(*arguments), status=2, error=error)


# -- serving --------------------------------------------------------------------------------------------------------


def test_recv__prints_its_address_and_each_file_to_stderr(inputs: Path, output: Path) -> None:
    file = file_of(inputs, 100_000)
    with Process(command(*receives(output, "--once"))) as process:
        greeting = re.fullmatch(
            r"srd recv: listening on (127\.0\.0\.1:\d+), files go to (.*)", process.stderr.next() or ""
        )
        assert greeting is not None
        assert greeting[2] == str(output)
        code = re.fullmatch(
            r"srd recv: send with: srd send FILE (127\.0\.0\.1:\d+)#[\w-]{43}", process.stderr.next() or ""
        )
        assert code is not None
        assert code[1] == greeting[1]
        assert srd("send", str(file), greeting[1]).returncode == 0
        assert process.wait() == 0
        assert process.events() == []
        digest = digest_of(file.read_bytes())
        assert process.stderr.next() == f"srd recv: a.bin: 100000 bytes, BLAKE3 {digest} verified"
        assert process.stderr.next() is None


def test_recv__json_events(inputs: Path, output: Path) -> None:
    file = file_of(inputs, 20 << 20)
    with receiver(output, "--once") as (process, target):
        assert srd("send", str(file), target).returncode == 0
        assert process.wait() == 0
        *progress, received = process.events()
        assert received.pop("seconds") > 0
        assert received.pop("longest_stall_ms") >= 0
        assert received.pop("duplicates") >= 0
        assert received.pop("packets") >= (20 << 20) // 8972
        assert received == {
            "event": "received",
            "name": "a.bin",
            "file": str(output / "a.bin"),
            "bytes": 20 << 20,
            "hash": "blake3",
            "digest": digest_of(file.read_bytes()),
        }
        assert progress
        assert all(set(event) == {"event", "seconds", "bytes"} for event in progress)
        assert [event["bytes"] for event in progress] == sorted(event["bytes"] for event in progress)
        assert process.stderr.all() == []
    assert (output / "a.bin").read_bytes() == file.read_bytes()


def test_recv__overwrite(inputs: Path, output: Path) -> None:
    (output / "a.bin").write_bytes(b"old")
    with receiver(output, "--overwrite", "--once") as (process, target):
        assert srd("send", str(file_of(inputs, 10)), target).returncode == 0
        assert process.wait() == 0
    assert (output / "a.bin").read_bytes() == (inputs / "a.bin").read_bytes()


# -- the end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", SIGNALS)
def test_recv__a_signal_ends_an_idle_one_with_0(output: Path, number: signal.Signals) -> None:
    with receiver(output) as (process, _):
        process.kill(number)
        assert process.wait() == 0
        assert process.events() == []
        assert process.stderr.all() == []


@pytest.mark.parametrize("number", SIGNALS)
def test_recv__a_signal_in_the_middle_leaves_nothing(inputs: Path, output: Path, number: signal.Signals) -> None:
    argv = command("send", str(long_file(inputs)), "--retry-for", "0")
    with receiver(output) as (process, target), Process([*argv, target]) as sender:
        process.event("progress")
        process.kill(number)
        assert process.wait() == 0
        assert process.stderr.all() == ["srd recv: stopped with 1 transfer(s) unfinished"]
        assert names(output) == []
        assert sender.wait() == 1
        assert len(sender.stderr.all()) == 1
        assert "long.bin" in sender.stderr.all()[0]


def test_recv__a_killed_sender_is_reported_and_serving_goes_on(inputs: Path, output: Path) -> None:
    with receiver(output) as (process, target):
        with Process(command("send", str(long_file(inputs)), target, "--retry-for", "0")) as sender:
            process.event("progress")
            assert len(names(output)) == 1
            sender.kill(signal.SIGKILL)
            sender.wait()
        assert srd("send", str(file_of(inputs, 1 << 20)), target).returncode == 0
        process.event("received")
        error = process.stderr.next() or ""  # a peer ends after a second without packets
        assert error.startswith("srd recv: 127.0.0.1:")
        assert "no packet for" in error
        process.kill(signal.SIGTERM)
        assert process.wait() == 0
        assert process.stderr.next() is None
    assert names(output) == ["a.bin"]


def test_recv__a_closed_output_ends_it(inputs: Path, output: Path) -> None:
    """`srd recv --json-lines | head -1`: it ends, without a traceback."""
    argv = command(*receives(output, "--json-lines"))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            port = json.loads(process.stdout.readline())["port"]
            process.stdout.close()
            srd("send", str(file_of(inputs, 1 << 20)), f"127.0.0.1:{port}")
            assert process.wait(PATIENCE_S) == 1
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()


# -- attackers ------------------------------------------------------------------------------------------------------


async def send_raw(target: str, *bodies: bytes) -> None:
    """Open a peer, send invalid messages, and close."""
    host, _, port = target.rpartition(":")
    async with await Endpoint.open(towards=host) as endpoint:
        peer = await endpoint.connect(host, port=int(port))
        for body in bodies:
            await send(peer, body, immediate=CONTROL_MESSAGE)
            await receive(peer)  # the refusal
        await peer.close()


def test_recv__once_is_not_ended_by_attackers(inputs: Path, output: Path) -> None:
    with receiver(output, "--once") as (process, target):
        asyncio.run(send_raw(target))
        asyncio.run(send_raw(target, b"\x1b]0;pwn\x07 nonsense"))
        asyncio.run(send_raw(target, encode("offer", **offer_fields(name="../\x1b[2J"))))
        assert srd("send", str(file_of(inputs, 10)), target).returncode == 0
        assert process.wait() == 0
        nonsense, name = process.stderr.all()
        assert nonsense.startswith("srd recv: 127.0.0.1:")
        assert nonsense.endswith(": a message that is no JSON")
        assert name == r"srd recv: name '../\x1b[2J' is no path below the receiver's directory"


def test_recv__no_descriptor_left_at_all(inputs: Path, output: Path) -> None:
    """Neither the transfer nor its report ends the daemon; later descriptors are free again."""
    file = file_of(inputs, 3 << 20, name=":bug:.bin")
    with receiver(output) as (process, target):
        lowest = min(set(range(1024)) - {int(entry.name) for entry in Path(f"/proc/{process.popen.pid}/fd").iterdir()})
        limits = resource.prlimit(
            process.popen.pid, resource.RLIMIT_NOFILE, (lowest, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
        with Process(command("send", str(file), target)) as sender:
            reason = "the receiver cannot take it now: Too many open files"
            assert (
                process.stderr.next()
                == f"srd recv: {file.name}: {reason}; {file.name} is kept for 60 s, for its sender to go on"
            )
            assert reason in str(sender.stderr.next())
            resource.prlimit(process.popen.pid, resource.RLIMIT_NOFILE, limits)
            assert sender.wait() == 0
    assert (output / file.name).read_bytes() == file.read_bytes()


def test_recv__more_senders_than_places(inputs: Path, output: Path) -> None:
    files = [file_of(inputs, (2 << 20) + number, name=f"{number}.bin") for number in range(3)]
    with receiver(output, "--max-transfers", "1") as (process, target):
        senders = [Process(command("send", str(file), target)) for file in files]
        try:
            assert [sender.wait() for sender in senders] == [0] * 3
        finally:
            for sender in senders:
                sender.__exit__(None, None, None)
        assert {process.event("received")["name"] for _ in files} == {file.name for file in files}


def test_recv__names_reach_the_terminal_as_text(inputs: Path, output: Path) -> None:
    file = file_of(inputs, 10, name="\x1b]0;pwn\x07\r\nx")
    with receiver(output) as (process, target):
        result = srd("send", str(file), target)
        assert result.stdout.startswith(r"\x1b]0;pwn\x07\r\nx: 10 bytes in ")
        assert process.event("received")["name"] == file.name
        result = srd("send", str(file), target)
        assert_fails(result, status=1, error=r"\x1b]0;pwn\x07\r\nx: not delivered: \x1b]0;pwn\x07\r\nx: exists already")
        assert process.stderr.next() == (
            r"srd recv: \x1b]0;pwn\x07\r\nx: exists already at the receiver, which was started without --overwrite"
        )


# -- leftovers ------------------------------------------------------------------------------------------------------


def leave(directory: Path, transfer: str, *, age_s: float) -> Path:
    part = directory / f".srd-{transfer}.part"
    part.write_bytes(b"x")
    os.utime(part, (time.time() - age_s,) * 2)
    return part


def test_recv__removes_leftovers_of_a_killed_receiver_and_not_files_in_use(inputs: Path, output: Path) -> None:
    leave(output, "0" * 32, age_s=1000)
    with receiver(output) as (first, target), Process(command("send", str(long_file(inputs)), target)) as sender:
        assert (first.stderr.next() or "").endswith("its sender did not come back; what there was of it is removed")
        first.event("progress")
        (live,) = output.glob("*.part")
        first.kill(signal.SIGSTOP)
        os.utime(live, (0, 0))
        leave(output, "1" * 32, age_s=1000)
        with receiver(output) as (second, _):
            assert "1" * 32 in (second.stderr.next() or "")
        assert live.exists()
        sender.kill(signal.SIGTERM)
