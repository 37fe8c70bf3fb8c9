"""What the events of a peer change: its open requests, and the messages and notifications that wait to be received."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from srd.batch import MessageBatch
from srd.handler import PeerHandler
from srd.message import Message, WriteNotification
from srd.notify import Notify
from srd.proto.base.lazy_deque import LazyDeque
from srd.proto.wire.status import Status
from srd.request import Request


def end_use(request: Request) -> None:
    """Release the memory of a request, which is not read any more."""
    if (view := request.view) is not None:
        view.release()
        request.view = None


class PeerInbox:
    """Filled by the endpoint, emptied by its `Peer`; `changed` is notified after every change."""

    __slots__ = ("_requests", "_writes", "changed", "closing", "ended", "handler", "messages", "on_write")

    def __init__(self) -> None:
        self._requests: dict[int, Request] | None = None  # that are open; None: there is none
        self.messages = LazyDeque[Message | MessageBatch]()
        self._writes: LazyDeque[WriteNotification] | None = None
        self.handler: PeerHandler | None = None  # takes messages, and the completions of requests without a future
        self.on_write: Callable[[WriteNotification], None] | None = None  # takes the notifications of writes
        self.changed = Notify()
        self.closing = False  # whether the application receives no more
        self.ended = False  # whether `end` was called, after all other events

    @property
    def writes(self) -> LazyDeque[WriteNotification]:
        """The notifications of writes that were not received."""
        if self._writes is None:
            self._writes = LazyDeque[WriteNotification]()
        return self._writes

    def deliver(self, message: Message | MessageBatch) -> None:
        """Queue a message, or several that arrived together, if there is no handler for them."""
        if self.handler is not None:
            self.handler.on_message(message)
            return
        self.messages.append(message)
        self.changed.notify()

    def deliver_write(self, written: WriteNotification) -> None:
        """Queue a write notification, if nobody takes it."""
        if self.on_write is not None:
            self.on_write(written)
            return
        self.writes.append(written)
        self.changed.notify()

    def begin(self, number: int, request: Request) -> None:
        """Note an open request."""
        if self._requests is None:
            self._requests = {}
        self._requests[number] = request

    def request(self, number: int) -> Request | None:
        """Return the open request of this number."""
        return None if self._requests is None else self._requests.get(number)

    def complete(self, request: int, *, status: Status) -> bool:
        """Set the result of a request that has a future, or tell the handler; return whether there is either."""
        future = None if self._requests is None else self._requests.pop(request, None)
        if future is None:
            if self.handler is None:
                return False
            self.handler.on_completion(request, status=status)
            return True
        if not self._requests:
            self._requests = None
        end_use(future)
        if not future.done():
            future.set_result(status)
        return True

    def fail_requests(self, status: Status) -> None:
        """End every open request with `status`."""
        for request in list(self._requests or ()):
            self.complete(request, status=status)

    def end(self) -> None:
        """Note that the peer has ended; the core has the status and the reason."""
        self.ended = True
        if self.closing:
            self.release_messages()
        if self.handler is not None:
            self.handler.on_ended()
        self.changed.notify()

    def attach(self, handler: PeerHandler) -> None:
        """Give the handler what waits, and all that comes."""
        self.handler = handler
        while self.messages:
            handler.on_message(self.messages.popleft())
        if self.ended:
            handler.on_ended()

    @property
    def has_unreceived(self) -> bool:
        """Whether messages or writes wait to be received."""
        return bool(self.messages) or bool(self._writes)

    def untouched(self) -> Iterator[Message | MessageBatch]:
        """Yield the messages of which the application has nothing yet."""
        for message in self.messages:
            if not (isinstance(message, MessageBatch) and message.taken):
                yield message

    def release_messages(self) -> None:
        """Release the messages that were not received."""
        while self.messages:
            left = self.messages.popleft()
            if isinstance(left, MessageBatch):
                left.abandon()
            else:
                left.release()
