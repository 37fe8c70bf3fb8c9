"""srd.file_transfer.receiving over loopback: senders with invalid offers or data, or that disconnect."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import logging
import os
import stat
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from srd.errors import PeerError
from srd.file_transfer import directory
from srd.file_transfer.directory import Directory
from srd.file_transfer.errors import TransferError, TransferInterruptedError
from srd.file_transfer.partial_file import PartialFile
from srd.file_transfer.protocol import CHUNK_BYTES, MAX_FILES
from srd.file_transfer.receiving import FileReceiver
from srd.file_transfer.sessions import NotStartedError, TransferSessions
from srd.peer import Peer
from tests.failing import failing, refusing
from tests.patience import PATIENCE_S
from tests.srd.file_transfer.ends import (
    Ended,
    Record,
    all_answered,
    answered,
    begin,
    digest_of,
    end,
    into,
    names,
    offer_fields,
    parted,
    put,
    put_file,
    receive_control,
    receiving,
    result,
    scripted,
    send_control,
    send_raw,
)
from tests.srd.loopback import content, open_files, pair

PAYLOAD = content(3000, seed=51)
Step = Callable[[Peer], Awaitable[None]]


def says(kind: str, **fields: Any) -> Step:
    return partial(send_control, kind=kind, **fields)


def puts(payload: bytes, *, index: int = 0) -> Step:
    return partial(put, payload=payload, index=index)


def says_hash(digest: str) -> Step:
    """The end of the file, with a text of any length."""
    message = {"kind": "end", "files": [{"file": 0, "digest": digest}]}
    return partial(send_raw, body=json.dumps(message, ensure_ascii=False).encode())


def file(number: int, size: int = 10, **more: Any) -> dict[str, Any]:
    return {"name": f"{number}.bin", "size": size, "transfer": f"{number:032x}", **more}


# -- success --------------------------------------------------------------------------------------------------------


async def test_receive__chunks_in_any_order(output: Path) -> None:
    payload = content(4 * 1024 + 5, seed=52)
    async with receiving(output) as (sender, future, record):
        assert await begin(sender, size=len(payload), chunk_bytes=1024) == {"file": 0, "chunks": 0}
        await end(sender, payload)
        for index in (4, 2, 0, 1, 3):
            assert names(output) != ["a.bin"]
            await put_file(sender, payload, chunk_bytes=1024, indices=[index])
        assert await answered(sender) == {"file": 0, "digest": digest_of(payload)}
        await parted(sender, future)
        (received,) = record.received
        assert (received.path, received.size, received.digest) == (output / "a.bin", len(payload), digest_of(payload))
        assert received.seconds > 0
        assert [offer.name for offer, _ in record.resumed] == ["a.bin"]
        assert (record.done, record.lost, record.failures) == (1, [], [])
    assert (output / "a.bin").read_bytes() == payload


async def test_receive__as_many_files_at_a_time_as_may_be(output: Path) -> None:
    """Their chunks are numbered through, and arrive in any order; so do their ENDs."""
    payloads = [content(number * 700, seed=number) for number in range(MAX_FILES)]
    files = [file(number, len(payload)) for number, payload in enumerate(payloads)]
    firsts = [sum(-(-len(payload) // 1024) for payload in payloads[:number]) for number in range(MAX_FILES)]
    async with receiving(output) as (sender, future, record):
        accepted = await begin(sender, *files, chunk_bytes=1024)
        assert [accepted[number]["chunks"] for number in range(MAX_FILES)] == [0] * MAX_FILES
        for number in reversed(range(MAX_FILES)):
            await end(sender, payloads[number], file=number)
            await put_file(sender, payloads[number], chunk_bytes=1024, first=firsts[number])
        verified = await all_answered(sender, MAX_FILES)
        assert [verified[number]["digest"] for number in range(MAX_FILES)] == [*map(digest_of, payloads)]
        await parted(sender, future)
        assert record.done == 1
    assert all((output / f"{number}.bin").read_bytes() == payload for number, payload in enumerate(payloads))
    assert len(names(output)) == MAX_FILES


async def test_receive__one_file_fails_and_the_others_go_on(output: Path) -> None:
    (output / "1.bin").write_bytes(b"old")
    async with receiving(output) as (sender, future, record):
        accepted = await begin(sender, file(0), file(1), file(2), file(3))
        assert "exists already" in accepted[1]["reason"]
        await put(sender, b"too short", index=0)
        await put(sender, b"0123456789", index=1)  # of the refused one: dropped
        await put(sender, b"abcdefghij", index=2)
        await send_control(sender, "end", files=[{"file": 3, "reason": "3.bin: cannot be read", "again": False}])
        await end(sender, b"abcdefghij", file=2)
        answers = await all_answered(sender, 3)
        assert "is not part of the file" in answers[0]["reason"]
        assert answers[2]["digest"] == digest_of(b"abcdefghij")
        assert answers[3]["reason"] == "the sender gave up: 3.bin: cannot be read"
        await parted(sender, future)
        assert sorted(name for name, _, _ in record.failures) == ["0.bin", "1.bin", "3.bin"]
        assert record.done == 1
    assert names(output) == ["1.bin", "2.bin"]


async def test_receive__is_done_when_nothing_is_left(output: Path) -> None:
    async with receiving(output) as (sender, future, record):
        await begin(sender, file(0), files_left=1)
        await put(sender, b"0123456789", index=0)
        await end(sender, b"0123456789")
        await answered(sender)
        assert record.done == 0
        await send_control(sender, "offer", **{**offer_fields(), "files": []})
        await parted(sender, future)
        assert record.done == 1


# -- directories, modes, times --------------------------------------------------------------------------------------


async def test_receive__a_tree_with_modes_and_times(output: Path) -> None:
    then = 1_234_567_890_123_456_789
    async with receiving(output) as (sender, _, _record):
        await begin(sender, {**file(0), "name": "one/two/a.bin", "mode": 0o640, "mtime_ns": then})
        assert stat.S_IMODE((output / "one/two").stat().st_mode) == 0o700
        await put(sender, b"0123456789", index=0)
        await end(sender, b"0123456789")
        await answered(sender)
        tree = {"name": "one/two", "directory": True, "mode": 0o750, "mtime_ns": then}
        assert await begin(sender, tree) == {"file": 1, "made": True}
        assert await begin(sender, {**tree, "name": "one/empty"}) == {"file": 2, "made": True}
    assert (output / "one/two/a.bin").read_bytes() == b"0123456789"
    for name, mode in (("one/two/a.bin", 0o640), ("one/two", 0o750), ("one/empty", 0o750)):
        found = (output / name).stat()
        assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (mode, then)


async def test_receive__what_a_file_system_does_not_keep_is_said_once_and_fails_nothing(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on CIFS, FAT, NFS with all_squash and some of FUSE; CIFS does not sync directories either."""
    monkeypatch.setattr(os, "fchmod", refusing(errno.EPERM))
    monkeypatch.setattr(os, "utime", refusing(errno.EPERM))
    sync = os.fsync

    def sync_files(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(22, "Invalid argument")
        sync(fd)

    monkeypatch.setattr(os, "fsync", sync_files)
    async with receiving(output) as (sender, _, record):
        for number, name in enumerate(("a", "d/b")):
            await begin(sender, {**file(number), "name": name, "mode": 0o640, "mtime_ns": 1})
            await put(sender, b"0123456789", index=number)
            await end(sender, b"0123456789", file=number)
            assert "digest" in await answered(sender)
        tree = {"name": "d", "directory": True, "mode": 0o750, "mtime_ns": 1}
        assert await begin(sender, tree) == {"file": 2, "made": True}
        await asyncio.wait_for(sender.close(), timeout=PATIENCE_S)
    assert (output / "d/b").read_bytes() == b"0123456789"
    assert (len(record.received), record.failures) == (2, [])
    assert sorted(record.warnings) == [
        f"a: is received, but its {what} cannot be set here: Operation not permitted; of further files this is not said"
        for what in ("permissions", "time of modification")
    ]


async def test_receive__of_a_directory_what_is_not_kept_is_said_too(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fchmod", refusing(errno.EPERM))
    async with receiving(output) as (sender, _, record):
        for number, name in enumerate(("d", "e")):
            answer = await begin(sender, {"name": name, "directory": True, "mode": 0o750, "mtime_ns": 10**18})
            assert answer == {"file": number, "made": True}
    assert [line.partition(",")[0] for line in record.warnings] == ["d: is received"]
    assert (output / "e").stat().st_mtime_ns == 10**18


async def test_receive__a_directory_of_the_user_keeps_its_mode(output: Path) -> None:
    (output / "mine").mkdir(0o700)
    async with receiving(output) as (sender, _, _record):
        answer = await begin(sender, {"name": "mine", "directory": True, "mode": 0o777, "mtime_ns": 0})
        assert answer == {"file": 0, "made": True}
    assert stat.S_IMODE((output / "mine").stat().st_mode) == 0o700
    assert (output / "mine").stat().st_mtime > 0


@pytest.mark.parametrize("overwrite", [False, True])
async def test_receive__a_link_in_the_directory_leads_nowhere(tmp_path: Path, output: Path, *, overwrite: bool) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (output / "link").symlink_to(outside)
    (output / "there").symlink_to(tmp_path / "missing")
    async with receiving(output, overwrite=overwrite) as (sender, _, _record):
        refused = await begin(sender, {**file(0), "name": "link/a.bin"})
        assert (
            refused["reason"]
            == "link/a.bin: cannot be created at the receiver: 'link' is a link, which is not followed"
        )
        refused = await begin(sender, {"name": "link", "directory": True, "mode": 0o777})
        assert "is a link, which is not followed" in refused["reason"]
        accepted = await begin(sender, {**file(1), "name": "there"})
        if overwrite:
            await put(sender, b"0123456789", index=1)
            await end(sender, b"0123456789", file=2)
            assert "digest" in await answered(sender)
        else:
            assert "exists already" in accepted["reason"]
    assert names(outside) == []
    assert not (tmp_path / "missing").exists()
    assert (output / "there").is_symlink() is not overwrite


# -- files that are there -------------------------------------------------------------------------------------------


async def test_receive__the_same_file_is_there(output: Path) -> None:
    (output / "a.bin").write_bytes(PAYLOAD)
    before = (output / "a.bin").stat()
    async with receiving(output) as (sender, future, record):
        assert await begin(sender, if_differs=True) == {"file": 0, "has": digest_of(PAYLOAD)}
        await end(sender, PAYLOAD)
        assert await answered(sender) == {"file": 0, "digest": digest_of(PAYLOAD)}
        await parted(sender, future)
        assert (record.identical, record.received, record.done) == (["a.bin"], [], 1)
    assert (output / "a.bin").stat().st_ino == before.st_ino
    assert names(output) == ["a.bin"]


async def test_receive__what_changes_while_it_is_compared_is_not_the_same(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (output / "a.bin").write_bytes(PAYLOAD)
    hash_of = directory._hash_of

    def hash_and_change(fd: int, file_hash: str, *, stop: threading.Event) -> str:
        found = hash_of(fd, file_hash, stop=stop)
        (output / "a.bin").write_bytes(PAYLOAD + b"more")
        return found

    monkeypatch.setattr(directory, "_hash_of", hash_and_change)
    async with receiving(output, overwrite=True) as (sender, _, _record):
        assert await begin(sender, if_differs=True) == {"file": 0, "chunks": 0}


@pytest.mark.parametrize("overwrite", [False, True])
async def test_receive__another_file_is_there(output: Path, *, overwrite: bool) -> None:
    (output / "a.bin").write_bytes(bytes(3000))
    async with receiving(output, overwrite=overwrite) as (sender, _, _record):
        assert await begin(sender, if_differs=True) == {"file": 0, "has": digest_of(bytes(3000))}
        await end(sender, PAYLOAD)
        answer = await answered(sender)
        if overwrite:
            assert answer == {"file": 0, "chunks": 0}
            await put(sender, PAYLOAD, index=0)
            await end(sender, PAYLOAD)
            assert (await answered(sender))["digest"] == digest_of(PAYLOAD)
        else:
            assert "exists already" in answer["reason"]
    assert (output / "a.bin").read_bytes() == (PAYLOAD if overwrite else bytes(3000))


async def test_receive__nothing_or_another_size_is_there(output: Path) -> None:
    async with receiving(output, overwrite=True) as (sender, _, _record):
        (output / "1.bin").write_bytes(b"shorter")
        accepted = await begin(sender, file(0, if_differs=True), file(1, if_differs=True))
        assert accepted == {number: {"file": number, "chunks": 0} for number in range(2)}


# -- offers that are refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [{"name": "../../etc/passwd"}, {"chunk_bytes": 1}], ids=str)
async def test_receive__refuses_with_the_reason_bad_flow(output: Path, changed: dict[str, Any]) -> None:
    async with receiving(output) as (sender, future, record):
        answer = await begin(sender, **changed)
        assert (answer["kind"], answer["again"]) == ("refuse", False)
        with pytest.raises(NotStartedError) as caught:
            await result(future)
        assert str(caught.value) == answer["reason"]
        assert "\n" not in answer["reason"]
        assert (record.resumed, record.done) == ([], 0)
    assert names(output) == []


async def test_receive__data_before_an_offer_bad_flow(output: Path) -> None:
    async with receiving(output) as (sender, future, _):
        await put(sender, PAYLOAD, index=0)
        with pytest.raises(TransferError, match="data before an offer"):
            await result(future)


# -- files that fail ------------------------------------------------------------------------------------------------


async def fails(output: Path, sender: Peer, future: Ended, record: Record, *, reason: str) -> None:
    """The sender and the caller get the error of the file, and nothing is left."""
    answer = await answered(sender)
    assert "digest" not in answer
    await parted(sender, future)
    ((name, error, is_kept),) = record.failures
    assert (name, is_kept) == ("a.bin", False)
    with pytest.raises(TransferError, match=reason):
        raise error
    assert str(error).startswith(answer["reason"])
    assert names(output) == []


TWO_CHUNKS = {"size": 2048, "chunk_bytes": 1024}


@pytest.mark.parametrize(
    ("offered", "steps", "reason"),
    [
        pytest.param({}, [puts(PAYLOAD), says_hash("0" * 64)], f"BLAKE3 is {digest_of(PAYLOAD)}", id="wrong hash"),
        # Twelve bytes of JSON for each character: the reply that quotes it must still fit.
        pytest.param({}, [puts(PAYLOAD), says_hash("\U0001f389" * 2000)], "^[^\n\x1b]*$", id="long hash"),
        pytest.param({}, [puts(PAYLOAD), says_hash("\n\x1b[2J" * 100)], "^[^\n\x1b]*$", id="hash of many lines"),
        *[
            pytest.param({}, [puts(bytes(size)), says_hash(digest_of(PAYLOAD))], f"chunk 0 of {size} bytes is not part")
            for size in (2999, 3001, 0)
        ],
        pytest.param(TWO_CHUNKS, [puts(bytes(1024))] * 2, "chunk 0 came twice", id="a chunk twice"),
        pytest.param(
            TWO_CHUNKS,
            [puts(bytes(1024), index=1), says("hashes", first=1, digests=["0" * 32])],
            "chunk 1 arrived damaged",
            id="a damaged chunk",
        ),
    ],
)
async def test_receive__a_file_that_fails_bad_flow(
    output: Path, offered: dict[str, Any], steps: list[Step], reason: str
) -> None:
    async with receiving(output) as (sender, future, record):
        await begin(sender, **offered)
        for step in steps:
            await step(sender)
        await fails(output, sender, future, record, reason=reason)


async def test_receive__a_disk_that_fails_bad_flow(
    output: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Many chunks are being written when the first fails: one error is reported, and the others are ignored."""
    monkeypatch.setattr("srd.file_transfer.chunk_file.os.pwritev", refusing(errno.ENOSPC))

    async def scenario() -> None:
        async with receiving(output) as (sender, future, record):
            await begin(sender, size=8 * CHUNK_BYTES)
            puts = [asyncio.ensure_future(put(sender, bytes(CHUNK_BYTES), index=index)) for index in range(8)]
            await asyncio.gather(*puts)
            reason = r"^a.bin: cannot be written at the receiver: No space left on device$"
            await fails(output, sender, future, record, reason=reason)

    await scenario()  # a function of its own, so that nothing keeps its tasks alive
    gc.collect()
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


# -- sessions that fail ---------------------------------------------------------------------------------------------


async def breaks(output: Path, sender: Peer, future: Ended, record: Record, *, reason: str) -> None:
    """The sender is told that the session is over, the caller what was in flight, and nothing is left."""
    message = await receive_control(sender)
    assert (message["kind"], message["again"]) == ("refuse", False)
    await result(future)
    ((error, files),) = record.lost
    assert str(error).startswith(message["reason"])
    with pytest.raises(TransferError, match=reason):
        raise error
    assert [(offer.name, is_kept) for offer, is_kept in files] == [("a.bin", False)]
    assert names(output) == []
    assert record.done == 0


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        *[(says(kind), "where an offer was expected") for kind in ("accept", "answer", "\U0001f389" * 600)],
        (says("end", files=[{"file": 1, "digest": "x"}]), "the end of file 1, which was not offered"),
        (says("end", files=[{"file": 0}]), "the end of file 0 without its hash"),
        (says("end", files=[{"file": True}]), "with an entry without a file"),
        (says("end", files={}), "without a list"),
        (says("hashes", first=0, digests=["0" * 32]), "digests from chunk 0 on, which were not asked for"),
        (says("hashes", first=1, digests=["0" * 32]), "chunk 1, which was not offered"),
        (says("hashes", first=0, digests=["x"]), "hashes with a digest that is none"),
        (says("offer", **offer_fields(*(file(number) for number in range(MAX_FILES)))), "more than 64 files"),
        *[
            (puts(PAYLOAD, index=number), f"chunk {number}, which was not offered")
            for number in (1, 1 << 20, (1 << 31) - 1)
        ],
    ],
)
async def test_receive__what_no_sender_sends_bad_flow(output: Path, step: Step, reason: str) -> None:
    async with receiving(output) as (sender, future, record):
        await begin(sender, retry_for_s=60)
        await step(sender)
        await breaks(output, sender, future, record, reason=reason)


async def test_receive__a_chunk_that_was_not_asked_for_bad_flow(output: Path) -> None:
    """Before the answer: the file that is there is still compared."""
    (output / "a.bin").write_bytes(PAYLOAD)
    async with receiving(output) as (sender, future, record):
        assert "has" in await begin(sender, if_differs=True)
        await put(sender, PAYLOAD, index=0)
        message = await receive_control(sender)
        assert message["reason"] == "chunk 0, which was not asked for"
        await result(future)
        assert len(record.lost) == 1
    assert (output / "a.bin").read_bytes() == PAYLOAD


async def test_receive__a_sender_that_closes_during_a_transfer_bad_flow(output: Path) -> None:
    async with receiving(output) as (sender, future, record):
        await begin(sender, **TWO_CHUNKS)
        await put(sender, bytes(1024), index=0)
        await parted(sender, future)
        ((error, files),) = record.lost
        assert isinstance(error, PeerError)
        assert "closed by the other end" in str(error)
        assert len(files) == 1
    assert names(output) == []


# -- one transfer, several attempts ---------------------------------------------------------------------------------


KEPT: dict[str, Any] = {"size": 5 * 1024, "chunk_bytes": 1024, "retry_for_s": 60}
FIVE = content(5 * 1024, seed=53)


async def put_chunks(sender: Peer, *indices: int) -> None:
    await put_file(sender, FIVE, chunk_bytes=1024, indices=indices)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_another_sender", [False, True])
async def test_receive__the_next_attempt_resumes(output: Path, *, is_restarted: bool, is_another_sender: bool) -> None:
    first = into(output)
    async with scripted(first) as (sender, future, record):
        assert (await begin(sender, **KEPT))["chunks"] == 0
        await put_chunks(sender, 0, 1, 4)
        await send_control(sender, "abort", reason="a chunk failed", again=True)
        await result(future)
        ((error, files),) = record.lost
        assert isinstance(error, TransferInterruptedError)
        assert str(error) == "the sender gave up: a chunk failed"
        assert [is_kept for _, is_kept in files] == [True]
    second = into(output) if is_restarted else first
    async with scripted(second) as (sender, _, record):
        sender_id = {"sender": "6" * 32} if is_another_sender else {}
        accepted = await begin(sender, **KEPT, **sender_id)
        assert (accepted["chunks"], accepted["beyond"]) == (2, [[4, 1]])
        await put_chunks(sender, 2, 3)
        await end(sender, FIVE)
        assert "digest" in await answered(sender)
        assert [resumed_bytes for _, resumed_bytes in record.resumed] == [3072]
    assert names(output) == ["a.bin"]
    assert (output / "a.bin").read_bytes() == FIVE
    for sessions in {first, second}:
        sessions.close()


async def test_receive__another_attempt_ends_a_stalled_one(sessions: TransferSessions, output: Path) -> None:
    async with scripted(sessions) as (old, lost, old_record), scripted(sessions) as (new, _, record):
        await begin(old, **KEPT)
        await put_chunks(old, 0)
        assert (await begin(new, **KEPT))["chunks"] == 1
        await result(lost)
        ((error, files),) = old_record.lost
        assert (str(error), files[0][1]) == ("its sender has begun another attempt", True)
        await put_chunks(new, 1, 2, 3, 4)
        await end(new, FIVE)
        assert "digest" in await answered(new)
        assert len(record.received) == 1
    assert names(output) == ["a.bin"]


async def test_receive__one_transfer_twice_in_a_session_bad_flow(output: Path) -> None:
    async with receiving(output) as (sender, _, record):
        await begin(sender, **KEPT)
        assert (await begin(sender, **KEPT))["reason"] == "a.bin: is offered twice at a time"
        await put_chunks(sender, 0, 1, 2, 3, 4)
        await end(sender, FIVE)
        assert "digest" in await answered(sender)
        assert len(record.failures) == 1


async def test_receive__a_received_file_is_confirmed_again(sessions: TransferSessions) -> None:
    """The sender lost its peer before the answer: its file is not refused as existing."""
    async with scripted(sessions) as (sender, _, record):
        await begin(sender, **KEPT)
        await put_chunks(sender, 0, 1, 2, 3, 4)
        await end(sender, FIVE)
        await answered(sender)
        assert len(record.received) == 1
    async with scripted(sessions) as (sender, _, record):
        assert (await begin(sender, **KEPT))["chunks"] == 5
        await end(sender, FIVE)
        assert await answered(sender) == {"file": 0, "digest": digest_of(FIVE)}
        assert record.received == []
    async with scripted(sessions) as (sender, _, _record):
        answer = await begin(sender, **KEPT, sender="f" * 32)
        assert answer["again"] is False
        assert "exists already" in answer["reason"]


# -- peers that stall -----------------------------------------------------------------------------------------------


async def test_receive__senders_are_limited(output: Path) -> None:
    sessions = TransferSessions(Directory(output, overwrite=False), max_transfers=1)
    async with scripted(sessions) as (one, _, _), scripted(sessions) as (two, future, _record):
        await begin(one, **KEPT)
        answer = await begin(two, **{**KEPT, "transfer": "f" * 32})
        assert (answer["kind"], answer["again"]) == ("refuse", True)
        with pytest.raises(NotStartedError, match="busy with 1 transfers"):
            await result(future)
    async with scripted(sessions) as (three, _, _record):
        assert (await begin(three, **{**KEPT, "transfer": "e" * 32}))["chunks"] == 0
    sessions.close()


async def test_receive__open_files_are_limited_and_a_session_has_always_one(
    sessions: TransferSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srd.file_transfer.sessions.MAX_OPEN_FILES", 2)
    async with scripted(sessions) as (one, _, _), scripted(sessions) as (two, _, _record):
        await send_control(one, "offer", **offer_fields(file(0), file(1), file(2)))
        assert set(await all_answered(one, 2)) == {0, 1}
        await send_control(two, "offer", **offer_fields(file(3), file(4)))
        assert set(await all_answered(two, 1)) == {0}
        for number, answers in ((0, {0}), (1, {1, 2})):
            await put(one, b"0123456789", index=number)
            await end(one, b"0123456789", file=number)
            assert set(await all_answered(one, len(answers))) == answers


async def test_receive__an_idle_peer_costs_nothing_and_is_not_kept(
    sessions: TransferSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srd.file_transfer.receiving.OFFER_WITHIN_S", 0.05)
    async with pair() as (_, _, _, there):
        files, threads = open_files(), set(threading.enumerate())  # of which an earlier test's may end meanwhile
        receiver = FileReceiver(there, sessions=sessions)
        assert open_files() == files
        assert set(threading.enumerate()) <= threads
        with pytest.raises(NotStartedError, match=r"^127.0.0.1:\d+: offered nothing within 0.05 s$"):
            await receiver.receive()
        assert open_files() == files
        assert set(threading.enumerate()) <= threads


async def test_receive__a_live_sender_that_sends_nothing_bad_flow(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srd.file_transfer.receiving.STALL_S", 0.2)
    async with receiving(output) as (sender, future, record):
        await begin(sender, size=2048, chunk_bytes=1024)
        await put(sender, bytes(1024), index=0)
        message = await receive_control(sender)
        assert (message["kind"], message["again"]) == ("refuse", True)
        await result(future)
        assert str(record.lost[0][0]) == "the sender is alive, but sent nothing for 0.2 s"


@pytest.mark.parametrize("method", ["open", "put", "verify", "leave_out"])
async def test_receive__an_error_that_nobody_expects_is_said_at_both_ends_bad_flow(
    output: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """It is not tried again, which would meet it again. It may be in the last chunk, after which nothing comes."""
    monkeypatch.setattr(PartialFile, method, failing(ZeroDivisionError("boom")))
    async with receiving(output) as (sender, future, _):
        has_hole = method == "leave_out"
        said = await begin(sender, data_bytes=0 if has_hole else None)
        if method != "open":
            assert said == {"file": 0, "chunks": 0}
            if has_hole:
                await send_control(sender, "holes", first=0, chunks=1)
            else:
                await put(sender, PAYLOAD, index=0)
                await end(sender, PAYLOAD)
            said = await receive_control(sender)
        reason = "internal error of the receiver: ZeroDivisionError: boom"
        assert said == {"kind": "refuse", "reason": reason, "again": False}
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(future, timeout=PATIENCE_S)
    assert names(output) == []


async def test_receive__a_part_that_cannot_be_removed_is_only_reported(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with ext4's `chattr +a`, or a directory that became read-only: the file fails, the receiver continues."""
    async with receiving(output) as (sender, _, record):
        for number in range(2):
            monkeypatch.setattr(Path, "unlink", refusing(errno.EPERM))
            await begin(sender, file(number))
            await put(sender, b"0123456789", index=number)
            await send_control(sender, "end", files=[{"file": number, "digest": "0" * 64}])
            assert "BLAKE3 is" in (await answered(sender))["reason"]
        monkeypatch.undo()
        await asyncio.wait_for(sender.close(), timeout=PATIENCE_S)
    assert len(record.warnings) == 2
    assert record.warnings[0].endswith(".part: cannot be removed: Operation not permitted")
