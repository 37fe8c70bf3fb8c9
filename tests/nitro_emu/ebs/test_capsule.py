"""Capsules: what is sent is what arrives, and nothing else gets through."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.ebs.capsule import (
    CapsuleError,
    Command,
    Opcode,
    Outcome,
    Reply,
    command_untrusted,
    reply_untrusted,
)
from nitro_emu.ebs.server.entries import Kind

COMMAND = Command(
    opcode=Opcode.WRITE, number=1, volume=2, epoch=3, owner=4, version=5, kind=Kind.DATA, offset=4096, length=8192,
    key=6, memory_offset=7,
)  # fmt: skip
REPLY = Reply(outcome=Outcome.BUSY, number=1, epoch=2, owner=3, mark=4, value=5)


def test_what_is_sent_arrives() -> None:
    assert command_untrusted(COMMAND.encode()) == COMMAND
    assert reply_untrusted(REPLY.encode()) == REPLY


@given(st.one_of(st.binary(max_size=100), st.binary(min_size=72, max_size=72), st.binary(min_size=40, max_size=40)))
def test_other_bytes_are_refused_in_one_way(data: bytes) -> None:
    with suppress(CapsuleError):
        command_untrusted(data)
    with suppress(CapsuleError):
        reply_untrusted(data)


@given(st.integers(0, len(COMMAND.encode()) - 1), st.integers(0, 255))
def test_a_changed_byte_is_another_command_or_none(at: int, value: int) -> None:
    changed = bytearray(COMMAND.encode())
    changed[at] = value
    with suppress(CapsuleError):
        assert command_untrusted(bytes(changed)).encode() == changed


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"length": 0}, "WRITE of 0 at 4096"),
        ({"length": 2 << 20}, "WRITE of 2097152 at 4096"),
        ({"offset": 1}, "WRITE of 8192 at 1"),
        ({"kind": Kind.ZERO}, "WRITE of ZERO"),
        ({"opcode": Opcode.ZERO}, "ZERO of DATA"),
        ({"version": 4 << 40}, "WRITE of DATA, version 0x40000000000"),
        ({"epoch": 1 << 24}, "epoch 16777216; 16777215 is the last one"),
    ],
)
def test_what_no_writer_asks(fields: dict[str, Any], reason: str) -> None:
    wrong = Command(**{name: fields.get(name, getattr(COMMAND, name)) for name in COMMAND.__slots__})
    with pytest.raises(CapsuleError, match=reason):
        command_untrusted(wrong.encode())
