"""The kernel's netem: set a shape on an interface, and find out by trying what this kernel does not support.

The kernel draws the random numbers; with a seed (Linux 6.6) they are those of netns/netem/queue.py. The rate is netem's
own, not that of another qdisc above it: only then does the limit cover both the queue and the delay line.
"""

from __future__ import annotations

from typing import Final

from netns.backends.kernel.netem_options import encode, keeps_table, unsupported
from netns.backends.kernel.qdisc import delete_root, replace_root, root_options
from netns.backends.relay.tap import in_nameless_namespace
from netns.errors import BackendError
from netns.netem.shape import Shape

KIND: Final = "netem"


def set_netem(ifname: str, shape: Shape, *, seed: int | None, before: Shape | None = None) -> None:
    """Shape what leaves `ifname`, in the caller's namespace; `before` is its current shape.

    Queued packets keep their departure, unless the kernel can change to `shape` only with a new netem (`keeps_table`).
    Raises BackendError with the kernel's message.
    """
    if before is not None and keeps_table(before, shape):
        delete_root(ifname)
    replace_root(ifname, kind=KIND, options=encode(shape, seed=seed))


def missing_netem() -> str | None:
    """Return why the kernel has no netem; None if it has."""
    return missing(Shape(delay_us=1000))


def accepts_seeds() -> bool:
    """Return whether the kernel's netem supports seeds."""
    return missing(Shape(seed=1)) is None


def missing(shape: Shape) -> str | None:
    """Return why the kernel's netem cannot do `shape`; None if it can. It is tried on `lo` of a nameless namespace."""
    if shape.trace is not None:
        return "its netem has no traces"
    options = encode(shape, seed=None)

    def attempt() -> str | None:
        try:
            replace_root("lo", kind=KIND, options=options)
        except BackendError as error:
            return str(error)
        lacking = unsupported(options, root_options("lo", kind=KIND))
        return f"its netem has no {', '.join(lacking)}" if lacking else None

    return in_nameless_namespace(attempt)
