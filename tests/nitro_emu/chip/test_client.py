"""nitro_emu.chip.client with nitro_emu.chip.server: a chip in a thread, and chips that do not answer as they should."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from nitro_emu.chip.chip import BootState, CardFiles, Chip
from nitro_emu.chip.client import MAX_WAITING, BootReport, ChipClient
from nitro_emu.chip.messages import CHIP_SOCKET, MAX_REQUEST_BYTES, decode_untrusted, encode
from nitro_emu.chip.pcrs import replay
from nitro_emu.chip.server import MAX_CLIENTS, ChipServer
from nitro_emu.errors import TrustError
from nitro_emu.trust.measure import ZERO, extend, file_sha384, image_sha384
from nitro_emu.trust.verify import Expectation, verify_untrusted
from tests.nitro_emu.chip.chips import START, Rig, running, served
from tests.patience import PATIENCE_S
from tests.programs import run_to_end

GONE = "the chip has gone; start it with nitro-chip run, then start the card again"
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def chip(rig: Rig) -> Iterator[Chip]:
    chip = rig.chip()
    with served(chip, rig.chip_directory):
        yield chip


@pytest.fixture
def client(rig: Rig, chip: Chip) -> Iterator[ChipClient]:
    assert chip.state is BootState.RESET
    with ChipClient.connect(rig.chip_directory) as client:
        yield client


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.param
    return found


async def attest(client: ChipClient, nonce: bytes = b"nonce", **more: Any) -> bytes:
    return await client.attest(nonce=nonce, user_data=None, public_key=None, **more)


def status_of(client: ChipClient) -> dict[str, Any]:
    return asyncio.run(client.status())


def boot(client: ChipClient, files: CardFiles, *, secret: bytearray | memoryview) -> BootReport:
    return asyncio.run(
        client.boot(
            image_root=files.image_root, manifest=files.manifest, configuration=files.configuration, secret=secret
        )
    )


# -- boots ------------------------------------------------------------------------------------------------------


def test_boot(rig: Rig, client: ChipClient) -> None:
    secret = bytearray(32)
    report = rig.boot(client, secret)
    key = X25519PrivateKey.from_private_bytes(secret)
    assert key.public_key().public_bytes_raw() == rig.store.load().public_key
    assert report.version == 1
    assert report.pcrs[0] == extend(ZERO, image_sha384(rig.image))
    assert report.configuration == file_sha384(rig.configuration)
    assert replay(report.events) == report.pcrs
    assert status_of(client)["state"] == "RUN"


def test_the_chip_wipes_what_it_has_sent(rig: Rig, chip: Chip, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bytearray] = []
    boot = chip.boot

    def boot_and_keep(files: CardFiles) -> bytearray | None:
        secret = boot(files)
        assert secret is not None
        given.append(secret)
        return secret

    monkeypatch.setattr(chip, "boot", boot_and_keep)
    secret = bytearray(32)
    with ChipClient.connect(rig.chip_directory) as client:
        rig.boot(client, secret)
        status_of(client)  # the chip has ended with the boot
    assert any(secret)
    assert given == [bytearray(32)]


def test_boot_into_a_part_of_other_memory(rig: Rig, client: ChipClient) -> None:
    memory = bytearray(b"." * 96)
    boot(client, rig.files, secret=memoryview(memory)[32:64])
    assert memory[:32] == memory[64:] == b"." * 32
    X25519PrivateKey.from_private_bytes(memory[32:64])


def test_boot_says_why_not(rig: Rig, client: ChipClient) -> None:
    rig.configuration.write_text("")
    secret = bytearray(b"." * 32)
    with pytest.raises(TrustError, match=r"^SEALED: the configuration card-a.yaml is not the signed one"):
        rig.boot(client, secret)
    assert secret == bytes(32)


@pytest.mark.parametrize("wrong", [bytearray(31), bytearray(33), memoryview(bytes(32))])
def test_boot_needs_a_buffer_of_32_bytes(rig: Rig, client: ChipClient, wrong: bytearray | memoryview) -> None:
    with pytest.raises(TrustError, match="give a buffer of 32 that can be written"):
        boot(client, rig.files, secret=wrong)


def test_relative_paths_are_this_process_s(rig: Rig, client: ChipClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(rig.directory)
    boot(client, CardFiles(Path("image"), Path("card-a.manifest"), Path("card-a.yaml")), secret=bytearray(32))


def test_paths_that_cannot_be_sent(rig: Rig, client: ChipClient) -> None:
    for manifest, reason in ((Path("/a\nb"), "cannot be sent"), (Path("/" + "x" * 5000), "the chip takes 4096")):
        with pytest.raises(TrustError, match=reason):
            boot(client, replace(rig.files, manifest=manifest), secret=bytearray(32))


async def check_update_of(rig: Rig, client: ChipClient) -> int:
    files = rig.files
    return await client.check_update(
        image_root=files.image_root, manifest=files.manifest, configuration=files.configuration
    )


def check_update(rig: Rig, client: ChipClient) -> int:
    return asyncio.run(check_update_of(rig, client))


def test_a_card_boots_again_on_its_connection(rig: Rig, client: ChipClient) -> None:
    first = rig.boot(client)
    (rig.image / "srd" / "engine.py").write_text("engine = 2\n")
    rig.sign(version=2)
    assert check_update(rig, client) == 2
    second = rig.boot(client)
    assert (first.version, second.version) == (1, 2)
    assert first.pcrs[0] != second.pcrs[0]
    rig.sign(version=1)
    with pytest.raises(TrustError, match=r"^version 1 is below 2"):
        check_update(rig, client)
    assert status_of(client)["state"] == "RUN"
    with pytest.raises(TrustError, match=r"^SEALED: version 1 is below 2"):
        rig.boot(client)


def test_the_end_of_a_card_resets_the_chip(rig: Rig, chip: Chip, client: ChipClient) -> None:
    rig.boot(client)
    client.close()
    with ChipClient.connect(rig.chip_directory) as other:
        assert status_of(other)["state"] == "RESET"
    assert chip.state is BootState.RESET


# -- attestation ------------------------------------------------------------------------------------------------


def test_several_attestations_take_turns(rig: Rig, client: ChipClient, run: Run) -> None:
    rig.boot(client)
    root = rig.store.load().root.certificate

    async def several() -> list[bytes]:
        return await asyncio.gather(*(attest(client, bytes([number])) for number in range(20)))

    for number, document in enumerate(run(several())):
        verify_untrusted(document, expected=Expectation(root=root, at=START, nonce=bytes([number])))


def receive(chips: socket.socket) -> int:
    """Return the number of the next request that a chip of a test gets."""
    chips.settimeout(PATIENCE_S)
    return decode_untrusted(chips.recv(20_000), name="request", max_bytes=20_000).number


def test_a_cancelled_attestation_does_not_disturb_the_next(run: Run) -> None:
    ours, chips = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client = ChipClient(ours)

    async def cancel_one() -> bytes:
        first = asyncio.create_task(attest(client, b"first"))
        cancelled = await asyncio.to_thread(receive, chips)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.create_task(attest(client, b"second"))
        number = await asyncio.to_thread(receive, chips)
        chips.send(encode(cancelled, "Attestation", {"document": b"first"}))
        chips.send(encode(number, "Attestation", {"document": b"second"}))
        return await second

    with chips, client:
        assert run(cancel_one()) == b"second"


# -- connections ------------------------------------------------------------------------------------------------


def test_no_chip(tmp_path: Path) -> None:
    with pytest.raises(TrustError, match=r"chip\.sock: no chip answers \(No such file or directory\); start it"):
        ChipClient.connect(tmp_path)
    with pytest.raises(TrustError, match="no chip answers"):
        ChipClient.connect(tmp_path / ("x" * 200))


def test_a_chip_that_has_gone(rig: Rig, run: Run) -> None:
    with served(rig.chip(), rig.chip_directory):
        client = ChipClient.connect(rig.chip_directory)
        rig.boot(client)
    for _ in range(2):
        with pytest.raises(TrustError, match="the chip has gone"):
            run(attest(client))
    with pytest.raises(TrustError, match="the chip has gone"):
        rig.boot(client)
    client.close()


@pytest.mark.parametrize("who", ["the chip", "the client"])
def test_the_end_of_either_side_ends_an_attestation(run: Run, who: str) -> None:
    ours, chips = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client = ChipClient(ours)

    async def end() -> None:
        waiting = asyncio.create_task(attest(client))
        await asyncio.to_thread(receive, chips)
        (chips if who == "the chip" else client).close()
        await waiting

    with client, chips, pytest.raises(TrustError, match="the chip has gone"):
        run(end())


def test_a_chip_that_does_not_answer(run: Run) -> None:
    ours, chips = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with chips, ChipClient(ours) as client:
        with pytest.raises(TrustError, match=r"the chip has not answered for 0\.01 s"):
            run(attest(client, timeout_s=0.01))
        with pytest.raises(TrustError, match=r"the chip has not answered for 0\.01 s"):
            run(client.status(timeout_s=0.01))


@pytest.mark.parametrize("first", ["attest", "check_update"])
def test_waiting_for_the_turn_is_bounded_in_time(rig: Rig, run: Run, first: str) -> None:
    ours, chips = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client = ChipClient(ours)

    async def wait() -> None:
        calls = {"attest": attest(client), "check_update": check_update_of(rig, client)}
        holding = asyncio.create_task(calls.pop(first))
        calls.popitem()[1].close()
        await asyncio.to_thread(receive, chips)
        with pytest.raises(TrustError, match=r"the chip has not answered for 0\.01 s"):
            await asyncio.wait_for(attest(client, timeout_s=0.01), PATIENCE_S)
        assert not holding.done()
        client.close()
        with pytest.raises(TrustError, match="the chip has gone"):
            await holding

    with chips, client:
        run(wait())


def test_calls_that_wait_are_bounded_in_number(run: Run) -> None:
    ours, chips = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client = ChipClient(ours)

    async def wait() -> None:
        waiting = [asyncio.create_task(attest(client)) for _ in range(MAX_WAITING)]
        await asyncio.to_thread(receive, chips)
        with pytest.raises(TrustError, match="256 calls wait for the chip, which is the limit"):
            await attest(client)
        waiting.pop().cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # it has ended
        waiting.append(asyncio.create_task(attest(client)))
        await asyncio.sleep(0)
        client.close()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert {str(each) for each in found} == {GONE}

    with chips, client:
        run(wait())


@pytest.mark.parametrize("answers", [0, 1])
def test_a_boot_that_takes_too_long_or_is_cancelled_ends_the_connection(rig: Rig, run: Run, answers: int) -> None:
    """The loop goes on meanwhile, and a secret that comes later is taken for nothing else."""
    ours, chips = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client, secret = ChipClient(ours), bytearray(b"." * 32)

    async def boot_once(*, timeout_s: float) -> asyncio.Task[BootReport]:
        files = rig.files
        call = client.boot(
            image_root=files.image_root,
            manifest=files.manifest,
            configuration=files.configuration,
            secret=secret,
            timeout_s=timeout_s,
        )
        booting = asyncio.create_task(call)
        number = await asyncio.to_thread(receive, chips)
        if answers:
            with suppress(BrokenPipeError):  # it has taken too long already
                chips.send(good_report(number))
        return booting

    async def cancel() -> None:
        booting = await boot_once(timeout_s=PATIENCE_S)
        assert not booting.done()
        booting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await booting

    async def wait() -> None:
        with pytest.raises(TrustError, match=r"the chip has not answered for 0\.05 s"):
            await (await boot_once(timeout_s=0.05))

    for ends in (cancel, wait):
        with chips, client:
            run(ends())
            assert secret == bytes(32)
            assert client.fd == -1
            with pytest.raises(TrustError, match="the chip has gone"):
                run(attest(client))
        ours, chips = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client = ChipClient(ours)
    client.close()
    chips.close()


def test_a_malformed_report_ends_the_connection(rig: Rig) -> None:
    """A secret may follow it."""
    ours, chips = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with chips, ChipClient(ours) as client:
        chips.send(encode(client._number + 1, "Boot", {}))
        with pytest.raises(TrustError, match="not the fields of one"):
            rig.boot(client)
        assert client.fd == -1


def test_a_chip_that_takes_no_requests(run: Run) -> None:
    ours, chips = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with chips, ChipClient(ours) as client:

        async def fill() -> None:
            for _ in range(100_000):
                await attest(client, bytes(1000), timeout_s=0.0001)

        with pytest.raises(TrustError, match="the chip has not answered"):
            run(fill())
        while True:
            try:
                ours.send(bytes(2000))
            except BlockingIOError:
                break
        with pytest.raises(TrustError, match="the chip has not answered"):
            run(attest(client, timeout_s=0.01))


def good_report(number: int) -> bytes:
    pcrs = {index: bytes(48) for index in range(16)}
    return encode(number, "Boot", {"reason": None, "version": 1, "pcrs": pcrs, "events": []})


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([lambda n: encode(n, "Status", {})], "answers Boot with Status"),
        ([lambda n: encode(n, "Boot", {})], "not the fields of one"),
        ([lambda n: encode(n, "Boot", {"pcrs": {0: bytes(48)}, "version": 1, "events": []})], "not the fields of one"),
        ([lambda n: encode(n, "Boot", {"reason": 5})], "SEALED: 5"),
        ([lambda _: b"\xff"], "no strict CBOR"),
        ([lambda _: encode(0, "Refused", "uid 5\nmay not")], r"uid 5\?may not"),
        ([good_report, lambda _: bytes(31)], "the chip has gone"),
        ([lambda n: encode(n - 1, "Error", "InternalError"), lambda n: encode(n, "Error", "X")], "answers Boot with X"),
    ],
)
def test_answers_of_another_chip(rig: Rig, answers: list[Callable[[int], bytes]], reason: str) -> None:
    ours, chips = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with chips, ChipClient(ours) as client:
        number = client._number + 1
        for answer in answers:
            chips.send(answer(number))
        secret = bytearray(b"." * 32)
        with pytest.raises(TrustError, match=reason):
            rig.boot(client, secret)
        assert secret == bytes(32)


def test_from_fd_over_a_re_exec(rig: Rig, client: ChipClient) -> None:
    rig.boot(client)
    descriptor = client.keep_over_exec()
    program = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom nitro_emu.chip.client import ChipClient\n"
        "client = ChipClient.from_fd(int(sys.argv[1]))\n"
        "assert asyncio.run(client.status())['state'] == 'RUN'\n"
        "report = asyncio.run(client.boot(image_root=Path(sys.argv[2]), manifest=Path(sys.argv[3]),"
        " configuration=Path(sys.argv[4]), secret=bytearray(32)))\n"
        "print(report.version)"
    )
    rig.sign(version=2)
    argv = [sys.executable, "-c", program, str(descriptor), str(rig.image), str(rig.manifest), str(rig.configuration)]
    done = run_to_end(argv, pass_fds=[descriptor])
    os.close(descriptor)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


def test_from_fd_refuses_other_descriptors(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file, pytest.raises(TrustError, match="no connection to a chip"):
        ChipClient.from_fd(file.fileno())
    with socket.socket() as other, pytest.raises(TrustError, match="but another socket"):
        ChipClient.from_fd(other.fileno())
    with pytest.raises(TrustError, match="no connection to a chip"):
        ChipClient.from_fd(1_000_000)


def test_descriptors_are_not_inherited_unless_asked(client: ChipClient) -> None:
    assert not os.get_inheritable(client.fd)
    with ChipClient.from_fd(client.keep_over_exec()) as kept:
        assert not os.get_inheritable(kept.fd)
    descriptor = client.keep_over_exec()
    assert os.get_inheritable(descriptor)
    client.close()
    with ChipClient.from_fd(descriptor) as kept:
        assert status_of(kept)["state"] == "RESET"


# -- the server -------------------------------------------------------------------------------------------------


def test_clients_that_break_the_protocol_disturb_no_other(rig: Rig, client: ChipClient) -> None:
    rig.boot(client)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.settimeout(PATIENCE_S)
        stranger.connect(str(rig.chip_directory / CHIP_SOCKET))
        for packet in (b"\xff", bytes(MAX_REQUEST_BYTES + 1), bytes(100_000), encode(1, "Fly")):
            stranger.send(packet)
            assert decode_untrusted(stranger.recv(20_000), name="answer", max_bytes=20_000).name == "Error"
    assert status_of(client)["state"] == "RUN"


def test_a_client_that_takes_no_answers_is_disconnected(rig: Rig, client: ChipClient) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.settimeout(PATIENCE_S)
        stranger.connect(str(rig.chip_directory / CHIP_SOCKET))
        with suppress(BrokenPipeError, ConnectionResetError):
            while True:
                stranger.send(encode(1, "Status"))
    assert status_of(client)["state"] == "RESET"


def test_connections_are_bounded(rig: Rig, client: ChipClient) -> None:
    status_of(client)
    with ExitStack() as opened:
        for _ in range(MAX_CLIENTS - 1):
            status_of(opened.enter_context(ChipClient.connect(rig.chip_directory)))
        more = opened.enter_context(ChipClient.connect(rig.chip_directory))
        with pytest.raises(TrustError, match="32 clients are connected"):
            status_of(more)
    status_of(client)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user may enter; pytest's own are beneath some that only this one may."""
    with tempfile.TemporaryDirectory(prefix="chip-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize(("card_uid", "is_served"), [(12345, True), (54321, False)])
def test_only_the_card_s_user_is_served(rig: Rig, open_directory: Path, card_uid: int, is_served: bool) -> None:  # noqa: FBT001
    path = open_directory / "outside.sock"
    server = ChipServer(rig.chip(), path=path, card_uid=card_uid)
    program = (
        "import sys, socket\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "s.connect(sys.argv[1])\ntry:\n s.send(bytes.fromhex(sys.argv[2]))\nexcept OSError: pass\n"
        "try: print(s.recv(20000).hex())\n"
        "except ConnectionResetError: print(s.recv(20000).hex())"  # once, if the request was not read
    )
    argv = [sys.executable, "-c", program, str(path), encode(1, "Status").hex()]
    started = subprocess.Popen(argv, stdout=subprocess.PIPE, user=12345, text=True, cwd="/")
    with server, running(server), started as stranger:
        out, _ = stranger.communicate(timeout=PATIENCE_S)
    answer = decode_untrusted(bytes.fromhex(out), name="answer", max_bytes=20_000)
    assert answer.name == ("Status" if is_served else "Refused")
    assert is_served or "uid 12345 may not use this chip" in answer.text


def test_a_server_removes_its_socket_and_takes_no_others(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "chip.sock"
    with ChipServer(rig.chip(), path=path):
        with pytest.raises(TrustError, match="a process listens there"):
            ChipServer(rig.chip(), path=path)
        assert path.exists()
    assert not path.exists()
