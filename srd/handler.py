"""Who takes what happens to a peer at once, instead of tasks that await it: `Peer.attach`."""

from __future__ import annotations

from typing import Protocol

from srd.batch import MessageBatch
from srd.message import Message
from srd.proto.wire.status import Status


class PeerHandler(Protocol):
    """Called within the turn of the event loop in which something happened; it may use the peer.

    An exception in it ends the peer.
    """

    def on_message(self, message: Message | MessageBatch) -> None:
        """Take a message, or several that arrived together; they are to be released."""

    def on_completion(self, request: int, *, status: Status) -> None:
        """A request of `Peer.post` has ended: its memory is not read any more."""

    def on_ended(self) -> None:
        """The peer has ended; nothing follows."""
