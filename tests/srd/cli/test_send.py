"""`srd send` as a process: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from srd.cli.delivery import paths_text
from srd.cli.options import STOP_WITHIN_S
from srd.endpoint import Endpoint
from srd.file_transfer.protocol import CHUNK_BYTES, CONTROL_MESSAGE, encode
from srd.peer import PathStats
from srd.proto.paths.path import PathCounters, PathState
from tests.patience import PATIENCE_S
from tests.ports import own_port
from tests.programs import run_to_end
from tests.srd.cli.processes import Called, Process, assert_fails, command, long_file, names, receiver, srd
from tests.srd.file_transfer.ends import digest_of
from tests.srd.loopback import SMALL, closed_port, content, send

SEED = 62
SIGNALS = [signal.SIGTERM, signal.SIGINT]


# -- usage errors ---------------------------------------------------------------------------------------------------


def test_send__missing_file_bad_flow(tmp_path: Path, file: Path) -> None:
    result = srd("send", str(file), str(tmp_path / "gone"), "127.0.0.1:9")
    assert_fails(result, status=2, error=f"{tmp_path / 'gone'}: no such file or directory; check the name")


@pytest.mark.parametrize("target", ["19870", "127.0.0.1:x", "127.0.0.1:65536", "::1:19870", ""])
def test_send__bad_host_port_bad_flow(file: Path, target: str, called: Called) -> None:
    assert_fails(called("send", str(file), target), status=2, error=repr(target))


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--paths", ["0", "65", "-1", "x", "1.5"]),
        ("--limit", ["5", "0.9mbit", "x", "-1mbit", "900K"]),
        ("--retry-for", ["-1s", "x", "6x", "86401s"]),
    ],
)
def test_send__a_bad_value_bad_flow(file: Path, option: str, values: list[str], called: Called) -> None:
    for value in values:
        assert_fails(called("send", str(file), "127.0.0.1:9", option, value), status=2, error=option)


def test_send__too_few_arguments_bad_flow(file: Path, called: Called) -> None:
    assert_fails(called("send", str(file)), status=2, error="give at least one PATH, and HOST last")


@pytest.mark.parametrize("host", ["no-such-host.invalid", "é" * 70])
def test_send__unknown_host_bad_flow(file: Path, host: str, called: Called) -> None:
    assert_fails(called("send", str(file), f"{host}:19870"), status=1, error=f"{host}: unknown host")


def test_send__closed_port_bad_flow(file: Path) -> None:
    with closed_port() as port:
        result = srd("send", str(file), f"127.0.0.1:{port}")
    assert_fails(
        result, status=1, error=f"127.0.0.1:{port}: nothing listens there (port unreachable); is srd recv runni"
    )


# -- what arrives ---------------------------------------------------------------------------------------------------


def test_send__reports_what_it_did(file: Path, output: Path) -> None:
    with receiver(output) as (_, target):
        result = srd("send", str(file), target)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("a.bin: 3000000 bytes in ")
    assert result.stdout.endswith(f" paths, BLAKE3 {digest_of(file.read_bytes())} verified\n")
    assert (output / "a.bin").read_bytes() == file.read_bytes()


def test_send__json(file: Path, output: Path) -> None:
    with receiver(output) as (_, target):
        result = srd("send", str(file), target, "--json-lines", "--paths", "4")
    assert (result.returncode, result.stderr) == (0, "")
    sent, summary = map(json.loads, result.stdout.splitlines())
    assert (summary["event"], summary["delivered"], summary["failed"]) == ("summary", 1, 0)
    paths = sent.pop("paths")
    assert sent.pop("seconds") > 0
    assert sent.pop("goodput_bps") > 0
    assert 0 <= sent.pop("retransmitted_fraction") < 1
    assert sent == {
        "event": "sent",
        "name": "a.bin",
        "bytes": 3_000_000,
        "hash": "blake3",
        "digest": digest_of(file.read_bytes()),
        "verified": True,
    }
    assert [path["path"] for path in paths] == [0, 1, 2, 3]
    assert sum(path["packets"] for path in paths) >= 3_000_000 // 8972
    assert set(paths[0]) == {
            "path", "standby", "packets", "retransmitted", "lost", "timeouts", "marked", "rtt_us", "state",
        }  # fmt: skip
    assert {path["state"] for path in paths} <= {"active", "silent", "quarantined", "probing"}


def test_send__fails_when_one_of_several_fails(inputs: Path, output: Path, file: Path) -> None:
    other = inputs / "b.bin"
    other.write_bytes(b"x")
    (output / "b.bin").write_bytes(b"old")
    with receiver(output) as (_, target):
        result = srd("send", str(file), str(other), target)
    assert result.returncode == 1
    refused, summary = result.stderr.splitlines()
    assert refused.startswith(f"srd send: {other}: not delivered: b.bin: exists already")
    assert summary == "srd: 1 of 2 files was not delivered"
    assert (output / "a.bin").read_bytes() == file.read_bytes()
    assert (output / "b.bin").read_bytes() == b"old"


def test_send__once_ends_with_the_whole_send_and_its_failures_bad_flow(file: Path, inputs: Path, output: Path) -> None:
    (output / "a.bin").touch()
    other = inputs / "b.bin"
    other.touch()
    with receiver(output, "--once") as (process, target):
        assert srd("send", str(file), str(other), target).returncode == 1
        assert process.wait() == 1
    assert names(output) == ["a.bin", "b.bin"]


@pytest.mark.parametrize(
    ("carried", "text"),
    [(range(32), "32 paths"), (range(34), "32 paths and 2 standbys"), ([0, 5, 40], "2 paths and 1 standby")],
)
def test_paths_text__standbys_are_no_more_paths(carried: Iterable[int], text: str) -> None:
    """`--paths 32` is 32 paths, also when two of them failed and have standbys."""
    paths = [
        PathStats(number, PathState.ACTIVE, None, 0, PathCounters(packets=int(number in carried)))
        for number in range(50)
    ]
    assert paths_text(paths, primary=32) == text


@pytest.mark.parametrize("options", [[], ["--devmem", "--plain"]], ids=str)
def test_send__into_a_region(file: Path, output: Path, options: list[str]) -> None:
    """Payload lands in the region, and nowhere else: decrypted into it, or in plain text and from the page cache."""
    with receiver(output, "--devmem", "64M", "--once", *options[1:]) as (process, target):
        result = srd("send", str(file), target, *options, "--json-lines")
        assert result.returncode == 0, result.stderr
        received = process.event("received")
        assert process.wait() == 0
    assert received["linear_bytes"] == 0
    assert received["devmem_bytes"] >= 3_000_000
    assert (output / "a.bin").read_bytes() == file.read_bytes()


def test_send__ipv6(file: Path, output: Path) -> None:
    argv = command("recv", "-B", "::1", "-p", "0", "--output", str(output), "--json-lines", "--once")
    with Process(argv) as process:
        listening = process.event("listening")
        assert listening["address"] == "::1"
        assert srd("send", str(file), f"[::1]:{listening['port']}").returncode == 0
        assert process.wait() == 0


# -- directories ----------------------------------------------------------------------------------------------------


def test_send__a_directory_and_then_what_is_new_in_it(inputs: Path, output: Path) -> None:
    """All of it arrives, with modes and times; a link is skipped, and said; what is there is not sent again."""
    top = inputs / "top"
    (top / "sub/deep").mkdir(parents=True)
    (top / "empty").mkdir(mode=0o711)
    contents = {f"sub/{number}": content(number * 99, seed=number) for number in range(100)}
    contents |= {"sub/deep/large": content((2 << 20) + 3, seed=SEED), "zero": b""}
    for name, payload in contents.items():
        (top / name).write_bytes(payload)
    (top / "zero").chmod(0o640)
    os.utime(top / "sub", ns=(10**18, 10**18))
    (top / "link").symlink_to("/etc/passwd")
    with receiver(output) as (process, target):
        first = srd("send", str(top), target, "--json-lines")
        assert first.returncode == 0, first.stderr
        assert first.stderr == f"srd send: {top / 'link'}: is a link, which is not sent\n"
        (top / "sub/new").write_bytes(b"new")
        second = srd("send", str(top), target, "--json-lines", "--skip-identical")
        assert second.returncode == 0, second.stderr
        process.kill(signal.SIGTERM)
        assert process.wait() == 0
    (*_, summary) = map(json.loads, first.stdout.splitlines())
    assert (summary["delivered"], summary["identical"], summary["failed"]) == (len(contents), 0, 0)
    (*_, summary) = map(json.loads, second.stdout.splitlines())
    assert (summary["delivered"], summary["identical"], summary["bytes"]) == (len(contents) + 1, len(contents), 3)
    contents["sub/new"] = b"new"
    found = {str(path.relative_to(output / "top")): path for path in (output / "top").rglob("*")}
    assert {name: path.read_bytes() for name, path in found.items() if path.is_file()} == contents
    assert set(found) - set(contents) == {"empty", "sub", "sub/deep"}
    assert [stat.S_IMODE(found[name].stat().st_mode) for name in ("empty", "zero")] == [0o711, 0o640]
    assert found["sub/0"].stat().st_mtime_ns == (top / "sub/0").stat().st_mtime_ns


# -- the end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", SIGNALS)
def test_send__a_signal_in_the_middle_and_the_receiver_goes_on(
    inputs: Path, output: Path, file: Path, number: signal.Signals
) -> None:
    with receiver(output) as (process, target):
        with Process(command("send", str(long_file(inputs)), target)) as sender:
            process.event("progress")
            sender.kill(number)
            assert sender.wait() == 128 + number
            assert sender.stderr.all() == [f"srd: stopped by {number.name}"]
            assert sender.events() == []
        assert srd("send", str(file), target).returncode == 0
        process.event("received")
        assert "closed by the other end" in (process.stderr.next() or "")
    assert names(output) == ["a.bin"]


@pytest.mark.parametrize("number", SIGNALS)
def test_send__one_signal_ends_it_though_the_receiver_releases_nothing(inputs: Path, number: signal.Signals) -> None:
    """The receiver is alive, accepts, and releases no message: posted requests can never be sent."""

    async def scenario() -> tuple[int, list[str]]:
        async with asyncio.timeout(PATIENCE_S), await Endpoint.listen("127.0.0.1", port=0, config=SMALL) as endpoint:
            argv = command("send", str(long_file(inputs)), f"127.0.0.1:{endpoint.address[1]}")
            with Process(argv) as sender:
                peer = await endpoint.accept()
                (await peer.recv()).release()
                await send(peer, encode("answer", files=[{"file": 0, "chunks": 0}]), immediate=CONTROL_MESSAGE)
                held = [await peer.recv() for _ in range(SMALL.protocol.receive_window_bytes // CHUNK_BYTES - 1)]
                sender.kill(number)
                status = await asyncio.to_thread(sender.wait)
                for message in held:
                    message.release()
                return status, sender.stderr.all()

    assert STOP_WITHIN_S < PATIENCE_S
    assert asyncio.run(scenario()) == (128 + number, [f"srd: stopped by {number.name}"])


# -- receivers that restart -----------------------------------------------------------------------------------------


def resumed(inputs: Path, output: Path) -> None:
    """The whole file is there, and nothing else."""
    assert names(output) == ["large.bin"]
    assert (output / "large.bin").read_bytes() == (inputs / "large.bin").read_bytes()


@pytest.fixture
def large(inputs: Path) -> Path:
    """A file without zero bytes in a row, so that a hole shows. At 500 Mbit/s the last of it is sent after a second."""
    path = inputs / "large.bin"
    path.write_bytes(content(1 << 20, seed=SEED) * 64)
    return path


def slow_send(path: Path, target: str, *options: str) -> list[str]:
    """Return the command that sends a file so slowly that the receiver can be stopped before its end."""
    return command("send", str(path), target, "--limit", "500mbit", *options)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_send__resumes_with_a_restarted_receiver(
    inputs: Path, output: Path, large: Path, number: signal.Signals
) -> None:
    port = str(own_port())
    with receiver(output, "-p", port) as (process, target), Process(slow_send(large, target, "--json-lines")) as sender:
        while process.event("progress")["bytes"] < 16 << 20:
            pass
        process.kill(number)
        process.wait()
        assert len(names(output)) == 2
        where = ("-B", "127.0.0.1", "-p", port, "-o", str(output))
        argv = command("recv", *where, "--json-lines", "--once")
        with Process(argv) as again:
            first_bytes = again.event("progress")["bytes"]
            assert first_bytes > 1 << 20, "it started from the beginning"
            assert again.wait() == 0
        assert sender.wait() == 0
        assert sender.event("sent")["digest"] == digest_of(large.read_bytes())
    resumed(inputs, output)


def test_send__ends_when_the_receiver_does_not_return_bad_flow(inputs: Path, output: Path) -> None:
    argv = command("send", str(long_file(inputs)), "--retry-for", "1s")
    with receiver(output) as (process, target), Process([*argv, target]) as sender:
        process.event("progress")
        process.kill(signal.SIGKILL)
        assert sender.wait() == 1
        lost, error = sender.stderr.all()
        assert lost.endswith("; trying again for 1 s")
        assert error.startswith(f"srd: {inputs / 'long.bin'}: {target}: no packet for ")
        assert error.endswith("; tried again for 1 s; the file was not delivered")


def test_send__directories_without_files_are_said(inputs: Path, output: Path) -> None:
    (inputs / "top" / "empty").mkdir(parents=True)
    with receiver(output) as (_, target):
        for name, said in (
            ("top/empty", "empty: made at the receiver; it is empty"),
            ("top", "top: made at the receiver; 2 directories, without files"),
        ):
            result = srd("send", str(inputs / name), target)
            assert (result.returncode, result.stdout, result.stderr) == (0, f"{said}\n", "")
    assert (output / "top" / "empty").is_dir()


@pytest.mark.parametrize("limit", [8, 20, 40])
def test_send__too_few_descriptors_are_what_is_said_bad_flow(file: Path, limit: int) -> None:
    argv = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *command("send", str(file), "127.0.0.1:9")]
    result = run_to_end(argv, stdin=subprocess.DEVNULL)
    assert result.returncode == 1
    assert "raise" in result.stderr.splitlines()[-1]
    assert "ulimit -n" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
