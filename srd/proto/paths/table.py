"""The paths to one peer: which carry data, which are probed, and which are standbys (PROTOCOL.md, section 8).

Switches choose a link by a hash of the source port, among other fields. A port whose link died cannot reach the peer
until routing has converged, which takes up to minutes; another port is hashed to another link with a good chance (PLB,
SIGCOMM 2022, repaths flows for that reason).

1. There are as many slots as the configuration has paths, path p is the primary path of slot p. Per slot at most one
   path carries data, and at most two are probed.
2. A primary path takes its slot back with its first answer, so that repaired links are used again, as evenly as before.
3. Probes are bounded so that a path that works is found fast, and once one has been found after a long outage the
   others follow; but where nothing answers, because the host is slow or its buffer is full, the probes of many senders
   do not take the places of the data that the host waits for.
4. Paths are created when they are needed, since an endpoint may have 10,000 peers, most of them with little traffic.
   All primary paths are created with the first burst that finds another one in flight; created one by one, the late
   ones would take a standing queue for their base round trip. Ports of the reserve stay open: late acks arrive at them.
"""

from __future__ import annotations

import math
from typing import Final

from srd.proto.base.errors import PacketError
from srd.proto.base.pacer import Pacer
from srd.proto.config import ProtocolConfig
from srd.proto.paths.path import MAX_PROBE_INTERVAL_S, Path, PathEvent, PathState
from srd.proto.paths.rtt import RttEstimator
from srd.proto.peer_trace import PeerTrace
from srd.proto.wire.control import PathReport
from srd.proto.wire.data import expand

RESERVE_PATHS: Final = 64
"""Paths beyond the primary paths: with three of four links dead, each of 16 slots finds a live one among them."""
PROBES_BEFORE_STANDBY: Final = 3
"""Unanswered probes in a row after which a primary path gets a standby, about 0.1 s after its timeout: by then the
answer is not merely late, and a link that flaps is up again."""

PROBE_BUDGET: Final = 96.0
"""Probes of a peer that may go unanswered at once: one for each path, the reserve's too; or for 32 dead paths three."""
PROBES_PER_ANSWER: Final = 2
"""Probes of a peer for each path that answered, so that what was repaired is found in doubling steps."""
BUDGET_PER_S: Final = 1 / MAX_PROBE_INTERVAL_S
"""Probes of a peer in a second without any answer."""


class ProbePacing:
    """When the probes of paths may be sent: `on_probe`, `allow`, `release_at`."""

    __slots__ = ("_budget", "_pacer")

    def __init__(self, *, depth_s: float) -> None:
        self._pacer = Pacer(depth_s=depth_s)
        self._budget = Pacer(depth_s=PROBE_BUDGET / BUDGET_PER_S)  # bounds those that nothing answers

    def on_probe(self, *, now: float, packets_per_s: float) -> None:
        """Note that a probe was sent; probes are paced at this rate."""
        self._pacer.charge(1, now=now, rate_bytes_per_s=packets_per_s)
        self._budget.charge(1, now=now, rate_bytes_per_s=BUDGET_PER_S)

    def allow(self, probes: int, *, now: float) -> None:
        """Allow so many probes more to go unanswered."""
        self._budget.charge(-probes, now=now, rate_bytes_per_s=BUDGET_PER_S)

    def release_at(self) -> float:
        """When the next probe may be sent."""
        return max(self._pacer.release_at(), self._budget.release_at())


class PathTable:
    """`on_timeout` and `on_answer` for events, `poll_probe` for probes that are due; `active` paths carry data."""

    __slots__ = (
        "_config",
        "_initial_rtt_s",
        "_pacing",
        "_retired",
        "_trace",
        "active",
        "all",
        "inflight_bytes",
        "probed",
    )

    def __init__(self, config: ProtocolConfig, *, trace: PeerTrace | None = None) -> None:
        self.all = [Path(0, initial_rtt_s=config.initial_rtt_s)]
        """By number, as far as created; paths of the reserve once they were opened."""
        self.active = self.all.copy()
        self.probed: tuple[Path, ...] = ()
        """Paths with a probe scheduled."""
        self.inflight_bytes = 0
        """Bytes in flight on the active paths."""
        self._config = config
        self._initial_rtt_s = config.initial_rtt_s
        self._retired: tuple[Path, ...] = ()  # of the reserve, in order, behind those that were never opened
        self._pacing: ProbePacing | None = None  # from the first probe of a path on
        self._trace = trace

    def open_next(self) -> None:
        """Create one more of the primary paths, if any is missing."""
        if len(self.all) < self._config.paths:
            self.all.append(Path(len(self.all), initial_rtt_s=self._initial_rtt_s))
            self.active.append(self.all[-1])

    def set_initial_rtt(self, round_trip_s: float) -> None:
        """Use the round trip that the handshake measured for paths without a sample."""
        self._initial_rtt_s = round_trip_s
        for path in self.all:
            if not path.rtt.sampled:
                path.rtt = RttEstimator(initial_s=round_trip_s)

    @property
    def mtu_suspect(self) -> bool:
        """Whether all primary paths exist and are MTU-suspect."""
        return len(self.all) >= self._config.paths and all(path.mtu_suspect for path in self.all[: self._config.paths])

    def find_untrusted(self, report: PathReport) -> tuple[Path, int]:
        """Return the path of a report, and the full path sequence. Raises PacketError for what was never sent."""
        if report.path >= len(self.all):
            raise PacketError(f"a report of path {report.path}, of {len(self.all)}")
        path = self.all[report.path]
        sequence = expand(report.path_sequence, near=path.next_sequence)
        if sequence >= path.next_sequence:
            raise PacketError(f"a report of path {report.path}, sequence {report.path_sequence}, which was not sent")
        return path, sequence

    def on_sent(self, path: Path, size_bytes: int) -> None:
        """Note that so much was sent on an active path."""
        path.inflight_bytes += size_bytes
        self.inflight_bytes += size_bytes

    def on_timeout(self, path: Path, *, now: float) -> None:
        """Note that an active path left a burst unanswered: it carries no data until it answers."""
        self.active.remove(path)
        self.inflight_bytes -= path.inflight_bytes
        self._apply(path, PathEvent.TIMEOUT, now=now)
        path.counters.timeouts += 1
        self._begin_probing(path, timeout_s=path.rtt.timeout_s(floor_s=self._config.min_rto_s), now=now)
        self.open_next()  # it may be on another link

    def on_answer(self, path: Path, *, now: float) -> None:
        """Note that a path answered that is not active."""
        self._apply(path, PathEvent.ANSWER, now=now)
        if path.state is not PathState.ACTIVE:
            return  # a late answer of a path in reserve
        self._paced().allow(PROBES_PER_ANSWER, now=now)
        self._end_probing(path)
        if path.lost_in_row:
            path.size_losses.reset()  # if it was MTU-suspect, the probe that it answered was of full size
        self.active.append(path)
        self.inflight_bytes += path.inflight_bytes
        self._retire_standby(path, now=now)

    def poll_probe(self, *, now: float, packets_per_s: float) -> tuple[Path, int] | None:
        """Return a path that is to be probed now, and the probe's path sequence.

        Probes are paced at `packets_per_s`, the rate of data packets: a probe takes a packet's slot in a queue, and may
        be as long, so the probes of many senders could otherwise displace the data.
        """
        if now < self.probe_at():
            return None
        path = min(self.probed, key=_probe_at)
        old = path.state
        # While no path is active all data waits for an answer, so the interval of a path's probes does not grow.
        sequence = path.on_probe_sent(now=now, alone=not self.active)
        self._paced().on_probe(now=now, packets_per_s=packets_per_s)
        self._trace_state(path, old=old, now=now)
        if path.probes_unanswered > PROBES_BEFORE_STANDBY:
            self._replace(path, now=now)
        return path, sequence

    def probe_now(self, path: Path, *, now: float) -> None:
        """Have a path probed next that is likely to answer, beyond what is allowed to go unanswered."""
        path.probe_at = -math.inf
        self._paced().allow(1, now=now)

    def probe_at(self) -> float:
        """When the next probe is due; infinite when none is."""
        if not self.probed:
            return math.inf
        due_at = min(_probe_at(path) for path in self.probed)
        return max(due_at, self._paced().release_at())

    def _paced(self) -> ProbePacing:
        if self._pacing is None:
            self._pacing = ProbePacing(depth_s=self._config.pacing_depth_s)
        return self._pacing

    def _begin_probing(self, path: Path, *, timeout_s: float, now: float) -> None:
        path.probe_at, path.probe_interval_s, path.probes_unanswered = now, timeout_s, 0
        self.probed += (path,)

    def _end_probing(self, path: Path) -> None:
        path.probe_at = None
        self.probed = tuple([probed for probed in self.probed if probed is not path])

    def _replace(self, path: Path, *, now: float) -> None:
        """Open a standby for a primary path, or another one for the slot of a standby."""
        primary = path if path.index < self._config.paths else next(each for each in self.all if each.standby is path)
        if primary is not path:
            self._retire_standby(primary, now=now)
        if primary.standby is not None or (standby := self._next_standby()) is None:
            return
        primary.standby = standby
        self._apply(standby, PathEvent.OPEN, now=now)
        standby.size_losses.suspect()  # nothing is known of it
        timeout_s = primary.rtt.timeout_s(floor_s=self._config.min_rto_s)
        self._begin_probing(standby, timeout_s=timeout_s, now=now)

    def _next_standby(self) -> Path | None:
        """Return the first path of the reserve: those never opened in order of number, then those retired."""
        self.open_all()
        if len(self.all) < self._config.paths + RESERVE_PATHS:
            self.all.append(Path(len(self.all), initial_rtt_s=self._initial_rtt_s, state=PathState.RESERVE))
            return self.all[-1]
        if not self._retired:
            return None
        first, self._retired = self._retired[0], self._retired[1:]
        return first

    def open_all(self) -> None:
        """Create all primary paths."""
        while len(self.all) < self._config.paths:
            self.open_next()

    def _retire_standby(self, primary: Path, *, now: float) -> None:
        """Move a path's standby to the end of the reserve. What it still carries is acknowledged or lost as usual."""
        standby, primary.standby = primary.standby, None
        if standby is None:
            return
        if standby.state is PathState.ACTIVE:
            self.active.remove(standby)
            self.inflight_bytes -= standby.inflight_bytes
        else:
            self._end_probing(standby)
        self._apply(standby, PathEvent.RETIRE, now=now)
        self._retired += (standby,)

    def _apply(self, path: Path, event: PathEvent, *, now: float) -> None:
        old = path.state
        path.apply(event)
        self._trace_state(path, old=old, now=now)

    def _trace_state(self, path: Path, *, old: PathState, now: float) -> None:
        if self._trace is not None:
            self._trace.path_state(path.index, old=old.name, new=path.state.name, now=now)


def _probe_at(path: Path) -> float:
    """When a probe of a path is due."""
    return math.inf if path.probe_at is None else path.probe_at
