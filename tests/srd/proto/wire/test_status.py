"""Completion statuses: EFA's numbers and names."""

from __future__ import annotations

from srd.proto.wire.status import REFUSALS, Status, refusal_untrusted

# rdma-core, providers/efa/efa_io_defs.h, enum efa_io_comp_status.
EFA = {
    "OK": 0,
    "FLUSHED": 1,
    "LOCAL_ERROR_QP_INTERNAL_ERROR": 2,
    "LOCAL_ERROR_UNSUPPORTED_OP": 3,
    "LOCAL_ERROR_INVALID_AH": 4,
    "LOCAL_ERROR_INVALID_LKEY": 5,
    "LOCAL_ERROR_BAD_LENGTH": 6,
    "REMOTE_ERROR_BAD_ADDRESS": 7,
    "REMOTE_ERROR_ABORT": 8,
    "REMOTE_ERROR_BAD_DEST_QPN": 9,
    "REMOTE_ERROR_RNR": 10,
    "REMOTE_ERROR_BAD_LENGTH": 11,
    "REMOTE_ERROR_BAD_STATUS": 12,
    "LOCAL_ERROR_UNRESP_REMOTE": 13,
    "REMOTE_ERROR_UNKNOWN_PEER": 14,
    "LOCAL_ERROR_UNREACH_REMOTE": 15,
    "REMOTE_ERROR_FEATURE_MISMATCH": 18,
}


def test_status__has_efas_numbers_and_names() -> None:
    assert {status.name: status.value for status in Status} == EFA


def test_refusal_untrusted__ok_is_no_refusal() -> None:
    assert Status.OK not in REFUSALS
    for number in range(256):
        wanted = Status(number) if number in REFUSALS else Status.REMOTE_ERROR_BAD_STATUS
        assert refusal_untrusted(number) is wanted
