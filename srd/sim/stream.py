"""Bulk traffic: a constant number of outstanding messages on one connection."""

from __future__ import annotations

from collections.abc import Callable

from srd.proto.events import Completion, Event
from srd.sim.simulation import Connection


class Stream:
    """Posts a message for each that completes. Message n has immediate n and is posted at `posted_at_ns[n]`.

    At most one stream per source, because it handles the host's events.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        message_bytes: int,
        outstanding: int,
        now_ns: Callable[[], int],
        messages: int = 0,
    ) -> None:
        """Create a stream of `messages` messages in all; 0: endless."""
        self.connection = connection
        self.posted_at_ns: list[int] = []
        self._message_bytes = message_bytes
        self._outstanding = outstanding
        self._messages = messages
        self._now_ns = now_ns
        connection.source.on_event = self._take

    def start(self) -> None:
        """Post the first messages."""
        for _ in range(self._outstanding):
            self._post()
        self.connection.source.serve()

    def _post(self) -> None:
        if not self._messages or len(self.posted_at_ns) < self._messages:
            self.connection.post(length=self._message_bytes, immediate=len(self.posted_at_ns))
            self.posted_at_ns.append(self._now_ns())

    def _take(self, event: Event) -> None:
        if isinstance(event, Completion):
            self._post()
