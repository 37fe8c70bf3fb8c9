"""Encode a shape as the options of the kernel's netem, and decode them: TCA_OPTIONS of an rtnetlink message.

Source: Linux include/uapi/linux/pkt_sched.h (struct tc_netem_*, TCA_NETEM_*); net/sched/sch_netem.c, netem_change() and
netem_dump(). Neither tc nor pyroute2 is sufficient: tc 6.1 has no seed, pyroute2 0.9 neither loss models nor tables.

Every attribute is always sent, whatever its value, because netem keeps what a change does not mention: a rate is
removed only by a rate of 0. Two values cannot be encoded: "no delay table" and "no slot table"; see `keeps_table`.

The kernel ignores attributes that are newer than itself. So its options are read back and compared (`unsupported`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from netns.errors import BackendError
from netns.netem.distributions import table
from netns.netem.loss_models import threshold
from netns.netem.params import FourStates, GilbertElliott
from netns.netem.prandom import U32_MAX
from netns.netem.shape import Shape

TICK_NS: Final = 64  # PSCHED_SHIFT 6: the unit of times in struct tc_netem_qopt

# pkt_sched.h
CORR, DELAY_DIST, REORDER, CORRUPT, LOSS, RATE, ECN, RATE64 = range(1, 9)
LATENCY64, JITTER64, SLOT, SLOT_DIST, PRNG_SEED = range(10, 15)
LOSS_GI, LOSS_GE = 1, 2
NLA_F_NESTED: Final = 0x8000
NLA_TYPE_MASK: Final = 0x3FFF

_QOPT: Final = struct.Struct("=6I")  # latency, limit, loss, gap, duplicate, jitter
_CORR: Final = struct.Struct("=3I")  # delay, loss, duplicate
_PAIR: Final = struct.Struct("=2I")  # probability, correlation
_RATE: Final = struct.Struct("=IiIi")  # rate, packet overhead, cell size, cell overhead
_SLOT: Final = struct.Struct("=2q2i2q")  # least and most delay, packets, bytes, delay and jitter of the distribution
_GI: Final = struct.Struct("=5I")  # p13, p31, p32, p14, p23
_GE: Final = struct.Struct("=4I")  # p, r, h, 1-k
_HEADER: Final = struct.Struct("=HH")


def encode(shape: Shape, *, seed: int | None) -> bytes:
    """Return the content of TCA_OPTIONS. A seed of the shape overrides `seed`; None lets the kernel choose."""
    seed = seed if shape.seed is None else shape.seed
    seeded = {} if seed is None else {PRNG_SEED: struct.pack("=Q", seed)}
    attributes = _numbers(shape) | _tables(shape) | seeded
    qopt = _QOPT.pack(
        min(_ns(shape.delay_us) // TICK_NS, U32_MAX),
        shape.limit_packets,
        threshold(shape.loss_percent),
        shape.reorder_gap,
        threshold(shape.duplicate_percent),
        min(_ns(shape.jitter_us) // TICK_NS, U32_MAX),
    )
    return qopt + b"".join(attribute(kind, content) for kind, content in attributes.items())


def unsupported(wanted: bytes, taken: bytes) -> list[str]:
    """Return the names of the options in `wanted` that the kernel's own options, `taken`, do not have."""
    expected, got = options_untrusted(wanted), options_untrusted(taken)
    missing = []
    for kind, name in _READ_BACK.items():
        content = expected.get(kind)
        if content is not None and any(content) and got.get(kind, b"")[: len(content)] != content:
            missing.append(name)
    return missing


def keeps_table(before: Shape, after: Shape) -> bool:
    """Return whether netem would keep a table that `after` does not have: then a new netem is needed."""
    slots = [shape.slot and shape.slot.distribution for shape in (before, after)]
    return (before.distribution != "uniform" and after.distribution == "uniform") or bool(slots[0] and not slots[1])


def attribute(kind: int, content: bytes) -> bytes:
    """Encode one netlink attribute: length, type, content, and zeros up to a multiple of 4 bytes."""
    return _HEADER.pack(_HEADER.size + len(content), kind) + content + bytes(-len(content) % 4)


def attributes_untrusted(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (type, content) of the attributes in `content`; BackendError if it is truncated."""
    at = 0
    while at + _HEADER.size <= len(content):
        length, kind = _HEADER.unpack_from(content, at)
        if length < _HEADER.size or at + length > len(content):
            raise BackendError(f"the kernel's answer ends inside an attribute ({length} bytes at {at})")
        yield kind & NLA_TYPE_MASK, content[at + _HEADER.size : at + length]
        at += length + -length % 4


def options_untrusted(content: bytes) -> dict[int, bytes]:
    """Return type -> content of netem's attributes, struct tc_netem_qopt as type 0; BackendError if it is too short."""
    if len(content) < _QOPT.size:
        raise BackendError(
            f"the kernel's answer has {len(content)} bytes of options; netem's are at least {_QOPT.size}"
        )
    return {0: content[: _QOPT.size]} | dict(attributes_untrusted(content[_QOPT.size :]))


def _numbers(shape: Shape) -> dict[int, bytes]:
    bytes_per_s = shape.rate_bps // 8
    slot = shape.slot
    return {
        LATENCY64: struct.pack("=q", _ns(shape.delay_us)),
        JITTER64: struct.pack("=q", _ns(shape.jitter_us)),
        CORR: _CORR.pack(
            threshold(shape.delay_correlation_percent),
            threshold(shape.loss_correlation_percent),
            threshold(shape.duplicate_correlation_percent),
        ),
        REORDER: _pair(shape.reorder_chance_percent, shape.reorder_correlation_percent),
        CORRUPT: _pair(shape.corrupt_percent, shape.corrupt_correlation_percent),
        RATE: _RATE.pack(
            min(bytes_per_s, U32_MAX), shape.rate_overhead_bytes, shape.cell_bytes, shape.cell_overhead_bytes
        ),
        **({RATE64: struct.pack("=Q", bytes_per_s)} if bytes_per_s > U32_MAX else {}),
        ECN: struct.pack("=I", shape.ecn),
        SLOT: bytes(_SLOT.size)
        if slot is None
        else _SLOT.pack(
            _ns(slot.min_us), _ns(slot.max_us), slot.packets, slot.bytes, _ns(slot.delay_us), _ns(slot.jitter_us)
        ),
    }


def _tables(shape: Shape) -> dict[int, bytes]:
    """Return the tables and the loss model, each only if there is one."""
    found = {}
    if (delays := table(shape.distribution)) is not None:
        found[DELAY_DIST] = struct.pack(f"={len(delays)}h", *delays)
    if shape.slot is not None and shape.slot.distribution is not None:
        slots = table(shape.slot.distribution)
        if slots is not None:
            found[SLOT_DIST] = struct.pack(f"={len(slots)}h", *slots)
    if (model := _loss_model(shape)) is not None:
        found[LOSS | NLA_F_NESTED] = model
    return found


def _loss_model(shape: Shape) -> bytes | None:
    match shape.loss_model:
        case GilbertElliott() as model:
            kept = U32_MAX - threshold(model.bad_loss_percent)  # the kernel expects h
            percents = (model.p_percent, model.r_percent)
            return attribute(LOSS_GE, _GE.pack(*map(threshold, percents), kept, threshold(model.good_loss_percent)))
        case FourStates() as model:
            percents_5 = (
                model.p13_percent, model.p31_percent, model.p32_percent, model.p14_percent, model.p23_percent,
            )  # fmt: skip
            return attribute(LOSS_GI, _GI.pack(*map(threshold, percents_5)))
    return None


def _pair(percent: float, correlation_percent: float) -> bytes:
    return _PAIR.pack(threshold(percent), threshold(correlation_percent))


def _ns(us: float) -> int:
    return round(us * 1000)


# The attributes that netem_dump() returns as they were sent, with the user's names for them.
_READ_BACK: Final = {
    LATENCY64: "delay",
    JITTER64: "jitter",
    CORR: "correlations",
    REORDER: "reorder",
    CORRUPT: "corrupt",
    RATE: "rate",
    RATE64: "rates over 34 Gbit/s",
    LOSS: "models of loss",
    ECN: "ecn",
    SLOT: "slot",
    PRNG_SEED: "seed (Linux 6.6 has it)",
}
