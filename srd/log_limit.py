"""A bound for what others make a process log.

    limit = RateLimit()                                  # one for each tenant, or each listener
    for name in ("nitro_emu.device.vf.efa_0", ...):
        logging.getLogger(name).addFilter(limit)         # a filter is not inherited: attach it to each logger

Whoever may connect causes as many records as it likes. A token bucket lets a burst pass and then so many a second, and
the next record that passes says how many before it were not logged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from netns.base.token_bucket import TokenBucket

RECORDS_PER_S: Final = 10.0
RECORD_BURST: Final = 50
"""Of one tenant's records: opening and closing a device with all its resources logs about 20."""

Clock = Callable[[], float]
"""Seconds from any origin, never backwards."""


class RateLimit(logging.Filter):
    """Limits the records of the loggers that it is attached to, all together."""

    def __init__(
        self, *, per_s: float = RECORDS_PER_S, burst: int = RECORD_BURST, clock: Clock = time.monotonic
    ) -> None:
        super().__init__()
        self._clock = clock
        self._bucket = TokenBucket(per_s, depth_s=burst / per_s)
        self._guard = threading.Lock()
        self._unlogged = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged; the first one after others were not says how many."""
        with self._guard:
            if not self._bucket.take(now=self._clock()):
                self._unlogged += 1
                return False
            unlogged, self._unlogged = self._unlogged, 0
        if unlogged:
            record.msg, record.args = record.getMessage() + suppressed_text(unlogged), None
        return True


def suppressed_text(count: int) -> str:
    """Return what is said of records that were not logged: to be added to the next one."""
    return f" ({count} before it were not logged)" if count else ""
