"""Estimate the arrival times of frames that were read together, because a TAP does not report them.

Theory of operation. The kernel does not timestamp frames on their way into a TAP. The relay knows two times only:
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


def arrival_times(count: int, *, since_ns: int, now_ns: int) -> tuple[int, int]:
    """Return the estimated arrival in ns of the first of `count` frames, and the time from each to the next.

    All are within since_ns..now_ns.
    """
    step_ns = (now_ns - since_ns) // count
    return since_ns + step_ns // 2, step_ns
