"""The streams of a scenario (scenario.py has their keys): how they are played, and their figures."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial
from statistics import fmean, median

from netns.base.fairness import jain_index
from netns.faults.schedule import ScheduledEvent
from netns.topology.model import Topology
from srd.proto.config import ProtocolConfig
from srd.sim.experiments.bulk import BulkFigures, BulkSimulation, streams
from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.fabric import Bounds, packet_bytes, payload_bytes
from srd.sim.experiments.failures import Failures
from srd.sim.experiments.scenario_file import BesideKeys, RunKeys, StreamKeys
from srd.sim.host import HostClock
from srd.sim.models.controllers import CONTROLLERS
from srd.sim.models.transports import TcpFlow
from srd.sim.simulation import NS_PER_S, Simulation


def play(
    topology: Topology, keys: RunKeys, failures: Sequence[ScheduledEvent], *, config: ProtocolConfig, seed: int
) -> dict[str, float]:
    """Return the figures. Raises SimulationError if a request fails without failures, or not all is delivered."""
    simulation, stream = Simulation(topology, config=config, seed=seed), stream_of(keys)
    for host, clock in keys.clocks.items():
        simulation.sim_host(host).clock = HostClock(offset_s=clock.offset, drift_ppm=clock.drift_ppm)
    started = streams(
        simulation,
        stream.ends,
        message_bytes=stream.message,
        outstanding=stream.outstanding,
        messages=stream.messages,
    )
    running, begun_ns = BulkSimulation(simulation, started), simulation.now_ns
    measured_ns = begun_ns + round(keys.warm_up * NS_PER_S)
    until_ns = begun_ns + round((keys.warm_up + (keys.time or 0.0)) * NS_PER_S)
    watch = Failures(running, failures, watched_from_ns=measured_ns) if failures else None
    beside = None if keys.beside is None else _beside(simulation, keys.beside)
    _step_clocks(simulation, keys, measured_ns=measured_ns)
    groups = [started[::2], started[1::2]] if stream.later else [started]
    for index, group in enumerate(groups):
        simulation.run(seconds=index * stream.later)
        for each in group:
            if stream.outstanding:
                each.start()
            else:
                each.offer(every_ns=round(stream.every * NS_PER_S), until_ns=until_ns)
    found = _completions(running, keys) if keys.time is None else _spans(running, keys, keys.time, beside)
    if watch is not None:
        return found | watch.figures()
    simulation.require_no_failures()
    return found


def stream_of(keys: RunKeys) -> StreamKeys:
    """Return the stream, which there is."""
    assert keys.stream is not None, "or a workload would be played"  # noqa: S101 - for the type
    return keys.stream


def _beside(simulation: Simulation, keys: BesideKeys) -> TcpFlow:
    flow = TcpFlow(simulation.fabric, keys.source, keys.destination, controller=CONTROLLERS[keys.tcp]())
    simulation.fabric.at(simulation.now_ns + round(keys.at * NS_PER_S), lambda _now_ns: flow.start())
    return flow


def _step_clocks(simulation: Simulation, keys: RunKeys, *, measured_ns: int) -> None:
    for host, clock in keys.clocks.items():
        part_ns = round((keys.time or 0.0) * NS_PER_S / (len(clock.steps) + 1))
        for index, step_s in enumerate(clock.steps):
            at_ns = measured_ns + (index + 1) * part_ns
            simulation.fabric.at(at_ns, partial(_step_clock, simulation.sim_host(host).clock, step_s))


def _step_clock(clock: HostClock, by_s: float, _now_ns: int) -> None:
    clock.step(by_s)


def _completions(running: BulkSimulation, keys: RunKeys) -> dict[str, float]:
    """Return how long messages took, over what they take at least."""
    simulation, stream = running.simulation, stream_of(keys)
    _deliver_all(running, keys)
    seconds = (simulation.now_ns - running.streams[0].posted_at_ns[0]) / NS_PER_S
    goodput_bps = 8 * len(running.streams) * stream.messages * stream.message / seconds
    bounds = Bounds(simulation.fabric.topology)
    ideal_us = [bounds.message_us(*ends, size_bytes=stream.message) for ends in stream.ends]
    ratios = [
        (delivery.at_ns - stream.posted_at_ns[delivery.immediate]) / 1000 / least_us
        for stream, least_us in zip(running.streams, ideal_us, strict=True)
        for delivery in stream.delivered()
    ]
    return {
        **_capacity(goodput_bps, keys, topology=simulation.fabric.topology),
        "goodput_mbps": goodput_bps / 1e6,
        "median_over_ideal_ratio": median(ratios),
        "max_over_ideal_ratio": max(ratios),
        "ideal_us": ideal_us[0],
    }


def _deliver_all(running: BulkSimulation, keys: RunKeys) -> None:
    """Run until all of `messages` are delivered; without, for all of the limit, in which duplicates arrive, too."""
    messages = stream_of(keys).messages
    sinks = {each.destination.host: each.destination for each in running.connections}.values()

    def left() -> int:
        posted = sum(messages or len(stream.posted_at_ns) for stream in running.streams)
        return posted - sum(len(sink.deliveries) for sink in sinks)

    running.simulation.run(seconds=keys.limit, done=(lambda: not left()) if messages else None)
    if missing := left():
        raise ExperimentError(f"{missing} messages were not delivered within {keys.limit:g} s")


def _spans(running: BulkSimulation, keys: RunKeys, seconds: float, beside: TcpFlow | None) -> dict[str, float]:
    """Return what came of all streams in so many seconds after the warm-up."""
    simulation, stream, steps, links = running.simulation, stream_of(keys), 1, []
    if keys.samples is not None:
        steps = max(round(seconds / keys.samples.every), 1)
        links = [link for link in simulation.fabric.links.values() if fnmatchcase(link.name, keys.samples.links)]
    simulation.run(seconds=keys.warm_up - stream.later)
    delivered = 0 if beside is None else beside.sender.delivered
    span = running.span(seconds, steps=steps, links=links)
    found = {}
    if beside is not None:
        found["beside_mbps"] = 8e-6 * (beside.sender.delivered - delivered) * beside.packet_bytes / seconds
        found["beside_lost_fraction"] = beside.sender.lost / beside.sender.sent
    if stream.every:
        _deliver_all(running, keys)
    topology = simulation.fabric.topology
    return {
        **_capacity(span.goodput_bps, keys, topology=topology),
        "goodput_mbps": span.goodput_bps / 1e6,
        "retransmitted_fraction": running.resent_fraction,
        "spurious_fraction": running.spurious_fraction,
        "resent_fraction": span.resent_fraction,
        "lost_fraction": span.lost_fraction,
        "marked_packets": sum(path.counters.ecn_ce for sender in running.senders for path in sender.paths),
        **({"jain_index": jain_index(span.landed_bytes)} if len(running.streams) > 1 else {}),
        **_queues(span, stream, topology=topology),
        **found,
    }


def _capacity(goodput_bps: float, keys: RunKeys, *, topology: Topology) -> dict[str, float]:
    if not keys.capacity:
        return {}
    payload_bps = keys.capacity * (payload_bytes(topology) / packet_bytes(topology))
    return {"capacity_fraction": goodput_bps / payload_bps, "capacity_mbps": payload_bps / 1e6}


def _queues(span: BulkFigures, stream: StreamKeys, *, topology: Topology) -> dict[str, float]:
    if not span.waits_ns:
        return {}
    bounds, (source, destination) = Bounds(topology), stream.ends[0]
    rtt_us = bounds.delay_us(source, destination) + bounds.delay_us(destination, source)
    return {
        "mean_queue_ms": fmean(span.waits_ns) / 1e6,
        "median_queue_ms": median(span.waits_ns) / 1e6,
        **({"median_queue_bdp": median(span.waits_ns) / 1e3 / rtt_us} if rtt_us else {}),
    }
