"""Alarms: what a card's owner must know, counted always and logged at a bounded rate.

    alarms = Alarms()
    alarms.raise_alarm("egress", "connect to 203.0.113.7: the control plane did not ask for it")
    alarms.counts                                        # {"egress": 1}

    limit = RateLimit()                                  # one for each tenant
    for name in ("nitro_emu.device.vf.efa_0", ...):
        logging.getLogger(name).addFilter(limit)         # a filter is not inherited: attach it to each logger

A tenant, or a stranger on the network, causes as many of them as it likes. So neither the log nor the memory may grow
with their number: a token bucket for each kind lets a burst pass and then so many a second, and the next record that
passes says how many before it were not logged. The counts are complete.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

ALARMS_PER_S: Final = 1.0
ALARM_BURST: Final = 10
"""Of each kind: enough to see what happens, 86,400 lines a day at most."""

RECORDS_PER_S: Final = 10.0
RECORD_BURST: Final = 50
"""Of one tenant's records: opening and closing a device with all its resources logs about 20."""

MAX_KINDS: Final = 64
OTHER_KINDS: Final = "other"
"""Kinds beyond the limit are counted together under this name. Kinds are written in the code, so there are few."""

MAX_TEXT: Final = 500
"""Characters of an alarm's text that are logged."""

Clock = Callable[[], float]
"""Seconds from any origin, never backwards."""

_log: Final = logging.getLogger(__name__)


class TokenBucket:
    """Lets a burst pass, and then so many a second. Not for several threads at once."""

    __slots__ = ("_burst", "_clock", "_per_s", "_tokens", "_updated_at")

    def __init__(self, *, per_s: float, burst: int, clock: Clock = time.monotonic) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._clock = clock
        self._tokens = self._burst
        self._updated_at = clock()

    def take(self) -> bool:
        """Return whether one more may pass now; if so, it is counted."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._updated_at) * self._per_s)
        self._updated_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    @property
    def is_full(self) -> bool:
        """Whether nothing has passed for so long that a new bucket would be the same."""
        return self._tokens + max(0.0, self._clock() - self._updated_at) * self._per_s >= self._burst


class Alarms:
    """Counts alarms by kind, and logs them at ERROR at a bounded rate. Any thread may raise one."""

    def __init__(self, *, per_s: float = ALARMS_PER_S, burst: int = ALARM_BURST, clock: Clock = time.monotonic) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}
        self._counts: dict[str, int] = {}
        self._unlogged: dict[str, int] = {}
        self._guard = threading.Lock()

    def raise_alarm(self, kind: str, text: str) -> None:
        """Count an alarm, and log it unless too many of its kind were logged. Raises nothing."""
        with self._guard:
            if kind not in self._counts and len(self._counts) >= MAX_KINDS:
                kind = OTHER_KINDS
            self._counts[kind] = self._counts.get(kind, 0) + 1
            if kind not in self._buckets:
                self._buckets[kind] = TokenBucket(per_s=self._per_s, burst=self._burst, clock=self._clock)
            if not self._buckets[kind].take():
                self._unlogged[kind] = self._unlogged.get(kind, 0) + 1
                return
            unlogged = self._unlogged.pop(kind, 0)
        _log.error("alarm %s: %s%s", kind, text[:MAX_TEXT], _suppressed(unlogged))

    @property
    def counts(self) -> Mapping[str, int]:
        """Alarms of each kind since the start, whether they were logged or not."""
        with self._guard:
            return MappingProxyType(dict(self._counts))


class RateLimit(logging.Filter):
    """Limits the records that one tenant causes; attach it to each logger of that tenant's VF."""

    def __init__(
        self, *, per_s: float = RECORDS_PER_S, burst: int = RECORD_BURST, clock: Clock = time.monotonic
    ) -> None:
        super().__init__()
        self._bucket = TokenBucket(per_s=per_s, burst=burst, clock=clock)
        self._guard = threading.Lock()
        self._unlogged = 0
        self._total = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged; the first one after others were not says how many."""
        with self._guard:
            if not self._bucket.take():
                self._unlogged += 1
                self._total += 1
                return False
            unlogged, self._unlogged = self._unlogged, 0
        if unlogged:
            record.msg, record.args = record.getMessage() + _suppressed(unlogged), None
        return True

    @property
    def suppressed(self) -> int:
        """Records that were not logged, since the start."""
        return self._total


def _suppressed(count: int) -> str:
    return f" ({count} before it were not logged)" if count else ""
