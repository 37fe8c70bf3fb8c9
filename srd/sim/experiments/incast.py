"""The figures of an incast: flows to one host, beside what its port takes for them at least."""

from __future__ import annotations

from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.experiment import Experiment, ExperimentResult
from srd.sim.experiments.fabric import Bounds, message_bytes, packet_bytes


def incast_figures(experiment: Experiment, result: ExperimentResult, *, sink: str) -> dict[str, float]:
    """Return the figures of flows to one host."""
    times_us = [each.fct_us for each in result.completions if each.fct_us is not None]
    port, sent = result.counters[f"{experiment.topology.switch_of(sink)}>{sink}"], result.sent["packets_sent"]
    ideal_us = incast_ideal_us(experiment, sink=sink)
    return {
        "senders_done": len(times_us),
        "max_over_ideal_ratio": max(times_us) / ideal_us,
        "spread_ratio": max(times_us) / min(times_us),
        "ideal_us": ideal_us,
        "max_us": max(times_us),
        "min_us": min(times_us),
        "resent_fraction": result.sent["packets_resent"] / sent,
        "overlimit_fraction": port["overlimit"] / sent,
    }


def incast_ideal_us(experiment: Experiment, *, sink: str) -> float:
    """Return the time of the first packet to the sink's port, plus that of all messages through it."""
    topology, flows = experiment.topology, experiment.flows
    links = topology.links_of[sink][0]
    down = links.shape_ba if links.a == sink else links.shape_ab
    if down is None or not down.rate_bps:
        raise ExperimentError(f"the link to {sink} has no rate, of which the ideal time is made; give it one")
    all_bytes = sum(message_bytes(topology, size_bytes=flow.size_bytes)[0] for flow in flows)
    first_bytes = min(packet_bytes(topology), all_bytes)
    first_us = Bounds(topology).delay_us(flows[0].source, sink, length_bytes=first_bytes)
    return first_us + (all_bytes - first_bytes) * 8e6 / down.rate_bps
