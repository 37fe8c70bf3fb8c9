"""Validation of work requests."""

from __future__ import annotations

import pytest

from srd.proto.base.errors import UsageError
from srd.proto.config import MAX_MESSAGE_BYTES
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.simulation import Keys

LARGEST = 2**64 - 1


@pytest.mark.parametrize(
    ("opcode", "immediate", "key", "offset", "error"),
    [
        (Opcode.SEND, -1, 0, 0, "immediate: -1 does not fit into 32 bits"),
        (Opcode.WRITE, 2**32, 0, 0, "immediate: 4294967296 does not fit into 32 bits"),
        (Opcode.READ, 0, 0, 0, "immediate: 0 goes with a send or a write; a read has no completion at the other end"),
        (Opcode.WRITE, None, -1, 0, "key -1, offset 0: with length 10 they do not fit into 64 bits"),
        (Opcode.READ, None, 2**64, 0, "key 18446744073709551616, offset 0: "),
        (Opcode.READ, None, 0, LARGEST - 8, "offset 18446744073709551607: with length 10 "),
        (Opcode.WRITE, None, 0, -1, "offset -1: "),
    ],
)
def test_check__values_that_do_not_fit(
    opcode: Opcode, immediate: int | None, key: int, offset: int, error: str
) -> None:
    with pytest.raises(UsageError, match=error):
        WorkRequest(1, 10, opcode=opcode, immediate=immediate, key=key, offset=offset).check()


@pytest.mark.parametrize(
    ("opcode", "length", "local_key", "local_offset", "status"),
    [
        (Opcode.SEND, 1000, 0, 0, None),
        (Opcode.SEND, 1001, 0, 0, Status.REMOTE_ERROR_BAD_LENGTH),
        (Opcode.SEND, MAX_MESSAGE_BYTES + 1, 0, 0, Status.LOCAL_ERROR_BAD_LENGTH),
        (Opcode.WRITE, MAX_MESSAGE_BYTES, 0, 0, None),
        (Opcode.WRITE, MAX_MESSAGE_BYTES + 1, 0, 0, Status.LOCAL_ERROR_BAD_LENGTH),
        (Opcode.READ, 1500, 7, 500, None),
        (Opcode.READ, 1501, 7, 500, Status.LOCAL_ERROR_INVALID_LKEY),
        (Opcode.READ, 1, 8, 0, Status.LOCAL_ERROR_INVALID_LKEY),
        (Opcode.READ, MAX_MESSAGE_BYTES + 1, 7, 0, Status.LOCAL_ERROR_BAD_LENGTH),
        (Opcode.RESPONSE, 1, 7, 0, Status.LOCAL_ERROR_UNSUPPORTED_OP),
    ],
)
def test_refusal(opcode: Opcode, length: int, local_key: int, local_offset: int, status: Status | None) -> None:
    memory = Keys()
    memory.ranges[7] = (0, 2000, "l")
    wr = WorkRequest(1, length, opcode=opcode, local_key=local_key, local_offset=local_offset)
    assert wr.refusal(max_send_bytes=1000, memory=memory) is status


def test_refusal__reads_need_memory_of_this_end() -> None:
    wr = WorkRequest(1, 1, opcode=Opcode.READ, local_key=1)
    assert wr.refusal(max_send_bytes=1, memory=None) is Status.LOCAL_ERROR_UNSUPPORTED_OP
