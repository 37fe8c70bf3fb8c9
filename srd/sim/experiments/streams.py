"""The streams of a scenario (scenario.py has their keys): how they are played, and their figures."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import fmean, median

from netns.base.fairness import jain_index
from netns.topology.model import Topology
from srd.proto.config import ProtocolConfig
from srd.sim.experiments.bulk import BulkFigures, BulkSimulation, streams
from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.fabric import Bounds, packet_bytes, payload_bytes
from srd.sim.simulation import NS_PER_S, Simulation
from srd.sim.stream import MessageStream


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """What is posted, and what is measured of it."""

    ends: tuple[tuple[str, str], ...]
    message_bytes: int
    outstanding: int
    """0: messages are posted `every_s`."""
    every_s: float
    messages: int
    """Of each stream, which are all measured; 0: what lands in `seconds` after the warm-up is."""
    later_s: float
    """When every other stream begins."""
    warm_up_s: float
    seconds: float
    limit_s: float
    capacity_bps: float
    """For packets with their headers; 0: not known."""
    sample_s: float
    sampled: str
    """Pattern of the links that are looked at."""


def play(topology: Topology, plan: StreamPlan, *, config: ProtocolConfig, seed: int) -> dict[str, float]:
    """Return the figures. Raises SimulationError if a request fails, or not all is delivered."""
    simulation = Simulation(topology, config=config, seed=seed)
    started = streams(
        simulation,
        plan.ends,
        message_bytes=plan.message_bytes,
        outstanding=plan.outstanding,
        messages=plan.messages,
    )
    until_ns = simulation.now_ns + round((plan.warm_up_s + plan.seconds) * NS_PER_S)
    groups = [started[::2], started[1::2]] if plan.later_s else [started]
    for index, group in enumerate(groups):
        simulation.run(seconds=index * plan.later_s)
        for stream in group:
            if plan.outstanding:
                stream.start()
            else:
                stream.offer(every_ns=round(plan.every_s * NS_PER_S), until_ns=until_ns)
    if plan.messages:
        return _completions(simulation, started, plan)
    return _spans(BulkSimulation(simulation, started), started, plan)


def _completions(simulation: Simulation, started: list[MessageStream], plan: StreamPlan) -> dict[str, float]:
    """Return how long messages took, over what they take at least."""
    _deliver_all(simulation, started, plan)
    bounds = Bounds(simulation.fabric.topology)
    ideal_us = [bounds.message_us(*ends, size_bytes=plan.message_bytes) for ends in plan.ends]
    ratios = [
        (delivery.at_ns - stream.posted_at_ns[delivery.immediate]) / 1000 / least_us
        for stream, least_us in zip(started, ideal_us, strict=True)
        for delivery in stream.delivered()
    ]
    return {
        "median_over_ideal_ratio": median(ratios),
        "max_over_ideal_ratio": max(ratios),
        "ideal_us": ideal_us[0],
    }


def _deliver_all(simulation: Simulation, started: list[MessageStream], plan: StreamPlan) -> None:
    """Run until all of `messages` are delivered; without, for all of the limit, in which duplicates arrive, too."""
    sinks = {stream.connection.destination.host: stream.connection.destination for stream in started}.values()

    def left() -> int:
        posted = sum(plan.messages or len(stream.posted_at_ns) for stream in started)
        return posted - sum(len(sink.deliveries) for sink in sinks)

    simulation.run(seconds=plan.limit_s, done=(lambda: not left()) if plan.messages else None)
    if missing := left():
        raise ExperimentError(f"{missing} messages were not delivered within {plan.limit_s:g} s")
    simulation.require_no_failures()


def _spans(running: BulkSimulation, started: list[MessageStream], plan: StreamPlan) -> dict[str, float]:
    """Return what came of all streams in the measured time."""
    simulation, steps, links = running.simulation, 1, []
    if plan.sample_s:
        steps = max(round(plan.seconds / plan.sample_s), 1)
        links = [link for link in simulation.fabric.links.values() if fnmatchcase(link.name, plan.sampled)]
    span = running.span(plan.seconds, warm_up_s=plan.warm_up_s - plan.later_s, steps=steps, links=links)
    if plan.every_s:
        _deliver_all(simulation, started, plan)
    return {
        **_capacity(span, plan, topology=simulation.fabric.topology),
        "goodput_mbps": span.goodput_bps / 1e6,
        "retransmitted_fraction": running.resent_fraction,
        "spurious_fraction": running.spurious_fraction,
        "lost_fraction": span.lost_fraction,
        "marked_packets": sum(path.counters.ecn_ce for each in running.connections for path in each.sender.paths),
        **({"jain_index": jain_index(span.landed_bytes)} if len(started) > 1 else {}),
        **_queues(span, plan, topology=simulation.fabric.topology),
    }


def _capacity(span: BulkFigures, plan: StreamPlan, *, topology: Topology) -> dict[str, float]:
    if not plan.capacity_bps:
        return {}
    payload_bps = plan.capacity_bps * (payload_bytes(topology) / packet_bytes(topology))
    return {"capacity_fraction": span.goodput_bps / payload_bps, "capacity_mbps": payload_bps / 1e6}


def _queues(span: BulkFigures, plan: StreamPlan, *, topology: Topology) -> dict[str, float]:
    if not span.waits_ns:
        return {}
    bounds, (source, destination) = Bounds(topology), plan.ends[0]
    rtt_us = bounds.delay_us(source, destination) + bounds.delay_us(destination, source)
    return {
        "mean_queue_ms": fmean(span.waits_ns) / 1e6,
        **({"median_queue_bdp": median(span.waits_ns) / 1e3 / rtt_us} if rtt_us else {}),
    }
