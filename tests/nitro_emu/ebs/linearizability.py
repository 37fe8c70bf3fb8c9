"""Whether a history of one block could have come from a block that does one operation at a time.

The search of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993), with Lowe's memory of what was tried
("Testing for Linearizability", 2017): a set of operations that were done, with the value after them, is looked at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Operation:
    """A read or a write of one block, by someone."""

    is_write: bool
    begun_at: float
    value: int | None = None
    """What was written, or was read."""
    ended_at: float = math.inf
    """inf: it is not known whether it took effect, and it may yet."""

    def __str__(self) -> str:
        return f"{'write' if self.is_write else 'read '} {self.value} [{self.begun_at:.4f}, {self.ended_at:.4f}]"


def is_linearizable(history: Sequence[Operation], *, initial: int = 0) -> bool:
    """Return whether there is an order; reads that did not end say nothing."""
    operations = sorted(
        (each for each in history if each.is_write or each.ended_at < math.inf), key=lambda each: each.begun_at
    )
    must = sum(1 << at for at, each in enumerate(operations) if each.ended_at < math.inf)
    tried = set[tuple[int, int]]()
    stack = [(0, initial)]
    while stack:
        done, value = stack.pop()
        if done & must == must:
            return True
        if (done, value) in tried:
            continue
        tried.add((done, value))
        first_end = min(each.ended_at for at, each in enumerate(operations) if not done >> at & 1)
        for at, each in enumerate(operations):
            if each.begun_at > first_end:
                break
            if done >> at & 1:
                continue
            if each.is_write:
                assert each.value is not None
                stack.append((done | 1 << at, each.value))
            elif each.value == value:
                stack.append((done | 1 << at, value))
    return False
