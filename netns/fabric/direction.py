"""One direction of a relayed link: frames read from one TAP, held by netem's model, written to the other.

A frame's path in Python is one read, one enqueue, one dequeue and one write; nothing else is done for each frame
but counting. What the model decides (loss, limit) it counts itself; what the host does to us is counted apart:
frames that the sink refused, and by how much frames left after their departure.
"""

from __future__ import annotations

import os
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from netns.netem import Netem

if TYPE_CHECKING:
    from netns.fabric.tap import Tap
    from netns.shape import Shape

# A frame of the largest MTU, 65535, its Ethernet header and a VLAN tag: a shorter buffer would cut frames.
FRAME_BYTES: Final = 65535 + 14 + 4

# Frames taken from one TAP before the others have their turn: at 2-4 us each, well under the delays that we model.
BATCH_FRAMES: Final = 32


class Direction:
    """Carries frames from `source` to `sink`; `take` and `send_due` are called by the relay's loop."""

    __slots__ = (
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
        self.packets = 0
        self.bytes = 0
        self.refused = 0
        self.late_ns = 0
        self.late_max_ns = 0
        self.wake_at_ns: int | None = None
        """The one valid time of this direction in the relay's heap; the relay's to keep."""
        self._dropped_unread_before = source.dropped_unread()

    def take(self) -> bool:
        """Move waiting frames into the model, a batch at most; tell whether the source is still there."""
        fd, enqueue = self.source.fd, self.netem.enqueue
        try:
            for _ in range(BATCH_FRAMES):
                frame = os.read(fd, FRAME_BYTES)
                enqueue(monotonic_ns(), packet=frame, length_bytes=len(frame))
        except BlockingIOError:
            return True
        except OSError:  # EBADFD: the device was deleted
            return False
        return True

    def send_due(self, now_ns: int) -> None:
        """Write the frames that are due, a batch at most."""
        fd, dequeue = self.sink.fd, self.netem.dequeue
        for _ in range(BATCH_FRAMES):
            due = dequeue(now_ns)
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
            "queued": len(self.netem),
            "tap_drops": self.tap_drops(),
        }
