from __future__ import annotations

import pytest

from srd.proto import errors
from srd.proto.errors import PacketError, PeerError, SrdError, UsageError
from srd.proto.wire.status import Status


@pytest.mark.sources
@pytest.mark.parametrize("kind", [PacketError, PeerError, UsageError])
def test_errors__have_one_root_and_are_in_the_tree(kind: type[Exception]) -> None:
    assert issubclass(kind, SrdError)
    assert kind.__name__ in (errors.__doc__ or "")


def test_peer_error__carries_its_status() -> None:
    error = PeerError("b: no packet for 1.0 s", status=Status.LOCAL_ERROR_UNRESP_REMOTE)
    assert str(error) == "b: no packet for 1.0 s"
    assert error.status == 13
