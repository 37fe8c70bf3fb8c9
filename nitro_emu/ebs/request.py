"""What a host asks of a volume, as data, and the states that a request passes through, as a table.

    QUEUED --> ISSUED --> DONE
      |          |
      '----------'------> FAILED

A request is queued while a limit, or a write of the same blocks, holds it back. From ISSUED on the device has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Final


class BlockOperation(Enum):
    """What a request asks for; the value is its name in metrics."""

    READ = "read"
    WRITE = "write"
    FLUSH = "flush"
    TRIM = "trim"
    WRITE_ZEROES = "write_zeroes"
    EXTENTS = "extents"
    """What is allocated. It is a question, which costs no IOPS."""


class RequestState(Enum):
    """Where a request is."""

    QUEUED = "queued"
    ISSUED = "issued"
    DONE = "done"
    FAILED = "failed"


NEXT: Final[Mapping[RequestState, AbstractSet[RequestState]]] = {
    RequestState.QUEUED: {RequestState.ISSUED, RequestState.FAILED},
    RequestState.ISSUED: {RequestState.DONE, RequestState.FAILED},
    RequestState.DONE: set(),
    RequestState.FAILED: set(),
}
"""Where it may go from each state."""

CHANGES: Final = frozenset({BlockOperation.WRITE, BlockOperation.TRIM, BlockOperation.WRITE_ZEROES})
"""Commands after which a read may return something else."""


@dataclass(slots=True, kw_only=True)
class VolumeRequest:
    """One request of a host. Bounds are checked where it comes from."""

    command: BlockOperation
    offset: int = 0
    length_bytes: int = 0
    fua: bool = False
    may_trim: bool = False
    state: RequestState = RequestState.QUEUED

    def become(self, state: RequestState) -> None:
        """Go to another state. Raises ValueError for a step that the table does not have."""
        if state not in NEXT[self.state]:
            raise ValueError(f"a request that is {self.state.value} cannot become {state.value}")
        self.state = state
