"""nitro_emu.card.control_gate: rate, form, policy and record of each request, without sockets."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nitro_emu.card.config import CardConfig
from nitro_emu.card.control_calls import ControlCalls
from nitro_emu.card.control_gate import (
    MAX_BUCKETS,
    MAX_MAP_BYTES,
    MAX_PROVED,
    MAX_REQUEST_BYTES,
    RATES,
    TCP_RATE,
    Caller,
    CallError,
    Gate,
    RefusedCallError,
    request_untrusted,
)
from nitro_emu.errors import NitroError, TrustError
from nitro_emu.log_ring import LogRing
from nitro_emu.trust.alarms import Alarms
from nitro_emu.trust.audit_log import AuditLog, examine_log_untrusted
from nitro_emu.trust.policy import POLICY, Call, Principal
from tests.nitro_emu.fake_card import BrokenCard, FakeCard, config_in
from tests.srd.test_log_limit import Clock

ROOT = Caller(principal=Principal.ROOT, uid=0, pid=7)
TENANT = Caller(principal=Principal.TENANT, uid=1000, pid=8)
STRANGER = Caller(principal=Principal.UNKNOWN, uid=1234, pid=9)
REMOTE = Caller(principal=Principal.CONTROL_PLANE, host="10.0.0.9")
CALLERS = [ROOT, TENANT, STRANGER, REMOTE, Caller(principal=Principal.CARD_USER, uid=500, pid=6)]

DOCUMENT = base64.b64encode(b"mapping").decode()
REQUESTS: dict[str, dict[str, Any]] = {
    Call.ATTEST: {"nonce": "00ff"},
    Call.AUDIT: {},
    Call.LOGS: {"after": 0},
    Call.MAP: {"document": DOCUMENT},
    Call.STATS: {},
    Call.STATUS: {},
    Call.UPDATE: {"manifest": "/opt/card.manifest"},
}


class Bench:
    """A gate before the calls of a card."""

    def __init__(self, directory: Path, *, card: FakeCard | None = None) -> None:
        self.path = directory / "audit.log"
        self.audit = AuditLog(self.path)
        self.alarms = Alarms()
        self.clock = Clock()
        self.card = card or FakeCard(config_in(directory))
        self.gate = Gate(audit=self.audit, alarms=self.alarms, clock=self.clock)
        self.calls = ControlCalls(self.card, log=LogRing(), audit=self.audit, image="ab" * 48).answers

    async def ask(self, caller: Caller, line: bytes) -> dict[str, Any]:
        return await self.gate.answer(caller, line, calls=self.calls)

    async def call(self, caller: Caller, call: str, **arguments: Any) -> dict[str, Any]:
        return await self.ask(caller, json.dumps({"command": call, **arguments}).encode() + b"\n")

    def records(self) -> list[dict[str, Any]]:
        self.audit.flush()
        assert examine_log_untrusted(self.path).records == self.audit.records
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.audit.close()


def test_every_call_of_the_policy_is_answered_and_no_other(bench: Bench) -> None:
    assert set(bench.calls) == set(REQUESTS) == set(Call)


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: str(caller.principal))
@pytest.mark.parametrize("call", Call)
async def test_policy_decides_and_everything_is_recorded(bench: Bench, caller: Caller, call: Call) -> None:
    arguments = REQUESTS[call]
    if call in POLICY[caller.principal]:
        assert await bench.call(caller, call, **arguments)
        assert not bench.alarms.counts
    else:
        with pytest.raises(
            RefusedCallError, match=f"may not ask for {call}, only for .*; ask as root, or as the card's user"
        ):
            await bench.call(caller, call, **arguments)
        assert bench.alarms.counts == {"control": 1}
        assert not bench.card.maps
        assert not bench.card.manifests
        assert not bench.card.attested
    (record,) = bench.records()
    assert record["call"] == call
    assert record["outcome"] == ("ok" if call in POLICY[caller.principal] else "refused")
    assert (record["uid"], record["pid"]) == (caller.uid, caller.pid)
    assert record["principal"] == (str(caller.principal) if not caller.host else "control-plane@10.0.0.9")


async def test_arguments_reach_the_card(bench: Bench) -> None:
    assert await bench.call(ROOT, "map", document=DOCUMENT) == {"version": 1}
    assert await bench.call(ROOT, "update", manifest="/opt/m") == {"version": 1}
    bench.card.document = b"\x84document"
    reply = await bench.call(TENANT, "attest", nonce="01", user_data="02")
    assert base64.b64decode(reply["document"]) == b"\x84document"
    assert reply["signed"] is True
    assert bench.card.maps == [b"mapping"]
    assert bench.card.manifests == ["/opt/m"]
    assert bench.card.attested == [{"nonce": b"\1", "user_data": b"\2"}]


async def test_audit_tells_the_head(bench: Bench) -> None:
    await bench.call(ROOT, "map", document=DOCUMENT)
    found = await bench.call(ROOT, "audit")
    head = bench.records()[0]["chain"]
    assert found == {"path": str(bench.path), "records": 1, "head": head}
    bench.card.document = b"of a chip"
    found = await bench.call(ROOT, "audit")
    assert base64.b64decode(found["document"]) == f"{found['records']} {found['head']}".encode()


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"command": "map"}, "document: None is no document in base64"),
        ({"command": "map", "document": "%"}, "document: '%' is no document"),
        ({"command": "map", "document": "\u0100"}, "is no document"),
        ({"command": "map", "document": DOCUMENT, "force": True}, "no argument 'force'; there are document"),
        ({"command": "update", "manifest": "card.manifest"}, "is no absolute path of a file; give one"),
        ({"command": "update", "manifest": "/a\0b"}, "is no absolute path"),
        ({"command": "update", "manifest": "/" + "a" * 5000}, "is no absolute path"),
        ({"command": "attest", "user_data": "x"}, "user_data: 'x' is not up to 1024 bytes in hexadecimal"),
        ({"command": "attest", "user_data": "00" * 1025}, "user_data: '0000"),
        ({"command": "attest", "public_key": "00"}, "no argument 'public_key'; there are nonce, user_data"),
    ],
)
async def test_malformed_arguments_change_nothing_and_are_recorded(
    bench: Bench, request_: dict[str, Any], error: str
) -> None:
    with pytest.raises(CallError, match=error) as caught:
        await bench.ask(ROOT, json.dumps(request_).encode())
    assert len(str(caught.value)) < 300
    assert not bench.card.maps
    assert not bench.card.manifests
    (record,) = bench.records()
    assert (record["call"], record["outcome"]) == (request_["command"], "failed: CallError")
    assert record["reason"] == str(caught.value)


async def test_forged_mapping_is_recorded_with_the_reason_and_an_alarm(bench: Bench) -> None:
    for _ in range(3):
        with pytest.raises(TrustError, match="the signature does not hold"):
            await bench.call(REMOTE, "map", document=base64.b64encode(b"forged").decode())
    first, rest = bench.records()
    assert (first["outcome"], first["reason"], rest["count"]) == (
        "failed: TrustError",
        "the signature does not hold",
        2,
    )
    assert bench.alarms.counts == {"map": 3}


async def test_mappings_that_were_taken_are_summarised_updates_are_not(bench: Bench) -> None:
    for _ in range(4):
        await bench.call(REMOTE, "map", document=DOCUMENT)
        await bench.call(ROOT, "update", manifest="/opt/m")
    with pytest.raises(TrustError, match="the signature does not hold"):
        await bench.call(REMOTE, "map", document=base64.b64encode(b"forged").decode())
    assert [(each["call"], each["outcome"]) for each in bench.records()[:6]] == [
        ("map", "ok"),
        *[("update", "ok")] * 4,
        ("map", "failed: TrustError"),
    ]
    assert [(each["call"], each["count"]) for each in bench.records()[6:]] == [("map", 3)]


async def test_each_call_that_changes_the_card_reserves_its_record(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved: list[int] = []
    monkeypatch.setattr(bench.audit, "reserve", lambda: reserved.append(len(bench.card.maps)))
    for _ in range(3):
        await bench.call(REMOTE, "map", document=DOCUMENT)
    assert reserved == [0, 1, 2]


async def test_card_without_an_audit_log_says_how_to_get_one(bench: Bench) -> None:
    calls = ControlCalls(bench.card, log=LogRing(), audit=None, image="").answers
    with pytest.raises(CallError, match="this card keeps no audit log; set audit_log in its settings"):
        await calls["audit"]({})
    assert "audit_log" in CardConfig.model_fields


async def test_error_in_the_card_is_recorded(tmp_path: Path) -> None:
    bench = Bench(tmp_path, card=BrokenCard(config_in(tmp_path)))
    with pytest.raises(ZeroDivisionError):
        await bench.call(ROOT, "status")
    assert bench.records()[0]["outcome"] == "failed: ZeroDivisionError"
    bench.audit.close()


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: str(caller.principal))
async def test_who_asks_too_often_is_told_so_and_others_are_served(bench: Bench, caller: Caller) -> None:
    per_s, burst = RATES[caller.principal]
    other = Caller(principal=Principal.TENANT, uid=2000, pid=1)

    async def served(count: int) -> int:
        done = 0
        for _ in range(count):
            try:
                await bench.call(caller, "no such call")
            except CallError:
                done += 1
            except RefusedCallError as error:
                assert str(error).endswith(f"asks more often than {per_s:g} times a second; wait")  # noqa: PT017
        return done

    assert await served(burst + 50) == burst
    assert await bench.call(other, "attest")
    bench.clock.now += 1
    assert await served(int(per_s) + 50) == per_s
    assert len(bench.records()) <= 2 + 2 + 1  # first and summary of each outcome, and the other's


async def test_hosts_together_have_one_rate_that_binds_neither_the_control_plane_nor_local_users(bench: Bench) -> None:
    """A stranger has as many addresses as he likes; each request costs the card's only thread a signature."""
    assert await bench.call(REMOTE, "map", document=DOCUMENT)
    per_s, burst = TCP_RATE

    async def served(hosts: range) -> int:
        done = 0
        for number in hosts:
            stranger = Caller(principal=Principal.CONTROL_PLANE, host=f"10.1.{number // 250}.{number % 250}")
            try:
                await bench.call(stranger, "map", document=base64.b64encode(b"forged").decode())
            except RefusedCallError as error:
                assert str(error) == f"all hosts together ask more often than {per_s:g} times a second; wait"  # noqa: PT017
            except TrustError:
                done += 1
        return done

    assert await served(range(500)) == burst - 1
    bench.clock.now += 1
    assert await served(range(500, 600)) == per_s
    assert await bench.call(REMOTE, "map", document=DOCUMENT)
    assert await bench.call(TENANT, "attest")


async def test_host_is_proved_by_a_map_that_counts_alone(bench: Bench) -> None:
    def host(number: int) -> Caller:
        return Caller(principal=Principal.CONTROL_PLANE, host=f"10.0.0.{number}")

    for document in (b"forged", b""):
        with pytest.raises(NitroError):
            await bench.call(REMOTE, "map", document=base64.b64encode(document).decode())
        assert not bench.gate.is_proved(REMOTE)
    await bench.call(ROOT, "map", document=DOCUMENT)
    assert not bench.gate.is_proved(ROOT)
    for number in range(2 * MAX_PROVED):
        await bench.call(host(number), "map", document=DOCUMENT)
        assert bench.gate.is_proved(host(number))
    assert sum(bench.gate.is_proved(host(number)) for number in range(2 * MAX_PROVED)) == MAX_PROVED


async def test_proved_host_has_its_own_rate_however_many_callers_there_are(bench: Bench) -> None:
    await bench.call(REMOTE, "map", document=DOCUMENT)
    bench.clock.now += 3600  # so long that its rate is measured anew
    for uid in range(2 * MAX_BUCKETS):
        with pytest.raises(NitroError):
            await bench.call(Caller(principal=Principal.UNKNOWN, uid=10_000 + uid, pid=1), "status")
    assert await bench.call(REMOTE, "map", document=DOCUMENT)


async def test_callers_that_are_counted_are_bounded(bench: Bench) -> None:
    for uid in range(3 * MAX_BUCKETS):
        with pytest.raises(NitroError):
            await bench.call(Caller(principal=Principal.UNKNOWN, uid=10_000 + uid, pid=1), "status")
    assert len(bench.gate._buckets) <= MAX_BUCKETS + 1
    bench.clock.now += 3600
    assert await bench.call(TENANT, "attest")
    assert TENANT.key in bench.gate._buckets


async def test_call_that_cannot_be_recorded_is_refused_and_changes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise TrustError("audit.log: cannot be written: the disk is full; make room")

    with monkeypatch.context() as patched:
        patched.setattr(bench.audit, "append", full)
        patched.setattr(bench.audit, "reserve", full)
        for call, arguments in REQUESTS.items():
            with pytest.raises(TrustError, match="the disk is full; make room"):
                await bench.call(ROOT, call, **arguments)
    assert not bench.card.maps
    assert not bench.card.manifests
    assert bench.alarms.counts["audit"] == len(REQUESTS)
    assert any(record.levelno == logging.ERROR for record in caplog.records)
    assert await bench.call(ROOT, "status")


async def test_call_that_is_abandoned_ends_whether_it_can_be_recorded_or_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> None:
        raise TrustError("the disk is full")

    for append in (bench.audit.append, full):
        monkeypatch.setattr(bench.audit, "append", append)
        asking = asyncio.create_task(bench.call(ROOT, "logs", wait_s=10))
        await asyncio.sleep(0)  # it has begun
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert [record["outcome"] for record in bench.records()] == ["abandoned"]


def test_big_request_is_a_map_of_the_usual_form_or_none() -> None:
    document = base64.b64encode(bytes(MAX_MAP_BYTES // 2)).decode()
    for separators in (None, (",", ":")):
        request = {"command": "map", "document": document}
        assert request_untrusted(json.dumps(request, separators=separators).encode() + b"\n") == request
    for line in (
        json.dumps({"document": document, "command": "map"}),
        json.dumps({"command": "status", "document": document}),
        json.dumps({"command": "map", "document": document, "force": 1}),
        json.dumps({"command": "map", "document": document + "\u00e9"}),
        "[" * (MAX_REQUEST_BYTES + 1),
        " " * (MAX_REQUEST_BYTES + 1) + "{}",
    ):
        with pytest.raises(CallError, match="a request has at most 65536 bytes, unless it is a map"):
            request_untrusted(line.encode())
