"""srd.errors: one root, and it is the protocol's tree."""

from __future__ import annotations

import pytest

import srd
from srd.errors import PacketError, PeerError, SrdError, UsageError
from srd.file_transfer.errors import TransferError
from srd.proto import errors as core
from srd.proto.wire.status import Status


@pytest.mark.parametrize("kind", [PacketError, PeerError, UsageError, TransferError])
def test_errors__have_one_root(kind: type[Exception]) -> None:
    assert issubclass(kind, SrdError)


def test_errors__are_those_of_the_core() -> None:
    assert (SrdError, PacketError, PeerError, UsageError) == (
        core.SrdError,
        core.PacketError,
        core.PeerError,
        core.UsageError,
    )
    assert srd.SrdError is SrdError


def test_peer_error__carries_the_status() -> None:
    error = PeerError("no packet for 1.0 s", status=Status.LOCAL_ERROR_UNRESP_REMOTE)
    assert (str(error), error.status) == ("no packet for 1.0 s", 13)


def test_public_names__exist() -> None:
    assert all(getattr(srd, name) is not None for name in srd.__all__)
