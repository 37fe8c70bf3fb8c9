"""The scenarios. Each returns its figures for one contender and seed; times are completion times, in us."""

from __future__ import annotations

import math
from random import Random
from statistics import median
from typing import Final

from netns.backends.virtual.lossless.wait_graph import deadlock
from netns.base.percentile import percentile
from netns.topology.model import Topology
from srd.sim.flows import Flow
from srd.sim.flows import all_reduce as all_reduce_flows
from srd.sim.roce.fabrics import LINK_BPS, hosts_of, ring, tree, with_loss, with_slow_host
from srd.sim.roce.play import Contender, Played, play, prepare

Figures = dict[str, float]


MEGABYTE: Final = 1_000_000
SPINE_BPS: Final = 4 * LINK_BPS
"""Between leaves and spines where collisions must not count: four flows of a host fit."""
LIMIT_S: Final = 2.0
VICTIM_BYTES: Final = 10 * MEGABYTE
SLOW_BPS: Final = 5_000_000_000
DEAD_AT_NS: Final = 100_000
DEAD_NS: Final = 50_000_000
"""What a fast routing protocol with BFD (RFC 5880) takes at least to send around a link."""


LOOPS_NS: Final = 1_000_000


def _play(
    contender: Contender, topology: Topology, flows: list[Flow], *, seed: int, buffers: dict[str, int] | None = None
) -> Played:
    return play(prepare(contender, topology, flows, seed=seed, buffers=buffers), limit_s=LIMIT_S)


def ideal_us(size_bytes: int) -> float:
    """Return what so many bytes take at the rate of a host's link."""
    return size_bytes * 8e6 / LINK_BPS


def incast(contender: Contender, *, senders: int, size_bytes: int, seed: int) -> Figures:
    """Many hosts send to one at the same time; sixteen a leaf, as many spines, so that only its port is overloaded."""
    played = _incast(contender, senders=senders, size_bytes=size_bytes, seed=seed)
    times = played.times_us
    return {
        "p50_us": median(times),
        "p99_us": percentile(times, 99),
        "max_us": max(times),
        "spread_ratio": max(times) / min(times),
        "max_over_ideal_ratio": max(times) / ideal_us(senders * size_bytes),
        "pauses": played.pauses,
        "dropped": played.dropped,
        "most_buffered_mb": max(switch.most_bytes for switch in played.simulation.fabric.switches.values()) / 1e6,
        "unfinished": played.unfinished,
    }


def incast_times(contender: Contender, *, senders: int, size_bytes: int, seed: int) -> list[float]:
    """Return the completion times of that."""
    return _incast(contender, senders=senders, size_bytes=size_bytes, seed=seed).times_us


def _incast(contender: Contender, *, senders: int, size_bytes: int, seed: int) -> Played:
    topology = tree(leaves=senders // 16 + 1, hosts_per_leaf=16, spines=16, seed=seed)
    sink = topology.hosts[-1]
    flows = [Flow(source, sink, size_bytes) for source in topology.hosts[:senders]]
    return _play(contender, topology, flows, seed=seed)


def victim_parts(*, seed: int, senders: int = 16) -> tuple[Topology, list[Flow], dict[str, Flow]]:
    """Return fabric, incast and victims.

    h1 to h16 on two leaves send to h25 on the fourth. The victim `far` goes from the first leaf to the third: no link
    of its way is ever asked for more than it has. The victim `near` goes from the third leaf to another host of the
    incast's: it shares the links down to that leaf.
    """
    topology = tree(leaves=4, hosts_per_leaf=senders // 2 + 1, spines=4, spine_bps=SPINE_BPS, seed=seed)
    first, second, third, fourth = (hosts_of(topology, leaf) for leaf in topology.leaves)
    sources = [*first[: senders // 2], *second[: senders // 2]]
    flows = [Flow(source, fourth[0], 4 * MEGABYTE) for source in sources]
    victims = {"far": Flow(first[-1], third[0], VICTIM_BYTES), "near": Flow(third[-1], fourth[-1], VICTIM_BYTES)}
    return topology, flows, victims


def victim(contender: Contender, *, seed: int) -> Figures:
    """Flows that do not use the port of an incast: how much longer they take beside it than alone."""
    topology, flows, victims = victim_parts(seed=seed)
    wanted = list(victims.values())
    alone = _play(contender, topology, wanted, seed=seed).times_us
    played = _play(contender, topology, [*wanted, *flows], seed=seed)
    figures = {
        f"{name}_slowdown": beside / by_itself
        for name, beside, by_itself in zip(victims, played.times_us, alone, strict=False)
    }
    return figures | {"incast_us": max(played.times_us[len(wanted) :]), "pauses": played.pauses}


def slow_receiver_parts(*, seed: int) -> tuple[Topology, list[Flow], list[Flow], str]:
    """Return fabric, the flow to a host that takes in 5 Gbit/s, the flows of others, and the name of its card."""
    topology = tree(leaves=4, hosts_per_leaf=4, spines=2, spine_bps=SPINE_BPS, seed=seed)
    slow = hosts_of(topology, "leaf4")[0]
    topology, card = with_slow_host(topology, slow, rate_bps=SLOW_BPS)
    rows = [hosts_of(topology, leaf) for leaf in ("leaf1", "leaf2", "leaf3")]
    to_slow = [Flow(row[0], slow, 8 * MEGABYTE) for row in rows]
    others = [
        Flow(host, rows[(at + 1) % len(rows)][place + 1], 2 * MEGABYTE, 500e-6)
        for at, row in enumerate(rows)
        for place, host in enumerate(row[1:])
    ]
    return topology, to_slow, others, card


def slow_receiver(contender: Contender, *, seed: int) -> Figures:
    """Three hosts send to a slow one; nine others send to each other, from half a millisecond on."""
    topology, to_slow, others, card = slow_receiver_parts(seed=seed)
    buffers = {card: 2 * MEGABYTE}
    alone = _play(contender, topology, others, seed=seed, buffers=buffers).times_us
    played = _play(contender, topology, [*others, *to_slow], seed=seed, buffers=buffers)
    slowdowns = [beside / by_itself for beside, by_itself in zip(played.times_us, alone, strict=False)]
    return {
        "others_median_slowdown": median(slowdowns),
        "others_max_slowdown": max(slowdowns),
        "to_slow_us": max(played.times_us[len(others) :]),
        "pauses": played.pauses,
        "ports_paused": sum(port.pauses > 0 for port in played.ports),
    }


def ring_parts(*, seed: int) -> tuple[Topology, list[Flow]]:
    """Return five switches in a ring, and flows from host i to host i + 2: two of them want each link of the ring."""
    topology = ring(seed=seed)
    hosts = topology.hosts
    return topology, [Flow(host, hosts[(at + 2) % len(hosts)], 20 * MEGABYTE) for at, host in enumerate(hosts)]


def ring_deadlock(contender: Contender, *, seed: int) -> Figures:
    """Play the ring."""
    topology, flows = ring_parts(seed=seed)
    return _locked(_play(contender, topology, flows, seed=seed))


def tree_deadlock(contender: Contender, *, seed: int) -> Figures:
    """A leaf-spine fabric loses one link for 1 ms; the spine that had it sends what comes to any other leaf instead.

    These do not know, so that packets go in loops. Then the link is back, and later flows start to other leaves.
    """
    topology = tree(leaves=4, hosts_per_leaf=4, spines=2, seed=seed)
    rows = [hosts_of(topology, leaf) for leaf in topology.leaves]
    lost = [Flow(host, rows[0][place], 4 * MEGABYTE, 10e-6) for row in rows[1:] for place, host in enumerate(row)]
    later = [
        Flow(host, rows[at % 3 + 1][place], MEGABYTE, 2000e-6)
        for at, row in enumerate(rows[1:], start=1)
        for place, host in enumerate(row)
    ]
    stage = prepare(contender, topology, [*lost, *later], seed=seed)
    fabric = stage.simulation.fabric
    fabric.bounce()
    fabric.fail("leaf1-spine1", at_ns=fabric.now_ns, for_ns=LOOPS_NS, carrier=True)
    played = play(stage, limit_s=LIMIT_S)
    return _locked(played) | {"later_unfinished": sum(time == math.inf for time in played.times_us[len(lost) :])}


def _locked(played: Played) -> Figures:
    simulation = played.simulation
    watchdog = simulation.fabric.watchdog
    return {
        "deadlock": int(bool(deadlock(played.ports, now_ns=simulation.now_ns))),
        "unfinished": played.unfinished,
        "max_us": max(played.times_us),
        "discarded": played.discarded,
        "storms": 0 if watchdog is None else watchdog.storms,
    }


def permutation(contender: Contender, *, hosts: int, size_bytes: int, seed: int) -> Figures:
    """Each host sends to one on another leaf; there is as much capacity as is asked for, if it is used evenly."""
    times = permutation_times(contender, hosts=hosts, size_bytes=size_bytes, seed=seed)
    ideal = ideal_us(size_bytes)
    return {"median_over_ideal": median(times) / ideal, "max_over_ideal": max(times) / ideal}


def permutation_times(contender: Contender, *, hosts: int, size_bytes: int, seed: int) -> list[float]:
    """Return the completion times of that."""
    per_leaf = 16
    topology = tree(leaves=hosts // per_leaf, hosts_per_leaf=per_leaf, spines=per_leaf, seed=seed)
    draw = Random(f"{seed}/permutation")  # noqa: S311 - reproducible
    leaves = [hosts_of(topology, leaf) for leaf in topology.leaves]
    flows = []
    for at, row in enumerate(leaves):
        others = leaves[(at + 1) % len(leaves)][:]
        draw.shuffle(others)
        flows += [Flow(source, other, size_bytes) for source, other in zip(row, others, strict=True)]
    return _play(contender, topology, flows, seed=seed).times_us


def all_reduce(contender: Contender, *, seed: int, size_bytes: int = 16 * MEGABYTE) -> Figures:
    """A ring all-reduce of 16 hosts, whose next one is on another leaf; a link between switches loses all for DEAD_NS.

    It is the link up from the first leaf that has carried most. `over_alive_ratio`: what it takes over what it takes
    without that.
    """
    alive = _all_reduce_us(contender, seed=seed, size_bytes=size_bytes, dies=False)
    dead = _all_reduce_us(contender, seed=seed, size_bytes=size_bytes, dies=True)
    return {"alive_us": alive, "dead_link_us": dead, "over_alive_ratio": dead / alive}


def _all_reduce_us(contender: Contender, *, seed: int, size_bytes: int, dies: bool) -> float:
    topology = tree(leaves=4, hosts_per_leaf=4, spines=4, seed=seed)
    rows = [hosts_of(topology, leaf) for leaf in topology.leaves]
    members = [row[place] for place in range(4) for row in rows]
    stage = prepare(contender, topology, all_reduce_flows(members, size_bytes=size_bytes), seed=seed)
    fabric = stage.simulation.fabric

    def die(now_ns: int) -> None:
        spine = max(topology.spines, key=lambda each: fabric.links["leaf1", each].bytes)
        fabric.fail(f"leaf1-{spine}", at_ns=now_ns, for_ns=DEAD_NS)

    if dies:
        fabric.at(fabric.now_ns + DEAD_AT_NS, die)
    began_ns = fabric.now_ns
    played = play(stage, limit_s=LIMIT_S)
    return math.inf if played.unfinished else (fabric.now_ns - began_ns) / 1000


def noisy_tenant(contender: Contender, *, seed: int) -> Figures:
    """A tenant's flows between eight pairs of hosts, beside the incasts of another tenant on the same leaves."""
    topology = tree(leaves=4, hosts_per_leaf=12, spines=4, spine_bps=SPINE_BPS, seed=seed)
    rows = [hosts_of(topology, leaf) for leaf in topology.leaves]
    quiet = [
        Flow(rows[at][place], rows[(at + 1) % 4][place], 100_000, (100 * turn + 7 * place) / 1e6)
        for turn in range(10)
        for at in range(4)
        for place in range(2)
    ]
    noise = [Flow(host, rows[3][11], MEGABYTE) for row in rows[:3] for host in row[2:12]]
    alone = _play(contender, topology, quiet, seed=seed).times_us
    beside = _play(contender, topology, [*quiet, *noise], seed=seed).times_us[: len(quiet)]
    return {
        "p50_us": median(beside),
        "p99_us": percentile(beside, 99),
        "p99_slowdown": percentile(beside, 99) / percentile(alone, 99),
    }


def loss(contender: Contender, *, percent: float, seed: int, size_bytes: int = 20 * MEGABYTE) -> Figures:
    """One flow over a link that loses packets: goodput over the line rate, from the first byte to the last."""
    topology = with_loss(tree(leaves=2, hosts_per_leaf=1, spines=1, seed=seed), "leaf1-spine1", percent=percent)
    (time,) = _play(contender, topology, [Flow("h1", "h2", size_bytes)], seed=seed).times_us
    return {"goodput": ideal_us(size_bytes) / time, "time_us": time}


def idle(contender: Contender, *, size_bytes: int, seed: int) -> Figures:
    """One flow on an idle fabric."""
    topology = tree(leaves=2, hosts_per_leaf=1, spines=1, seed=seed)
    (time,) = _play(contender, topology, [Flow("h1", "h2", size_bytes)], seed=seed).times_us
    return {"time_us": time}
