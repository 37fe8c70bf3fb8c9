"""Messages on one connection: a constant number of outstanding ones, or a constant rate."""

from __future__ import annotations

from collections.abc import Iterator

from netns.backends.virtual.fabric import VirtualFabric
from srd.proto.events import Completion, Event
from srd.sim.host import DeliveredMessage
from srd.sim.simulation import Connection


class MessageStream:
    """Posts a message for each that completes. Message n has immediate n and is posted at `posted_at_ns[n]`.

    At most one stream per source, because it handles the host's events.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        message_bytes: int,
        outstanding: int,
        fabric: VirtualFabric,
        messages: int = 0,
    ) -> None:
        """Create a stream of `messages` messages in all; 0: endless."""
        self.connection = connection
        self.posted_at_ns: list[int] = []
        self._message_bytes = message_bytes
        self._outstanding = outstanding
        self._messages = messages
        self._fabric = fabric
        connection.source.on_event = self._take

    def start(self) -> None:
        """Post the first messages."""
        for _ in range(self._outstanding):
            self._post()
        self.connection.source.serve()

    def offer(self, *, every_ns: int, until_ns: int) -> None:
        """Post a message so often from now on, whatever completes; of a stream with no outstanding ones."""
        for at_ns in range(self._fabric.now_ns, until_ns, every_ns):
            self._fabric.at(at_ns, self._offer)

    def _offer(self, _now_ns: int) -> None:
        self._post()
        self.connection.source.serve()

    def delivered(self) -> Iterator[DeliveredMessage]:
        """Yield what was delivered of it."""
        for delivery in self.connection.destination.deliveries:
            if delivery.peer == self.connection.remote_peer:
                yield delivery

    def _post(self) -> None:
        if not self._messages or len(self.posted_at_ns) < self._messages:
            self.connection.post(length=self._message_bytes, immediate=len(self.posted_at_ns))
            self.posted_at_ns.append(self._fabric.now_ns)

    def _take(self, event: Event) -> None:
        if self._outstanding and isinstance(event, Completion):
            self._post()
