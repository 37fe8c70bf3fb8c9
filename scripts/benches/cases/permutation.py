"""Permutation: 8 hosts on one leaf each send messages of 1 MB, one after the other, to a host of their own on another.

8 spines; hosts' links 100 Gbit/s, leaf-spine links 200 Gbit/s: twice the required capacity, so that only collisions of
flows on a link can delay a message. Every link has 5 us; ports buffer one bandwidth-delay product (500 kB). A host
posts its next message when the previous one is acknowledged; 20 messages each.

Completion time: from posting to delivery. Ideal: the message with all its headers at the rate of the host's link, plus
the time of its last packet across the empty fabric; no transport delivers earlier. `alone_*`: a single pair on an empty
fabric. The baseline `one_path` is the same core with a single source port: the result of ECMP without spraying.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Final

from netns.topology.model import Topology
from scripts.benches.fabrics import PACKET_BYTES, buffered, clos, wire_bytes
from scripts.benches.outcome import Round
from scripts.harness.errors import BenchError
from srd.proto.config import ProtocolConfig
from srd.proto.wire.data import HEADER_BYTES
from srd.sim.experiments.bulk import streams
from srd.sim.host import WIRE_OVERHEAD_BYTES
from srd.sim.presets import MICROSECOND_FABRIC
from srd.sim.simulation import Simulation

PAIRS: Final = 8
SPINES: Final = 8
HOST_BPS: Final = 100_000_000_000
SPINE_BPS: Final = 200_000_000_000
LINK_US: Final = 5.0
HOPS: Final = 4
BDP_BYTES: Final = HOST_BPS * 2 * HOPS * LINK_US / 8e6
MESSAGE_BYTES: Final = 1_000_000
MESSAGES: Final = 20
TIMEOUT_S: Final = 1.0


def measure(seed: int, _seconds: float) -> Round:
    """One round: all pairs, one pair alone, all pairs with one path."""
    ideal_us = _ideal_us()
    ours = _times_us(seed=seed, pairs=PAIRS, config=MICROSECOND_FABRIC)
    alone = _times_us(seed=seed, pairs=1, config=MICROSECOND_FABRIC)
    one_path = _times_us(seed=seed, pairs=PAIRS, config=replace(MICROSECOND_FABRIC, paths=1))
    beside = {"ideal_us": ideal_us, "alone_median_over_ideal_ratio": median(alone) / ideal_us}
    return Round(seed, _figures(ours, ideal_us) | beside, {"one_path": _figures(one_path, ideal_us)})


def _figures(times_us: list[float], ideal_us: float) -> dict[str, float]:
    return {
        "median_over_ideal_ratio": median(times_us) / ideal_us,
        "max_over_ideal_ratio": max(times_us) / ideal_us,
    }


def fabric(*, seed: int) -> Topology:
    """Senders h1 to h8 on leaf1, receivers h9 to h16 on leaf2."""
    host = buffered(rate_bps=HOST_BPS, delay_us=LINK_US, buffer_bytes=BDP_BYTES)
    spine = buffered(rate_bps=SPINE_BPS, delay_us=LINK_US, buffer_bytes=BDP_BYTES)
    return clos((PAIRS, PAIRS), spines=SPINES, host_port=host, spine_link=spine, name="permutation", seed=seed)


def _times_us(*, seed: int, pairs: int, config: ProtocolConfig) -> list[float]:
    """Completion times of all messages."""
    topology = fabric(seed=seed)
    simulation = Simulation(topology, config=config, seed=seed)
    ends = [(topology.hosts[n], topology.hosts[PAIRS + n]) for n in range(pairs)]
    started = streams(simulation, ends, message_bytes=MESSAGE_BYTES, outstanding=1, messages=MESSAGES)
    for stream in started:
        stream.start()

    def delivered() -> bool:
        return all(len(stream.connection.destination.deliveries) == MESSAGES for stream in started)

    if not simulation.run(seconds=TIMEOUT_S, done=delivered):
        raise BenchError(f"not every message was delivered in {TIMEOUT_S:g} s of virtual time")
    simulation.require_no_failures()
    return [
        (delivery.at_ns - stream.posted_at_ns[delivery.immediate]) / 1000
        for stream in started
        for delivery in stream.connection.destination.deliveries
    ]


def _ideal_us() -> float:
    payload_bytes = PACKET_BYTES - WIRE_OVERHEAD_BYTES - HEADER_BYTES
    overhead_bytes = HEADER_BYTES + WIRE_OVERHEAD_BYTES
    size_bytes = wire_bytes(MESSAGE_BYTES, packet_payload_bytes=payload_bytes, overhead_bytes=overhead_bytes)
    # Each switch takes a packet in whole before it sends it on, so the last packet is on three more links by itself.
    last_bytes = overhead_bytes + (MESSAGE_BYTES % payload_bytes or payload_bytes)
    return HOPS * LINK_US + size_bytes * 8e6 / HOST_BPS + last_bytes * 8e6 * (2 / SPINE_BPS + 1 / HOST_BPS)
