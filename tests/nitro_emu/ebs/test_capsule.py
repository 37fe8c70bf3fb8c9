"""Capsules: what is sent is what arrives, and nothing else gets through."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.ebs.capsule import (
    BLANK,
    COMMAND_BYTES,
    MAX_DIGESTS,
    CapsuleCommand,
    CapsuleError,
    CapsuleOpcode,
    CapsuleOutcome,
    CapsuleReply,
    command_untrusted,
    reply_untrusted,
)
from nitro_emu.ebs.server.entries import MAX_EPOCH, BlockKind

COMMAND = CapsuleCommand(
    opcode=CapsuleOpcode.WRITE, volume=2, epoch=3, owner=4, version=5, kind=BlockKind.DATA,
    offset=4096, length=8192, key=6,
)  # fmt: skip
DATA = bytes(8192)
REPLY = CapsuleReply(outcome=CapsuleOutcome.BUSY, epoch=2, owner=3, mark=4, value=5)


def test_what_is_sent_arrives() -> None:
    assert command_untrusted(COMMAND.encode() + DATA) == COMMAND
    assert command_untrusted(COMMAND.encode(key=9) + DATA) == replace(COMMAND, key=9)
    assert reply_untrusted(REPLY.encode()) == REPLY


def test_a_write_has_its_data_and_other_commands_none() -> None:
    for data in (b"", DATA[1:], DATA + b"\0"):
        with pytest.raises(CapsuleError, match=f"WRITE of 8192 with {len(data)} bytes of data"):
            command_untrusted(COMMAND.encode() + data)
    read = replace(COMMAND, opcode=CapsuleOpcode.READ).encode()
    assert command_untrusted(read).data_bytes == 0
    with pytest.raises(CapsuleError, match="READ of 8192 with 8192 bytes of data"):
        command_untrusted(read + DATA)


@given(
    st.one_of(
        st.binary(max_size=100),
        st.binary(min_size=COMMAND_BYTES, max_size=COMMAND_BYTES),
        st.binary(min_size=len(REPLY.encode()), max_size=len(REPLY.encode())),
    )
)
def test_other_bytes_are_refused_in_one_way(data: bytes) -> None:
    with suppress(CapsuleError):
        command_untrusted(data)
    with suppress(CapsuleError):
        reply_untrusted(data)


@given(st.integers(0, len(COMMAND.encode()) - 1), st.integers(0, 255))
def test_a_changed_byte_is_another_command_or_none(at: int, value: int) -> None:
    changed = bytearray(COMMAND.encode())
    changed[at] = value
    for data in (b"", DATA):
        with suppress(CapsuleError):
            assert command_untrusted(bytes(changed) + data).encode() == changed


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"length": 0}, "WRITE of 0 at 4096"),
        ({"length": 2 << 20}, "WRITE of 2097152 at 4096"),
        ({"offset": 1}, "WRITE of 8192 at 1"),
        ({"kind": BlockKind.ZERO}, "WRITE of ZERO"),
        ({"opcode": CapsuleOpcode.ZERO}, "ZERO of DATA"),
        ({"version": 4 << 40}, "WRITE of DATA, version 0x40000000000"),
        ({"epoch": 1 << 24}, "epoch 16777216; 16777215 is the last one"),
        ({"opcode": CapsuleOpcode.PROMISE, "owner": 1 << 63}, "owner 9223372036854775808; 9223372036854775807 is the"),
        ({"opcode": CapsuleOpcode.DIGESTS, "length": MAX_DIGESTS + 1}, f"DIGESTS of {MAX_DIGESTS + 1} at 4096"),
    ],
)
def test_what_no_writer_asks(fields: dict[str, Any], reason: str) -> None:
    wrong = CapsuleCommand(**{name: fields.get(name, getattr(COMMAND, name)) for name in COMMAND.__slots__})
    with pytest.raises(CapsuleError, match=reason):
        command_untrusted(wrong.encode())


def test_a_replica_is_of_an_epoch_that_there_can_be_or_blank() -> None:
    for epoch, mark in ((MAX_EPOCH, MAX_EPOCH), (1, BLANK)):
        reply = replace(REPLY, epoch=epoch, mark=mark)
        assert reply_untrusted(reply.encode()) == reply
    for epoch, mark in ((MAX_EPOCH + 1, 1), (1, MAX_EPOCH + 1), (1, BLANK - 1)):
        with pytest.raises(CapsuleError, match="is the last one"):
            reply_untrusted(replace(REPLY, epoch=epoch, mark=mark).encode())
