"""Sending control messages. They are few and short, and each is sent from where it lies: peers share nothing for it."""

from __future__ import annotations

import asyncio

from srd.errors import PeerError, RequestError
from srd.file_transfer.protocol import CONTROL_MESSAGE
from srd.peer import Peer
from srd.proto.wire.status import Status

WITHIN_S = 10.0
"""Timeout of a control message: a live peer has credit for one, unless its application is stuck."""


async def send_control(peer: Peer, body: bytes, *, within_s: float | None = WITHIN_S) -> Status:
    """Send a control message; return its status: FLUSHED after `within_s`, or if the peer has ended."""
    try:
        async with asyncio.timeout(within_s):
            await peer.send(body, immediate=CONTROL_MESSAGE)
    except RequestError as error:
        return error.status
    except (TimeoutError, PeerError):
        return Status.FLUSHED
    return Status.OK
