"""nitro_emu.trust.audit_log: nothing of the past can be changed unseen, and nothing is done that is not recorded."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import resource
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import nitro_emu.trust.audit_log
from nitro_emu.errors import TrustError
from nitro_emu.trust.audit_log import (
    FIRST_CHAIN,
    MAX_SUMMARIES,
    SUMMARY_S,
    AuditLog,
    examine_log_untrusted,
)
from tests.programs import run_to_end
from tests.srd.test_log_limit import Clock


def add(log: AuditLog, call: str = "update", **changes: Any) -> None:
    log.append(
        **{"principal": "root", "uid": 0, "pid": 17, "call": call, "arguments": b"{}", "outcome": "ok", **changes}
    )


def add_three(log: AuditLog) -> None:
    for _ in range(3):
        add(log, outcome="x" * 200)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "card" / "audit.log"


@pytest.fixture
def lines(path: Path) -> list[bytes]:
    """The lines of a log of five records."""
    with AuditLog(path) as log:
        for number in range(5):
            add(log, outcome=f"number {number}")
    return path.read_bytes().splitlines(keepends=True)


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """No file of this process may have more bytes: as on a full disk, the last write is cut off."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_record_has_who_what_and_the_hash_of_the_arguments(path: Path) -> None:
    with AuditLog(path, clock=Clock()) as log:
        add(log, principal="tenant", uid=1000, call="attest", arguments=b"secret", outcome="failed: X", reason="why")
        head = log.head
    (record,) = records(path)
    assert record == {
        "number": 1,
        "time_s": 100.0,
        "principal": "tenant",
        "uid": 1000,
        "pid": 17,
        "call": "attest",
        "arguments_sha384": hashlib.sha384(b"secret").hexdigest(),
        "outcome": "failed: X",
        "reason": "why",
        "chain": head,
    }
    body = path.read_bytes().split(b',"chain"')[0] + b"}"
    assert head == hashlib.sha384(FIRST_CHAIN.encode() + body).hexdigest()


def test_file_is_its_users_alone(path: Path) -> None:
    with AuditLog(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_log_goes_on_where_it_was(path: Path, lines: list[bytes]) -> None:
    with AuditLog(path) as log:
        assert log.records == len(lines)
        add(log)
        head = log.head
    assert examine_log_untrusted(path).records == 6
    assert examine_log_untrusted(path, head=head.upper()).after_head == 0


def test_empty_log(path: Path) -> None:
    with AuditLog(path) as log:
        assert log.head == FIRST_CHAIN
    assert examine_log_untrusted(path, head=FIRST_CHAIN).records == 0


def test_every_flipped_bit_is_found_and_its_record_named(path: Path, lines: list[bytes]) -> None:
    whole = b"".join(lines[:3])
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        number = 1 + whole.count(b"\n", 0, bit // 8)
        with pytest.raises(TrustError, match=rf"audit\.log: record {number}: "):
            examine_log_untrusted(path)


JUNK = (b"\n", b"{}\n", b"#\n", b"junk\n", b"junk#\n")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.lists(st.integers(0, 4) | st.sampled_from(JUNK), min_size=1, max_size=6))
def test_any_other_sequence_of_records_is_found(path: Path, lines: list[bytes], order: list[int | bytes]) -> None:
    """Records that were removed, exchanged, doubled or inserted. For the last ones it takes the head."""
    assume(order != list(range(len(order))))
    path.write_bytes(b"".join(lines[each] if isinstance(each, int) else each for each in order))
    with pytest.raises(TrustError, match=r"record \d: "):
        examine_log_untrusted(path)


@pytest.mark.parametrize("kept", range(5))
def test_truncated_log_is_found_with_the_head(path: Path, lines: list[bytes], kept: int) -> None:
    head = json.loads(lines[-1])["chain"]
    path.write_bytes(b"".join(lines[:kept]))
    assert examine_log_untrusted(path).records == kept
    with pytest.raises(
        TrustError, match=f"none of its {kept} records has the head {head[:16]}...: records are missing"
    ):
        examine_log_untrusted(path, head=head)


def test_number_counts_also_in_a_chain_that_holds(path: Path, lines: list[bytes]) -> None:
    """As somebody leaves it who removes a record and chains the others anew."""
    chain, made = FIRST_CHAIN, b""
    for line in [lines[0], *lines[2:]]:
        body = line.split(b',"chain"')[0] + b"}"
        chain = hashlib.sha384(chain.encode() + body).hexdigest()
        made += body[:-1] + f',"chain":"{chain}"}}\n'.encode()
    path.write_bytes(made)
    with pytest.raises(TrustError, match="record 2: has the number 3: records were removed"):
        examine_log_untrusted(path)


def test_older_head_is_found_and_what_is_behind_it_counted(path: Path, lines: list[bytes]) -> None:
    found = examine_log_untrusted(path, head=json.loads(lines[1])["chain"])
    assert (found.records, found.after_head) == (5, 3)
    assert found.head == json.loads(lines[-1])["chain"]


@pytest.mark.parametrize("left", [1, 20, -150, -2, -1])
def test_record_cut_off_by_a_crash_is_sealed_and_stays(path: Path, lines: list[bytes], left: int) -> None:
    path.write_bytes(b"".join(lines[:4]) + lines[4][:left])
    with pytest.raises(TrustError, match="record 5: is cut off; start the card once"):
        examine_log_untrusted(path)
    for _ in range(2):  # the second time there is nothing to seal
        with AuditLog(path):
            pass
        assert examine_log_untrusted(path).records == 5
    seal = json.loads(path.read_bytes().splitlines()[-1])
    assert (seal["call"], seal["number"]) == ("seal", 5)
    assert lines[4][:left] + b"#\n" in path.read_bytes()


@pytest.mark.parametrize("left", [1, 20, -1])
def test_changed_torn_line_is_found(path: Path, lines: list[bytes], left: int) -> None:
    path.write_bytes(b"".join(lines[:4]) + lines[4][:left])
    with AuditLog(path) as log:
        add(log)
    whole = bytearray(path.read_bytes())
    whole[len(b"".join(lines[:4]))] ^= 1
    path.write_bytes(whole)
    with pytest.raises(TrustError, match="record 5: does not seal the line before it"):
        examine_log_untrusted(path)


def test_crash_while_sealing_is_sealed(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join(lines[:4]) + b'{"number":5#\n{"numb')
    with AuditLog(path) as log:
        add(log)
    assert examine_log_untrusted(path).records == 6


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300) | st.lists(st.sampled_from([b"#\n", b"\n", b"{}", b',"chain":"'])).map(b"".join))
def test_anything_in_a_file_is_refused_or_torn(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any.log"
    path.write_bytes(content)
    path.chmod(0o600)
    if not content:
        assert examine_log_untrusted(path).records == 0
        return
    with pytest.raises(TrustError, match="record 1: "):
        examine_log_untrusted(path)
    with suppress(TrustError):
        with AuditLog(path) as log:
            assert log.records == 1
        assert examine_log_untrusted(path).records == 1


def test_card_does_not_go_on_with_a_log_that_was_changed(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join(lines).replace(b"number 2", b"number 9"))
    with pytest.raises(TrustError, match=r"record 3: its chain does not match.*; keep the file as evidence"):
        AuditLog(path)


@pytest.mark.parametrize("room", [0, 1, 100, 400, 500])
def test_full_disk_refuses_and_the_log_goes_on_when_there_is_room(path: Path, lines: list[bytes], room: int) -> None:
    size = sum(map(len, lines))
    with AuditLog(path) as log:
        for _ in range(3):
            with file_limit(size + room), pytest.raises(TrustError, match=r"cannot be written: .*; make room"):
                add_three(log)
        add(log)
        head = log.head
    assert path.read_bytes().startswith(b"".join(lines))
    assert examine_log_untrusted(path, head=head).after_head == 0
    with AuditLog(path) as log:
        assert log.head == head


def test_reserve_needs_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([0, errno.EOPNOTSUPP, errno.ENOSPC])

    def fallocate(_file: int, mode: int, _at: int, _size: int) -> int:
        assert mode == 1
        ctypes.set_errno(number := next(answers))
        return -1 if number else 0

    with AuditLog(path) as log:
        log.reserve()
        assert path.stat().st_size == 0
        monkeypatch.setattr(nitro_emu.trust.audit_log._libc, "fallocate", fallocate)
        log.reserve()
        log.reserve()
        with pytest.raises(TrustError, match="No space left on device; make room on the disk"):
            log.reserve()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_disk_that_is_really_full(tmp_path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
from nitro_emu.errors import TrustError
from nitro_emu.trust.audit_log import AuditLog, examine_log_untrusted
disk = Path(sys.argv[1])
call = dict(principal="root", uid=0, pid=1, call="map", arguments=b"", outcome="x" * 300)
def reason_of(call):
    try:
        call()
    except TrustError as error:
        return str(error)
with AuditLog(disk / "log") as log:
    log.reserve()
    log.append(**call)
    filler = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(filler, bytes(4096)): pass
    except OSError: pass
    reasons = set()
    for _ in range(300):
        reasons.add(reason_of(lambda: log.append(**call)))
    print(reason_of(log.reserve))
    print(*(reasons - {None}), sep="\\n")
    os.unlink(disk / "filler"); os.close(filler)
    log.reserve()
    log.append(**call)
examine_log_untrusted(disk / "log", head=log.head)
"""
    command = 'mount -t tmpfs -o size=256k none "$1" && exec "$2" -c "$3" "$1"'
    done = run_to_end(["unshare", "-m", "sh", "-c", command, "sh", str(tmp_path), sys.executable, program])
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    reserve, *appends = done.stdout.splitlines()
    assert "No space left on device; make room on the disk" in reserve
    assert appends
    assert all("make room on the disk" in each for each in appends)


def test_polling_is_summarised(path: Path) -> None:
    clock = Clock()
    with AuditLog(path, clock=clock) as log:
        for number in range(1000):
            add(log, call="status", arguments=str(number).encode(), pid=number, summarise=True)
        add(log, call="status", uid=5, summarise=True)
        clock.now += SUMMARY_S
        add(log, call="stats", summarise=True)
    first, other, summary, last = records(path)
    assert [each["call"] for each in (first, other, summary, last)] == ["status", "status", "status", "stats"]
    assert (first["pid"], "count" in first, other["uid"]) == (0, False, 5)
    assert (summary["count"], summary["since_s"], summary["pid"]) == (999, 100.0, 999)
    hashes = b"".join(hashlib.sha384(str(number).encode()).digest() for number in range(1, 1000))
    assert summary["arguments_sha384"] == hashlib.sha384(hashes).hexdigest()
    assert examine_log_untrusted(path).records == 4


def test_calls_that_go_on_cost_a_record_a_minute(path: Path) -> None:
    clock = Clock()
    with AuditLog(path, clock=clock) as log:
        for _ in range(3 * 60):  # an hour of a call each 20 s
            add(log, call="map", summarise=True)
            clock.now += SUMMARY_S / 3
        assert [each.get("count") for each in records(path)] == [None, 2] + [3] * 58
        clock.now += 2 * SUMMARY_S
        add(log, call="map", summarise=True)  # a new one, after a pause, is recorded at once
        assert [each.get("count") for each in records(path)][-2:] == [3, None]
    assert examine_log_untrusted(path).records == len(records(path))


def test_summaries_are_recorded_at_the_end_and_on_demand(path: Path) -> None:
    with AuditLog(path) as log:
        for _ in range(3):
            add(log, summarise=True)
        log.flush()
        assert [each.get("count") for each in records(path)] == [None, 2]
        for _ in range(3):
            add(log, summarise=True)
    assert [each.get("count") for each in records(path)] == [None, 2, None, 2]


def test_many_kinds_of_calls_are_bounded(path: Path) -> None:
    with AuditLog(path) as log:
        for uid in range(10 * MAX_SUMMARIES):
            add(log, uid=uid, summarise=True)
    found = records(path)
    assert len(found) == MAX_SUMMARIES + 2
    assert (found[-1]["principal"], found[-1]["count"]) == ("others", 9 * MAX_SUMMARIES - 1)


def test_texts_are_bounded(path: Path) -> None:
    with AuditLog(path) as log:
        log.append(
            principal="\x1b" * 10**5,
            uid=0,
            pid=0,
            call="\x1b" * 10**5,
            arguments=b"",
            outcome="\x1b" * 10**5,
            reason="x" * 10**5,
        )
        add(log)
    assert examine_log_untrusted(path).records == 2


def test_closed_log_refuses(path: Path) -> None:
    log = AuditLog(path)
    log.close()
    log.close()
    with pytest.raises(TrustError, match="the audit log is closed"):
        add(log)


def test_second_card_is_refused(path: Path) -> None:
    with AuditLog(path), pytest.raises(TrustError, match="another card writes this audit log"):
        AuditLog(path)


def test_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TrustError, match="cannot be opened"):
        AuditLog(path)
    assert not (tmp_path / "elsewhere").exists()


def test_file_of_others_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"")
    path.chmod(0o620)
    with pytest.raises(TrustError, match=re.escape("others may use it (mode 620); run: chmod go-rwx")):
        AuditLog(path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_at_once(path: Path, make: Any) -> None:
    path.parent.mkdir()
    make(path, 0o600)
    with pytest.raises(TrustError, match=r"cannot be opened|is no regular file"):
        AuditLog(path)


def test_missing_file_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(TrustError, match="cannot be read: No such file"):
        examine_log_untrusted(tmp_path / "none")
