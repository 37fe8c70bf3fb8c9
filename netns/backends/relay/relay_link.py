"""One direction of a relayed link: frames are read from one TAP, held by netem's model, and written to the other.

A frame costs one read, one enqueue, one dequeue and one write in Python; apart from that, frames are only counted. The
model counts its own decisions (loss, limit). Effects of the host are counted separately: frames that the sink refused,
and how late frames left.

The model runs on the times at which frames arrived (`arrival_times`), not on those at which the relay read them.
Before a frame enters the model, whatever was due by its arrival has left the model, though it may not be written yet:
it is in `_departed`, where it does not count against the shape's limit. In the kernel it would already have left.

The kernel does not timestamp frames on their way into a TAP. The relay knows two times only:
`since_ns`, when no unread frame had arrived yet, and `now_ns`, when it reads. If all frames were stamped with `now_ns`,
each late wake-up would turn a steady stream into a burst, and a burst overflows a short queue that a steady stream does
not. So the `n` frames are spread evenly: each is stamped with the middle of its `n`th of the interval. The estimate has
no bias, and:

    A stream of one frame every `g` ns is stamped at most g/2 away from the truth, however late it is read.

Proof: the first frame came within `g` after `since_ns`, the last within `g` before `now_ns`, so that the interval is
between (n-1)g and (n+1)g long; the error is linear in the frame's number, and at most g/2 at both ends. In netem's
model, if the link needs no more than `g` for a frame, such a stream therefore finds at most one frame more in the
queue than with true times. With room for that one, a link drops nothing because of the relay's lateness.

The price: a real burst is taken for a stream over the whole interval. The interval is the relay's coalescing time,
which never exceeds the shortest delay that it emulates, unless the host withheld the CPU from it (relay.py).
"""

from __future__ import annotations

import os
from collections import deque
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from netns.netem.packet_ops import Frames
from netns.netem.queue import Netem

if TYPE_CHECKING:
    from netns.backends.relay.tap import Tap
    from netns.netem.shape import Shape

NEVER_NS: Final = 2**63

# Frames read from one TAP, or written to one, before the others are served: more than the relay can carry in one
# coalescing time. The frames that a full batch leaves unread are stamped later than they arrived.
BATCH_FRAMES: Final = 128


class RelayLinkDirection:
    """Carry frames from `source` to `sink`; the relay's loop calls `read`, `admit` and `send_due`."""

    def __init__(self, *, source: Tap, sink: Tap, shape: Shape, seed: int) -> None:
        self.source = source
        self.sink = sink
        self.netem: Netem[bytes] = Netem(shape, seed=seed, ops=Frames())
        self.unstamped: list[bytes] = []
        """Frames that are read, but not yet admitted to the model."""
        self._departed: deque[tuple[int, bytes]] = deque()
        self._arrived_by_ns = 0
        self.packets = 0
        self.bytes = 0
        self.refused = 0
        self.late_ns = 0
        self.late_max_ns = 0
        self.due_at_ns = NEVER_NS
        """When the next frame is due, possibly in the past; NEVER_NS if there is none."""
        self._dropped_unread_before = source.dropped_unread()

    def read(self, *, limit_frames: int) -> bool:
        """Read waiting frames, `limit_frames` at most; return whether the source still exists.

        A read that finds nothing costs as much as a frame, so the limit is 1 where one frame is expected.
        """
        fd, size, keep = self.source.fd, self.source.frame_bytes, self.unstamped.append
        try:
            for _ in range(limit_frames):
                keep(os.read(fd, size))
        except BlockingIOError:
            return True
        except OSError:  # EBADFD: the device was deleted
            return False
        return True

    def admit(self, *, since_ns: int, now_ns: int) -> None:
        """Pass the frames that were read to the model, with estimated arrival times between `since_ns` and `now_ns`."""
        frames, departed, netem = self.unstamped, self._departed, self.netem
        if not frames:
            return
        enqueue, dequeue = netem.enqueue, netem.dequeue
        at_ns, step_ns = arrival_times(len(frames), since_ns=max(since_ns, self._arrived_by_ns), now_ns=now_ns)
        for frame in frames:
            while (due := dequeue(at_ns)) is not None:
                departed.append(due)
            enqueue(at_ns, packet=frame, length_bytes=len(frame))
            at_ns += step_ns
        frames.clear()
        self._arrived_by_ns = now_ns
        self._update_due()

    def send_due(self, now_ns: int) -> None:
        """Write the frames that are due, one batch at most."""
        fd, dequeue, departed = self.sink.fd, self.netem.dequeue, self._departed
        for _ in range(BATCH_FRAMES):
            due = departed.popleft() if departed else dequeue(now_ns)
            if due is None:
                break
            at_ns, frame = due
            try:
                self.bytes += os.write(fd, frame)
                self.packets += 1
            except OSError:  # EAGAIN, ENOBUFS, ENOMEM; EIO while the device is down; EBADFD once it is deleted
                self.refused += 1
            late_ns = now_ns - at_ns
            self.late_ns += late_ns
            if late_ns > self.late_max_ns:  # noqa: PLR1730 - max() costs more than the whole comparison, per frame
                self.late_max_ns = late_ns
            now_ns = monotonic_ns()
        self._update_due()

    def _update_due(self) -> None:
        next_at_ns = self._departed[0][0] if self._departed else self.netem.next_at_ns
        self.due_at_ns = NEVER_NS if next_at_ns is None else next_at_ns

    def tap_drops(self) -> int:
        """Count the frames lost outside the model since the start: not read in time, or refused by the sink."""
        return self.refused + self.source.dropped_unread() - self._dropped_unread_before

    def counters(self) -> dict[str, int]:
        """Return this direction's counters under the names of the control protocol."""
        return {
            "packets": self.packets,
            "bytes": self.bytes,
            **self.netem.counters(),
            "queued": len(self.netem) + len(self._departed),
            "tap_drops": self.tap_drops(),
        }


def arrival_times(count: int, *, since_ns: int, now_ns: int) -> tuple[int, int]:
    """Return the estimated arrival in ns of the first of `count` frames, and the time from each to the next.

    All are within since_ns..now_ns.
    """
    step_ns = (now_ns - since_ns) // count
    return since_ns + step_ns // 2, step_ns
