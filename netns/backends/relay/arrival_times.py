"""When frames that were read together arrived: an estimate, because a TAP does not tell.

Theory of operation. The kernel stamps no frame on its way into a TAP. The relay knows two times only: `since_ns`,
when nothing unread had come yet, and `now_ns`, when it reads. To stamp all that it finds with `now_ns` would turn
each late wake-up into a burst that nobody sent, and a burst overflows a short queue that a steady stream does not.
So `n` frames are spread evenly: each gets the middle of its `n`th of the interval. That has no bias, and:

    A stream of one frame every `g` ns is stamped at most g/2 away from the truth, however late it is read.

Proof: the first frame came within `g` after `since_ns`, the last within `g` before `now_ns`, so that the interval is
between (n-1)g and (n+1)g long; the error is linear in the frame's number, and at most g/2 at both ends. Through
netem's model, whose link needs no more than `g` for a frame, such a stream therefore finds at most one frame more in
the queue than the truth would have: with room for that one, a link drops nothing for the relay's lateness.

The price is that a real burst is taken for a stream as long as the interval. The interval is the relay's rest, which
is never longer than the shortest delay that it emulates, unless the host withheld the CPU from it (relay.py).
"""

from __future__ import annotations


def arrival_times(count: int, *, since_ns: int, now_ns: int) -> tuple[int, int]:
    """Return the estimated arrival in ns of the first of `count` frames, and the distance from each to the next.

    All lie in since_ns..now_ns.
    """
    step_ns = (now_ns - since_ns) // count
    return since_ns + step_ns // 2, step_ns
