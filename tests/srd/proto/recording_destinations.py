"""Destinations that decide as a test says, and record what they were asked, to compare with the events of the core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from srd.proto.events import (
    BatchCompletion,
    Completion,
    MessageAborted,
    MessageReceived,
    MessagesReceived,
    WriteReceived,
)
from srd.proto.memory import Destinations
from srd.proto.wire.status import Status
from tests.simulation import Node

RNR = Status.REMOTE_ERROR_RNR
Decision = Callable[[int, int], Status | None]
"""From a key and a number of messages to a refusal; None: they are taken."""


class RecordingDestinations(Destinations):
    """Takes what `decide` takes. `taken` and `refused` count messages and notifications by key."""

    def __init__(self, decide: Decision = lambda _key, _count: None) -> None:
        self.decide = decide
        self.reason = Status.REMOTE_ERROR_BAD_ADDRESS
        self.asked: list[tuple[int, int, int, int]] = []
        """Key, peer, length and count of every `admit`; length -1: of an `admit_write`."""
        self.taken: Counter[int] = Counter()
        self.refused: Counter[int] = Counter()
        self.reasons_asked: list[int] = []
        self.flows: dict[int, int] = {}

    def admit(self, key: int, *, peer: int, length: int, count: int) -> Status | None:
        self.asked.append((key, peer, length, count))
        status = self.decide(key, count)
        (self.taken if status is None else self.refused)[key] += count
        return status

    def admit_write(self, key: int, *, peer: int) -> Status | None:
        return self.admit(key, peer=peer, length=-1, count=1)

    def refusal(self, key: int, *, peer: int) -> Status:  # noqa: ARG002 - as Destinations have it
        self.reasons_asked.append(key)
        return self.reason

    def flow(self, key: int) -> int:
        return self.flows.get(key, 0)


def reported(node: Node) -> Counter[int]:
    """Messages and notifications that were reported as received or as aborted, by key."""
    found: Counter[int] = Counter()
    for event in node.events:
        if isinstance(event, MessageReceived | MessageAborted | WriteReceived):
            found[event.key] += 1
        elif isinstance(event, MessagesReceived):
            found[event.key] += event.count
    return found


def statuses_of(node: Node) -> dict[int, Status]:
    """Return how every request ended, those of batches too."""
    found: dict[int, Status] = {}
    for event in node.events:
        if not isinstance(event, Completion | BatchCompletion):
            continue
        count, status = (1, event.status) if isinstance(event, Completion) else (event.count, Status.OK)
        for request in range(event.request, event.request + count):
            assert request not in found, f"request {request} completed twice"
            found[request] = status
    return found


def landed(node: Node) -> list[tuple[int, bytes]]:
    """Return number and content of every message that was delivered, in order."""
    found = []
    for event in node.events:
        if isinstance(event, MessageReceived):
            pieces = [(extent.region_offset, extent.length) for extent in event.extents]
            content = b"".join(node.landing[at : at + length].tobytes() for at, length in pieces)
            found.append((event.message, content))
        elif isinstance(event, MessagesReceived):
            for index in range(event.count):
                at = event.region_offset + index * event.length
                found.append((event.message + index & 0xFFFFFFFF, node.landing[at : at + event.length].tobytes()))
    return found
