"""What all peers of an endpoint share: they have one reference to it instead of one to each part."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from random import Random

from srd.proto.config import ProtocolConfig
from srd.proto.congestion.limits import ActivePeers
from srd.proto.events import EventQueue, TargetCopy
from srd.proto.memory import Destinations, Memory
from srd.proto.recv.pulls import Pulls


class Shared:
    """What all peers of an endpoint share."""

    def __init__(
        self,
        config: ProtocolConfig,
        *,
        peers: Collection[int],
        new_token: Callable[[], int],
        rng: Random,
        memory: Memory | None,
        destinations: Destinations | None,
        read: Callable[[int, int], bytes] | None,
    ) -> None:
        """Take a live view of their numbers, a source of unguessable 64-bit numbers, and what the core was given."""
        self.config, self.new_token, self.rng = config, new_token, rng
        self.memory, self.destinations = memory, destinations
        self.read = read
        self.copies: list[TargetCopy] = []  # of the batch that is being processed
        self.events: EventQueue = deque()
        self.active_peers = ActivePeers(peers)
        self.pulls = Pulls(config)
