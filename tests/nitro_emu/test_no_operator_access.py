"""No call of the control socket and no command of nitro-card answers with a tenant's memory or a key.

A card whose memory and keys have a pattern is asked for all that can be asked for, in each way that the arguments
allow. The pattern is looked for in every answer, in the log, in the metrics and in the audit log, raw and in the usual
encodings. That a card with devices has nothing else to say is a test of its own (tests/nitro_emu/device).
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nitro_emu.card.control import CardControlServer, ask
from nitro_emu.card.control_calls import ControlCalls
from nitro_emu.card.control_gate import Caller, Gate
from nitro_emu.card.metrics import metrics_text
from nitro_emu.cli import COMMANDS
from nitro_emu.errors import CardError, NitroError
from nitro_emu.log_ring import LogRing
from nitro_emu.trust.alarms import Alarms
from nitro_emu.trust.audit_log import AuditLog
from nitro_emu.trust.policy import Call, Principal
from tests.nitro_emu.fake_card import FakeCard, config_in

PATTERN = b"\xde\xadTENANTS-BYTES\xbe\xef"

ARGUMENTS: dict[str, list[Any]] = {
    "after": [0, -1, 1 << 70],
    "wait_s": [0, 0.001],
    "nonce": ["00", "ff" * 1024],
    "user_data": ["00"],
    "public_key": ["00"],
    "document": [base64.b64encode(b"forged").decode(), base64.b64encode(b"mapping").decode()],
    "manifest": ["/etc/shadow", "/proc/self/mem", "/proc/self/environ"],
}
"""Every argument that a call takes; each is given to every call."""


def encodings() -> Iterator[bytes]:
    """The pattern as an answer could have it."""
    for found in (PATTERN, PATTERN[::-1]):
        yield found[2:-2]  # what is printable of it, however the rest is escaped
        yield found.hex().encode()
        yield found.hex().upper().encode()
        for start in range(3):  # wherever it lies among other bytes
            yield base64.b64encode(found[start : start + 12])[:16]
            yield base64.urlsafe_b64encode(found[start : start + 12])[:16]


def has_pattern(answer: object) -> bool:
    text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return any(encoded in text for encoded in encodings())


class SecretCard(FakeCard):
    """A card with what nobody may see: keys, and memory of tenants."""

    def __init__(self, directory: Path) -> None:
        super().__init__(config_in(directory))
        self.private_key = PATTERN
        self.memory = {"efa_0": bytearray(PATTERN * 100)}
        self.document = b"\x84signed, without a secret"


def requests() -> Iterator[dict[str, Any]]:
    """Every call, with no argument, with each, and with each pair."""
    given = [{name: value} for name, values in ARGUMENTS.items() for value in values]
    pairs = [{**left, **right} for left, right in itertools.combinations(given, 2)]
    for call in Call:
        yield from ({"command": call, **arguments} for arguments in ({}, *given, *pairs))


def test_pattern_is_found_in_each_encoding() -> None:
    surroundings = b"ab" + PATTERN + b"cd"
    for leaked in (
        surroundings.hex(),
        surroundings.hex().upper(),
        repr(surroundings),
        surroundings.decode("latin-1"),
        *(base64.b64encode(b"x" * shift + surroundings).decode() for shift in range(3)),
        surroundings[::-1].hex(),
    ):
        assert has_pattern({"ok": {"leak": leaked}}), leaked
    assert not has_pattern({"ok": {"leak": "nothing"}})


async def test_no_answer_has_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ring = LogRing()
    logging.getLogger().addHandler(ring)
    card = SecretCard(tmp_path)
    try:
        with AuditLog(tmp_path / "audit.log") as audit:
            calls = ControlCalls(card, log=ring, audit=audit, image="ab" * 48).answers
            caller = Caller(principal=Principal.ROOT, uid=0, pid=1)
            answered = set()
            for request in requests():
                gate = Gate(audit=audit, alarms=Alarms())
                try:
                    answer: object = await gate.answer(caller, json.dumps(request).encode(), calls=calls)
                    answered.add(request["command"])
                except NitroError as error:
                    answer = str(error)
                assert not has_pattern(answer), request
    finally:
        logging.getLogger().removeHandler(ring)
    assert answered == set(Call)
    assert not has_pattern((tmp_path / "audit.log").read_bytes())
    assert not has_pattern([record.getMessage() for record in caplog.records])
    assert not has_pattern(metrics_text(card.stats()))


async def test_no_name_of_a_call_leads_elsewhere(tmp_path: Path) -> None:
    """What a card is made of cannot be named: the socket answers the calls of the policy and no others."""
    card = SecretCard(tmp_path)
    server = CardControlServer(card, log=LogRing(), image="ab" * 48)
    await server.start()
    try:
        for name in [*dir(card), *vars(card), "__class__", "read", "memory", "dump", "key", "debug", "eval", "exec"]:
            if name not in set(Call):
                with pytest.raises(
                    CardError, match=r"no command .*; there are attest, audit, logs, map, stats, status"
                ):
                    await asyncio.to_thread(ask, tmp_path, name)
    finally:
        await server.close()


def test_commands_are_those_that_were_looked_at() -> None:
    """A new command is looked at before it is added here: does it show what only a tenant may see?"""
    assert set(COMMANDS) == {"attest", "audit", "env", "logs", "metrics", "run", "status", "update"}
