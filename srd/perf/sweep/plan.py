"""What a sweep is to do: chosen by the client, checked by both ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from netns.base.decoding import decoded_untrusted
from srd.perf.errors import PerfError
from srd.perf.parameters import MAX_SRD_BLOCK_BYTES, MAX_STREAMS, Protocol, check_congestion, check_ranges

ALL_SIZES: Final = tuple(1 << power for power in range(1, 24))
"""perftest's --all: 2 bytes to 8 MiB."""
MAX_SIZES: Final = 64
MAX_BYTES: Final = MAX_SRD_BLOCK_BYTES
MAX_ITERATIONS: Final = 10_000_000
"""Whose times a client keeps: 80 MB."""
MAX_SECONDS: Final = 600.0
ITERATIONS: Final = 1000
"""perftest's for all but writes."""
MAX_MEMORY_BYTES: Final = 64 << 20
"""Registered for writes and reads, of all peers together."""
MAX_POSTED_BYTES: Final = 16 << 20
"""Messages that are posted at a time, of a peer: twice what an endpoint has in flight while nothing limits it."""
MAX_DEPTH: Final = 2048
_DEPTHS: Final = {"rate": MAX_DEPTH, "write": 128, "read": 128}
"""Requests of a peer at a time. Of messages half of the window of the protocol; else perftest's --tx-depth."""


class Operation(StrEnum):
    """What is measured."""

    LATENCY = "latency"
    RATE = "rate"
    WRITE = "write"
    READ = "read"


@dataclass(frozen=True, slots=True)
class Sweep:
    """A measurement of some sizes, one after the other."""

    operation: Operation
    protocol: Protocol = Protocol.SRD
    congestion: str = ""
    """TCP: the name of the congestion control."""
    sizes: Sequence[int] = ALL_SIZES
    """Bytes of a message."""
    iterations: int = ITERATIONS
    """Of each size, over all peers; 0: for `seconds`."""
    seconds: float = 0.0
    """Of each size; 0: until `iterations`."""
    peers: int = 1
    verify: bool = False
    """Whether payload is compared."""
    tx_depth: int = 0
    """Requests of a peer at a time, at most; 0: as many as perftest has."""

    @property
    def count(self) -> int:
        """Connections: of SRD one for each peer, of TCP one for each size."""
        return self.peers if self.protocol is Protocol.SRD else len(self.sizes)

    def depth(self, size_bytes: int) -> int:
        """Return how many requests of a peer there are at a time."""
        if self.operation is Operation.LATENCY:
            return 1
        if self.operation is Operation.RATE:
            least, room_bytes = 2, MAX_POSTED_BYTES
        else:
            least, room_bytes = 1, min(MAX_POSTED_BYTES, MAX_MEMORY_BYTES // self.peers)
        return min(self.tx_depth or _DEPTHS[self.operation], max(least, room_bytes // size_bytes))

    def check(self) -> None:
        """Raise PerfError for what no sweep can have."""
        if not 1 <= len(self.sizes) <= MAX_SIZES:
            raise PerfError(f"sizes: {len(self.sizes)} of them; give 1 to {MAX_SIZES}")
        check_ranges([
            ("size", min(self.sizes), 1, MAX_BYTES),
            ("size", max(self.sizes), 1, MAX_BYTES),
            ("iterations", self.iterations, 0, MAX_ITERATIONS),
            ("duration", self.seconds, 0.0, MAX_SECONDS),
            ("peers", self.peers, 1, MAX_STREAMS),
            ("depth", self.tx_depth, 0, MAX_DEPTH),
        ])  # fmt: skip
        if bool(self.iterations) is bool(self.seconds):
            raise PerfError("each size has a number of iterations or a time, one of them")
        if self.protocol is Protocol.MPTCP:
            raise PerfError("MPTCP has no table of sizes; there are SRD and TCP")
        check_congestion(self.protocol, self.congestion)
        self._check_operation()

    def _check_operation(self) -> None:
        is_message = self.operation in {Operation.LATENCY, Operation.RATE}
        if self.protocol is Protocol.TCP and not is_message:
            raise PerfError(f"TCP has no {self.operation}; there are latency and rate")
        if self.peers > 1 and (self.protocol is Protocol.TCP or self.operation is Operation.LATENCY):
            raise PerfError(f"peers: {self.peers}; {self.protocol} measures {self.operation} with one")
        if not is_message and max(self.sizes) * self.peers > MAX_MEMORY_BYTES:
            raise PerfError(
                f"size: {max(self.sizes)} bytes for each of {self.peers} peers are more than "
                f"{MAX_MEMORY_BYTES >> 20} MiB of registered memory; give fewer peers, or a smaller size"
            )


def encode(sweep: Sweep) -> dict[str, Any]:
    """Return it as JSON's types."""
    return {**asdict(sweep), "sizes": list(sweep.sizes)}


def sweep_untrusted(fields: object) -> Sweep:
    """Decode what a client sent. Raises PerfError, and nothing else."""
    try:
        sweep = decoded_untrusted(Sweep, fields)
    except ValueError as error:
        raise PerfError(f"a sweep without its parameters: {error}") from error
    sweep.check()
    return sweep
