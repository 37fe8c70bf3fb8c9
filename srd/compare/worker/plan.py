"""What a host is to send and to receive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Address = tuple[str, int]

BLOCK_BYTES: Final = 64 << 10
"""A message of SRD, and a write of TCP: short enough that flows take turns often, and that arrivals show a stall."""
BLOCK_BITS: Final = 14
"""Of an immediate: the number of a block in its flow; the others are the flow's number."""
MAX_FLOW_BYTES: Final = BLOCK_BYTES << BLOCK_BITS
FIRST_FLOW: Final = 1
"""Flow 0 is the one byte by which a connection is tried before the start."""


@dataclass(frozen=True, slots=True)
class PlannedFlow:
    """A number of bytes for another host."""

    number: int
    """From FIRST_FLOW on; of all hosts together, so that it is the receiver's name for it, too."""

    to: Address
    size_bytes: int
    at_s: float
    """When it is handed to the transport, from the start on."""

    def blocks(self) -> list[tuple[int, int]]:
        """Return number and length of each block."""
        return [
            (index, min(BLOCK_BYTES, self.size_bytes - start))
            for index, start in enumerate(range(0, self.size_bytes, BLOCK_BYTES))
        ]


@dataclass(frozen=True, slots=True)
class Plan:
    """A host's part."""

    flows: tuple[PlannedFlow, ...]
    """To send."""

    arriving: Mapping[int, int]
    """To receive: number of a flow -> its bytes."""

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Plan:
        """Read the line that the process is given."""
        flows = tuple(
            PlannedFlow(number, (address, port), size_bytes, at_s)
            for number, address, port, size_bytes, at_s in fields["flows"]
        )
        return cls(flows, {int(number): size_bytes for number, size_bytes in fields["arriving"].items()})

    @property
    def targets(self) -> Mapping[Address, int]:
        """Where flows go to, with their number."""
        counts = dict[Address, int]()
        for flow in self.flows:
            counts[flow.to] = counts.get(flow.to, 0) + 1
        return counts
