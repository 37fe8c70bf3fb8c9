"""Alarms: what a card's owner must know, counted always and logged at a bounded rate.

    alarms = Alarms()
    alarms.raise_alarm("egress", "connect to 203.0.113.7: the control plane did not ask for it")
    alarms.counts                                        # {"egress": 1}

A tenant, or a stranger on the network, causes as many of them as it likes. So neither the log nor the memory may grow
with their number: a token bucket for each kind lets a burst pass and then so many a second, and the next record that
passes says how many before it were not logged. The counts are complete.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from netns.base.token_bucket import TokenBucket
from srd.log_limit import Clock, suppressed_text

ALARMS_PER_S: Final = 1.0
ALARM_BURST: Final = 10
"""Of each kind: enough to see what happens, 86,400 lines a day at most."""

MAX_KINDS: Final = 64
OTHER_KINDS: Final = "other"
"""Kinds beyond the limit are counted together under this name. Kinds are written in the code, so there are few."""

MAX_TEXT: Final = 500
"""Characters of an alarm's text that are logged."""

_log: Final = logging.getLogger(__name__)


class Alarms:
    """Counts alarms by kind, and logs them at ERROR at a bounded rate. Any thread may raise one."""

    def __init__(self, *, per_s: float = ALARMS_PER_S, burst: int = ALARM_BURST, clock: Clock = time.monotonic) -> None:
        self._per_s = per_s
        self._depth_s = burst / per_s
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
                self._buckets[kind] = TokenBucket(self._per_s, depth_s=self._depth_s)
            if not self._buckets[kind].take(1, now=self._clock()):
                self._unlogged[kind] = self._unlogged.get(kind, 0) + 1
                return
            unlogged = self._unlogged.pop(kind, 0)
        _log.error("alarm %s: %s%s", kind, text[:MAX_TEXT], suppressed_text(unlogged))

    @property
    def counts(self) -> Mapping[str, int]:
        """Alarms of each kind since the start, whether they were logged or not."""
        with self._guard:
            return MappingProxyType(dict(self._counts))
