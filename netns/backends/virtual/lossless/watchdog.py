"""SONiC's PFC watchdog, action `drop`: ends a pause that lasts too long, at the price of the packets that wait.

Every `poll_ms` each lossless queue of each switch is looked at. One that has been paused with packets in it for
`detection_ms` is in a storm: its packets are dropped, new ones too, those that come in by that port and
class as well, and its pauses are ignored. It is restored when no pause has come for `restoration_ms`.
"""

from __future__ import annotations

from netns.backends.virtual.event_queue import EventQueue
from netns.backends.virtual.lossless.egress_port import EgressPort
from netns.backends.virtual.lossless.profile import CLASSES, SwitchProfile, WatchdogProfile


class Watchdog:
    """`storms` counts those it ended."""

    def __init__(
        self, ports: list[EgressPort], *, profile: WatchdogProfile, switches: SwitchProfile, events: EventQueue
    ) -> None:
        self.storms = 0
        self._ports = ports
        self._events = events
        self._poll_ns = round(profile.poll_ms * 1e6)
        self._detection_ns = round(profile.detection_ms * 1e6)
        self._restoration_ns = round(profile.restoration_ms * 1e6)
        self._classes = [
            each for each in range(CLASSES) if each in switches.classes and switches.classes[each].lossless
        ]
        events.at(self._poll_ns, self._poll)

    def _poll(self, now_ns: int) -> None:
        for port in self._ports:
            for number in self._classes:
                if port.storming >> number & 1:
                    if now_ns - port.last_pause_ns[number] >= self._restoration_ns:
                        port.end_storm(number)
                elif stuck_ns(port, number, now_ns) >= self._detection_ns:
                    self.storms += 1
                    port.begin_storm(number)
        self._events.at(now_ns + self._poll_ns, self._poll)


def stuck_ns(port: EgressPort, number: int, now_ns: int) -> int:
    """Return for how long a class has been paused with packets that wait; 0: it is not."""
    if not port.paused >> number & 1 or not port.queued_bytes[number]:
        return 0
    return now_ns - port.paused_since_ns[number]
