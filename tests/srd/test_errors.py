"""srd.errors: what an error carries, and the public names."""

from __future__ import annotations

import srd
from srd.errors import PeerError
from srd.proto.wire.status import Status


def test_peer_error__carries_the_status() -> None:
    error = PeerError("no packet for 1.0 s", status=Status.LOCAL_ERROR_UNRESP_REMOTE)
    assert (str(error), error.status) == ("no packet for 1.0 s", 13)


def test_public_names__exist() -> None:
    assert all(getattr(srd, name) is not None for name in srd.__all__)
