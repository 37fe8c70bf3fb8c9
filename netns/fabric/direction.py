"""One direction of a relayed link: frames read from one TAP, held by netem's model, written to the other.

A frame's path in Python is one read, one enqueue, one dequeue and one write; nothing else is done for each frame
but counting. What the model decides (loss, limit) it counts itself; what the host does to us is counted apart:
frames that the sink refused, and by how much frames left after their departure.

The model runs on the times at which frames arrived (arrivals.py), not on those at which the relay came to read them.
Before a frame enters, whatever was due by its arrival has left the model, though it may not have been written yet:
it lies in `_departed`, where it does not count against the shape's limit. In the kernel it would be on its way.
"""

from __future__ import annotations

import os
from collections import deque
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from netns.fabric.arrivals import arrival_times
from netns.netem import Netem

if TYPE_CHECKING:
    from netns.fabric.tap import Tap
    from netns.shape import Shape

# A frame of the largest MTU, 65535, its Ethernet header and a VLAN tag: a shorter buffer would cut frames.
FRAME_BYTES: Final = 65535 + 14 + 4

# Frames taken from one TAP, or written to one, before the others have their turn: more than the relay could carry
# in one rest. What a full batch leaves unread is taken for newer than it is.
BATCH_FRAMES: Final = 128


class Direction:
    """Carries frames from `source` to `sink`; `take` and `send_due` are called by the relay's loop."""

    __slots__ = (
        "_arrived_by_ns",
        "_departed",
        "_dropped_unread_before",
        "bytes",
        "late_max_ns",
        "late_ns",
        "netem",
        "packets",
        "refused",
        "sink",
        "source",
        "wake_at_ns",
    )

    def __init__(self, *, source: Tap, sink: Tap, shape: Shape, seed: int) -> None:
        self.source = source
        self.sink = sink
        self.netem: Netem[bytes] = Netem(shape, seed=seed)
        self._departed: deque[tuple[int, bytes]] = deque()
        self._arrived_by_ns = 0
        self.packets = 0
        self.bytes = 0
        self.refused = 0
        self.late_ns = 0
        self.late_max_ns = 0
        self.wake_at_ns: int | None = None
        """The one valid time of this direction in the relay's heap; the relay's to keep."""
        self._dropped_unread_before = source.dropped_unread()

    @property
    def next_at_ns(self) -> int | None:
        """When the next frame is due, which may have passed; None if none is held."""
        return self._departed[0][0] if self._departed else self.netem.next_at_ns

    def take(self, *, since_ns: int) -> bool:
        """Move waiting frames, none of which came before `since_ns`, into the model, a batch at most.

        Tell whether the source is still there.
        """
        fd, frames, is_there = self.source.fd, [], True
        try:
            for _ in range(BATCH_FRAMES):
                frames.append(os.read(fd, FRAME_BYTES))  # noqa: PERF401 - what was read before an error counts
        except BlockingIOError:
            pass
        except OSError:  # EBADFD: the device was deleted
            is_there = False
        self.admit(frames, since_ns=since_ns, now_ns=monotonic_ns())
        return is_there

    def admit(self, frames: list[bytes], *, since_ns: int, now_ns: int) -> None:
        """Let frames that arrived between the two times enter the model at their estimated arrivals."""
        enqueue, dequeue, departed = self.netem.enqueue, self.netem.dequeue, self._departed
        since_ns = max(since_ns, self._arrived_by_ns)
        for at_ns, frame in zip(arrival_times(len(frames), since_ns=since_ns, now_ns=now_ns), frames, strict=True):
            while (due := dequeue(at_ns)) is not None:
                departed.append(due)
            enqueue(at_ns, packet=frame, length_bytes=len(frame))
        self._arrived_by_ns = now_ns

    def send_due(self, now_ns: int) -> None:
        """Write the frames that are due, a batch at most."""
        fd, dequeue, departed = self.sink.fd, self.netem.dequeue, self._departed
        for _ in range(BATCH_FRAMES):
            due = departed.popleft() if departed else dequeue(now_ns)
            if due is None:
                return
            at_ns, frame = due
            try:
                os.write(fd, frame)
            except OSError:  # EAGAIN, ENOBUFS, ENOMEM; EIO while the device is down; EBADFD once it is deleted
                self.refused += 1
            else:
                self.packets += 1
                self.bytes += len(frame)
            late_ns = now_ns - at_ns
            self.late_ns += late_ns
            if late_ns > self.late_max_ns:  # noqa: PLR1730 - max() costs more than the whole comparison, per frame
                self.late_max_ns = late_ns
            now_ns = monotonic_ns()

    def tap_drops(self) -> int:
        """Count the frames lost outside the model, since the start: not read in time, or refused by the sink."""
        return self.refused + self.source.dropped_unread() - self._dropped_unread_before

    def counters(self) -> dict[str, int]:
        """Return this direction's counters under the names of the control protocol."""
        return {
            "packets": self.packets,
            "bytes": self.bytes,
            "dropped_loss": self.netem.dropped,
            "dropped_limit": self.netem.overlimit,
            "queued": len(self.netem) + len(self._departed),
            "tap_drops": self.tap_drops(),
        }
