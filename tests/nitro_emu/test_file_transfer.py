"""`srd send --card` and `srd recv --card` as processes, through one card and through two; every file is compared."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from blake3 import blake3

from srd.file_transfer.protocol import CHUNK_BYTES
from tests.nitro_emu.card_process import devices_of, loopback_vf, running_card
from tests.nitro_emu.processes import card_file, nitro_card
from tests.small_file_system import mounted
from tests.srd.cli.processes import Process, assert_fails, command, long_file, names, srd
from tests.srd.loopback import content

pytestmark = pytest.mark.installed  # its metadata name the transport
PLAIN = "security: {mode: plain}"
SENDER, RECEIVER = "efa_0", "efa_1"
SIGNALS = [signal.SIGTERM, signal.SIGINT]
AT_ONCE = ("--retry-for", "0")


@pytest.fixture(scope="module", params=[pytest.param("one card", marks=pytest.mark.long), "two cards"])
def devices(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the devices SENDER and RECEIVER."""
    directory = tmp_path_factory.mktemp("cards")
    with ExitStack() as cards:
        if request.param == "one card":
            vfs = [loopback_vf(name, more=PLAIN) for name in (SENDER, RECEIVER)]
            yield cards.enter_context(running_card(directory, vfs=vfs))
            return
        run_dirs = {
            name: cards.enter_context(running_card(directory / name, vfs=[loopback_vf(more=PLAIN)]))
            for name in (SENDER, RECEIVER)
        }
        sockets = {name: run_dir / "efa_0.sock" for name, run_dir in run_dirs.items()}
        yield devices_of(directory / "devices", cards=sockets)


@pytest.fixture
def used(devices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes of a test find the devices."""
    monkeypatch.setenv("NITRO_CARD_DIR", str(devices))


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    made = tmp_path / "inputs"
    made.mkdir()
    return made


@pytest.fixture
def output(tmp_path: Path) -> Path:
    made = tmp_path / "output"
    made.mkdir()
    return made


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB; for tests marked `root`."""
    with mounted(tmp_path / "tiny", "size=8m") as directory:
        yield directory


def file_of(directory: Path, size_bytes: int, *, name: str = "a.bin") -> Path:
    path = directory / name
    path.write_bytes(content(size_bytes, seed=size_bytes))
    return path


@contextmanager
def receiver(output: Path, *options: str, device: str = RECEIVER) -> Iterator[tuple[Process, str]]:
    """`srd recv --card --json`; gives it and its address."""
    with Process(command("recv", "--card", device, "--output", str(output), "--json", *options)) as process:
        listening = process.event("listening")
        assert listening["card"] == device
        yield process, listening["target"]


def sending(*arguments: str, device: str = SENDER) -> list[str]:
    return command("send", "--card", device, *arguments)


def send(*arguments: str, device: str = SENDER) -> subprocess.CompletedProcess[str]:
    return srd("send", "--card", device, *arguments)


# -- what arrives ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("used")
def test_send__several_files(inputs: Path, output: Path) -> None:
    sizes = [0, 1, 5000, 9000, 16 << 10, CHUNK_BYTES, CHUNK_BYTES + 1, 40 * CHUNK_BYTES + 7]
    files = [file_of(inputs, size, name=f"{size} [b] ü\n🎉") for size in sizes]
    with receiver(output) as (process, target):
        result = send("--json", *map(str, files), target)
        assert result.returncode == 0, result.stderr
        *events, summary = [json.loads(line) for line in result.stdout.splitlines()]
        received = [process.event("received") for _ in files]
        process.kill(signal.SIGTERM)
        assert process.wait() == 0
        assert process.stderr.all() == []
    digests = [blake3(file.read_bytes()).hexdigest() for file in files]
    assert [(event["name"], event["bytes"], event["digest"]) for event in events] == [
        (file.name, size, digest) for file, size, digest in zip(files, sizes, digests, strict=True)
    ]
    assert sorted(event["digest"] for event in received) == sorted(digests)
    assert all(set(event) == {"event", "name", "bytes", "hash", "digest", "verified"} for event in events)
    assert (summary["event"], summary["delivered"], summary["bytes"]) == ("summary", len(files), sum(sizes))
    assert all((output / file.name).read_bytes() == file.read_bytes() for file in files)
    assert names(output) == sorted(file.name for file in files)


@pytest.mark.usefixtures("used")
def test_send__as_people_do_it(inputs: Path, output: Path) -> None:
    file = file_of(inputs, 100_000)
    with Process(command("recv", "--card", RECEIVER, "--output", str(output), "--once")) as process:
        assert re.fullmatch(r"srd recv: listening on efa_1, \S+, files go to .*", process.stderr.next() or "")
        hint = re.fullmatch(
            r"srd recv: send with: srd send --card DEVICE FILE (127\.\S+:\d+/\d+/[0-9a-f]{8})",
            process.stderr.next() or "",
        )
        assert hint
        result = send(str(file), hint[1])
        assert (result.returncode, result.stderr) == (0, "")
        assert re.fullmatch(
            r"a\.bin: 100000 bytes in [0-9.]+ s, \S+ \w?bit/s, BLAKE3 [0-9a-f]{64} verified\n", result.stdout
        )
        assert process.wait() == 0
    assert (output / "a.bin").read_bytes() == file.read_bytes()


@pytest.mark.usefixtures("used")
def test_send__several_at_once_from_both_devices(inputs: Path, output: Path) -> None:
    files = [file_of(inputs, (4 << 20) + number, name=f"{number}.bin") for number in range(4)]
    with receiver(output) as (process, target), ExitStack() as stack:
        senders = [
            stack.enter_context(Process(sending(str(file), target, device=device)))
            for file, device in zip(files, (SENDER, RECEIVER) * 2, strict=True)
        ]
        assert [sender.wait() for sender in senders] == [0] * 4
        assert {process.event("received")["name"] for _ in files} == {file.name for file in files}
    assert all((output / file.name).read_bytes() == file.read_bytes() for file in files)


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("used")
def test_recv__an_existing_file_is_refused_and_serving_goes_on(inputs: Path, output: Path) -> None:
    (output / "a.bin").write_bytes(b"old")
    with receiver(output) as (process, target):
        result = send(str(file_of(inputs, 3_000_000)), target)
        assert_fails(
            result, status=1, error="a.bin: exists already at the receiver, which was started without --overwr"
        )
        assert (output / "a.bin").read_bytes() == b"old"
        assert send(str(file_of(inputs, 5, name="b.bin")), target).returncode == 0
        process.event("received")
        assert (process.stderr.next() or "").startswith("srd recv: a.bin: exists already")


@pytest.mark.usefixtures("used")
def test_recv__overwrite(inputs: Path, output: Path) -> None:
    (output / "a.bin").write_bytes(b"old")
    file = file_of(inputs, 10_000)
    with receiver(output, "--overwrite", "--once") as (process, target):
        assert send(str(file), target).returncode == 0
        assert process.wait() == 0
    assert (output / "a.bin").read_bytes() == file.read_bytes()


@pytest.mark.root
@pytest.mark.usefixtures("used")
def test_recv__a_disk_that_is_too_small_or_fills_up_is_one_line_at_each_end(inputs: Path, tiny: Path) -> None:
    with receiver(tiny) as (process, target):
        assert_fails(send(str(file_of(inputs, 9 << 20)), target), status=1, error="bytes; the receiver has")
        assert "bytes; the receiver has" in (process.stderr.next() or "")
        with Process(sending(str(long_file(inputs, size_bytes=6 << 20)), target)) as sender:
            (tiny / "other").write_bytes(bytes(7 << 20))
            if sender.wait():  # or it was faster, and the other's bytes would not have fitted
                assert len(sender.stderr.all()) == 1
                assert "the receiver" in sender.stderr.all()[0]
        (tiny / "other").unlink(missing_ok=True)
        (tiny / "long.bin").unlink(missing_ok=True)
        assert send(str(file_of(inputs, 5, name="c.bin")), target).returncode == 0
        process.kill(signal.SIGTERM)
        assert process.wait() == 0
        assert [name for name in names(tiny) if name.endswith(".part")] == []


@pytest.mark.usefixtures("used")
def test_send__nobody_listens_bad_flow(inputs: Path, output: Path) -> None:
    with receiver(output) as (_, target):
        wrong = target[:-8] + ("00000000" if target[-8:] != "00000000" else "00000001")
        result = send(str(file_of(inputs, 5)), wrong)
        assert_fails(result, status=1, error=f"{wrong}: nothing listens there")
        assert "is srd recv running there?" in result.stderr
    assert_fails(send(str(file_of(inputs, 5)), target), status=1, error=f"{target}: nothing listens there")


@pytest.mark.usefixtures("used")
@pytest.mark.parametrize("target", ["127.0.0.1:7000", "127.0.0.1:7000/0/00000000", "x", "host:7000/1/00000000"])
def test_send__bad_target_bad_flow(inputs: Path, target: str) -> None:
    assert_fails(send(str(file_of(inputs, 5)), target), status=2, error="take what srd recv --card prints")


@pytest.mark.usefixtures("used")
def test_no_such_device_bad_flow(inputs: Path, output: Path) -> None:
    result = send(str(file_of(inputs, 5)), "127.0.0.1:7000/1/00000000", device="efa_9")
    assert_fails(result, status=1, error="--card efa_9: 'efa_9' is no device in")
    result = srd("recv", "--card", "efa_9", "--output", str(output))
    assert_fails(result, status=1, error="--card efa_9: 'efa_9' is no device in")


# -- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("used")
@pytest.mark.parametrize("number", SIGNALS)
def test_send__a_signal_in_the_middle_and_the_receiver_goes_on(
    inputs: Path, output: Path, number: signal.Signals
) -> None:
    with receiver(output) as (process, target):
        with Process(sending(str(long_file(inputs)), target)) as sender:
            process.event("progress")
            sender.kill(number)
            assert sender.wait() == 1
            assert sender.stderr.all() == [f"srd: stopped by {number.name}"]
        assert send(str(file_of(inputs, 50_000)), target).returncode == 0
        process.event("received")
        assert "closed by the other end" in (process.stderr.next() or "")
    assert names(output) == ["a.bin"]


@pytest.mark.usefixtures("used")
def test_recv__a_signal_in_the_middle_leaves_nothing(inputs: Path, output: Path) -> None:
    with receiver(output) as (process, target), Process(sending(str(long_file(inputs)), *AT_ONCE, target)) as sender:
        process.event("progress")
        process.kill(signal.SIGTERM)
        assert process.wait() == 1
        (said,) = process.stderr.all()
        if said != "srd: stopped by SIGTERM":  # after STOP_WITHIN_S, on a slow machine
            assert said == "srd: stopped with 1 transfer(s) unfinished"
            assert names(output) == []
        assert sender.wait() == 1
        (error,) = sender.stderr.all()
        assert "long.bin" in error


@pytest.mark.usefixtures("used")
def test_send__a_killed_receiver_is_a_clear_error(inputs: Path, output: Path) -> None:
    with receiver(output) as (process, target), Process(sending(str(long_file(inputs)), *AT_ONCE, target)) as sender:
        process.event("progress")
        process.kill(signal.SIGKILL)
        assert sender.wait() == 1
        (error,) = sender.stderr.all()
        assert "its program is gone" in error
        assert error.endswith("; the file was not delivered")


@pytest.mark.usefixtures("used")
def test_recv__a_killed_sender_is_reported_and_serving_goes_on(inputs: Path, output: Path) -> None:
    file = file_of(inputs, 1 << 20)
    with receiver(output) as (process, target):
        with Process(sending(str(long_file(inputs)), *AT_ONCE, target)) as sender:
            process.event("progress")
            sender.kill(signal.SIGKILL)
            sender.wait()
        assert send(str(file), target).returncode == 0
        process.event("received")
        assert (process.stderr.next() or "").endswith(": its program is gone")
    assert (output / "a.bin").read_bytes() == file.read_bytes()
    assert names(output) == ["a.bin"]


# -- cards that die -------------------------------------------------------------------------------------------------


Card = Callable[[], Process]


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Card]]:
    """Two cards that can be killed and started again; gives what starts them."""
    configs, sockets = {}, {}
    for name in (SENDER, RECEIVER):
        (tmp_path / name).mkdir()
        configs[name] = card_file(tmp_path / name, vfs=[loopback_vf(more=PLAIN)])
        sockets[name] = tmp_path / name / "run" / "efa_0.sock"
    monkeypatch.setenv("NITRO_CARD_DIR", str(devices_of(tmp_path / "devices", cards=sockets)))
    with ExitStack() as started:

        def start(name: str) -> Process:
            process = started.enter_context(nitro_card("run", str(configs[name]), "--json"))
            process.event("ready")
            return process

        yield {name: lambda name=name: start(name) for name in configs}  # type: ignore[misc]  # it has a default


def test_send__the_receivers_card_dies_bad_flow(inputs: Path, output: Path, two: dict[str, Card]) -> None:
    two[SENDER]()
    card = two[RECEIVER]()
    with receiver(output) as (process, target), Process(sending(str(long_file(inputs)), *AT_ONCE, target)) as sender:
        process.event("progress")
        card.kill(signal.SIGKILL)
        assert process.wait() == 1
        assert "efa_1: the card is gone; start it" in process.stderr.all()[-1]
        assert sender.wait() == 1
        (error,) = sender.stderr.all()
        assert "no packet from its card" in error or "its card" in error
        assert error.endswith("; the file was not delivered")


def test_send__its_own_card_dies_bad_flow(inputs: Path, output: Path, two: dict[str, Card]) -> None:
    card = two[SENDER]()
    two[RECEIVER]()
    with receiver(output) as (process, target):
        with Process(sending(str(long_file(inputs)), *AT_ONCE, target)) as sender:
            process.event("progress")
            card.kill(signal.SIGKILL)
            assert sender.wait() == 1
            (error,) = sender.stderr.all()
            assert "efa_0: the card is gone; start it" in error
        assert "card" in (process.stderr.next() or "")  # it has noticed
        two[SENDER]()
        assert send(str(file_of(inputs, 50_000)), target).returncode == 0
        process.event("received")
    assert names(output) == ["a.bin"]


def test_send__goes_on_when_its_card_was_started_again(inputs: Path, output: Path, two: dict[str, Card]) -> None:
    card = two[SENDER]()
    two[RECEIVER]()
    large = inputs / "large.bin"
    large.write_bytes(content(1 << 20, seed=9) * 64)
    with receiver(output) as (process, target), Process(sending(str(large), target)) as sender:
        while process.event("progress")["bytes"] < 8 << 20:
            pass
        card.kill(signal.SIGKILL)
        assert "trying again for 60 s" in (sender.stderr.next() or "")
        two[SENDER]()
        assert sender.wait() == 0, sender.stderr.all()
        process.event("received")
    assert (output / "large.bin").read_bytes() == large.read_bytes()
    assert names(output) == ["large.bin"]
