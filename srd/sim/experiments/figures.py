"""The figures of a result, by names that end in their unit, and the tables and JSON that show them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.table import Table

from netns.base.percentile import percentile
from netns.base.tables import table
from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.experiment import Experiment, ExperimentResult
from srd.sim.experiments.fabric import Bounds, message_bytes, packet_bytes

BUSIEST: Final = 8
"""Links in the table of links."""
LOST: Final = ("dropped", "overlimit", "blackholed")
"""Counters of packets that a link did not deliver."""
PERCENTS: Final = (("p50", 50), ("p95", 95), ("p99", 99), ("max", 100))


def figures(experiment: Experiment, result: ExperimentResult) -> dict[str, float]:
    """Return the figures; those of times are missing when no flow was complete."""
    times = [each.fct_us for each in result.completions if each.fct_us is not None]
    slowdowns = [each.slowdown for each in result.completions if each.slowdown is not None]
    found: dict[str, float] = {"flows": len(result.completions), "flows_complete": len(times)}
    if times:
        found |= {f"fct_{name}_us": percentile(times, percent) for name, percent in PERCENTS}
        found |= {f"slowdown_{name}_ratio": percentile(slowdowns, percent) for name, percent in PERCENTS}
    if len(times) == len(result.completions):
        ideal_us = _ideal_us(experiment)
        found |= {"last_us": result.lasted_us, "last_over_ideal_ratio": result.lasted_us / ideal_us}
    lost = sum(counters[name] for counters in result.counters.values() for name in LOST)
    counts = {"packets_lost": lost, "packet_hops": result.packet_hops, "requests_failed": len(result.failures)}
    return {**found, **counts, **result.sent}


def _ideal_us(experiment: Experiment) -> float:
    """Return a bound from below for the end of all flows: the longest of them, and the work of the busiest host's link.

    The latter is the sum of what flows take there by themselves, with one delay and from the first start on.
    """
    bounds = Bounds(experiment.topology)
    work_us = defaultdict[tuple[str, str], float](float)
    longest_us, first_us, least_us = 0.0, math.inf, math.inf
    for flow in experiment.flows:
        start_us, ends = flow.start_s * 1e6, (flow.source, flow.destination)
        longest_us = max(longest_us, start_us + bounds.ideal_us(*ends, size_bytes=flow.size_bytes))
        first_us, least_us = min(first_us, start_us), min(least_us, bounds.delay_us(*ends))
        work_us["out", flow.source] += bounds.host_us(flow.source, outwards=True, size_bytes=flow.size_bytes)
        work_us["in", flow.destination] += bounds.host_us(flow.destination, outwards=False, size_bytes=flow.size_bytes)
    return max(longest_us, first_us + least_us + max(work_us.values()))


def incast_figures(experiment: Experiment, result: ExperimentResult, *, sink: str) -> dict[str, float]:
    """Return the figures of flows to one host, beside what its port takes for them at least."""
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


def flow_rows(experiment: Experiment, result: ExperimentResult) -> list[dict[str, Any]]:
    """Return a row for each flow."""
    return [
        {
            "flow": each.flow,
            "source": flow.source,
            "destination": flow.destination,
            "size_bytes": flow.size_bytes,
            "start_us": each.start_us,
            "fct_us": each.fct_us,
            "ideal_us": each.ideal_us,
            "slowdown": each.slowdown,
        }
        for flow, each in zip(experiment.flows, result.completions, strict=True)
    ]


def link_rows(result: ExperimentResult) -> Iterator[dict[str, Any]]:
    """Yield a row for each step of each link that sent something."""
    for name, series in result.series.items():
        for index, (sent_bytes, wait_ns) in enumerate(zip(series.sent_bytes, series.wait_ns, strict=True)):
            yield {
                "link": name,
                "at_us": (index + 1) * result.step_us,
                "sent_bytes": sent_bytes,
                "wait_us": wait_ns / 1000,
            }


def document(experiment: Experiment, result: ExperimentResult) -> dict[str, Any]:
    """Return all but the series of links, for JSON."""
    return {
        "experiment": {
            "topology": experiment.topology.name,
            "hosts": len(experiment.topology.hosts),
            "transport": experiment.transport,
            "controller": experiment.controller,
            "paths": experiment.paths,
            "seed": experiment.seed,
            "plan": [asdict(event) | {"base": str(event.base)} for event in experiment.plan],
            "settings": result.settings,
            "digest": experiment.digest(),
        },
        "figures": figures(experiment, result),
        "failures": list(result.failures),
        "flows": flow_rows(experiment, result),
        "links": {name: dict(counters) for name, counters in result.counters.items() if any(counters.values())},
    }


def summary_table(found: dict[str, float]) -> Table:
    """Return the table of times and slowdowns."""
    made = table("", *(name for name, _ in PERCENTS), text=())
    if "fct_p50_us" in found:
        made.add_row("completion, us", *(f"{found[f'fct_{name}_us']:,.1f}" for name, _ in PERCENTS))
        made.add_row("slowdown", *(f"{found[f'slowdown_{name}_ratio']:.2f}" for name, _ in PERCENTS))
    return made


def links_table(result: ExperimentResult) -> Table:
    """Return the table of the links that sent most, or lost packets."""
    made = table("link", "MB", "busy %", "longest wait us", "lost", "marked", text=())
    names = sorted(result.series, key=lambda name: (-_lost(result, name), -result.counters[name]["bytes"], name))
    for name in names[:BUSIEST]:
        counters, series = result.counters[name], result.series[name]
        busy = sum(sent > 0 for sent in series.sent_bytes) / len(series.sent_bytes)
        wait_us = max(series.wait_ns) / 1000
        sent_mb = f"{counters['bytes'] / 1e6:,.1f}"
        made.add_row(
            name, sent_mb, f"{100 * busy:.0f}", f"{wait_us:.1f}", f"{_lost(result, name)}", f"{counters['marked']}"
        )
    return made


def flows_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return the table of all flows."""
    made = table("flow", "from", "to", "bytes", "start us", "completion us", "slowdown", text=("from", "to"))
    for row in rows:
        start, fct, slowdown = (row[key] for key in ("start_us", "fct_us", "slowdown"))
        made.add_row(
            str(row["flow"]),
            row["source"],
            row["destination"],
            f"{row['size_bytes']:,}",
            "never" if start is None else f"{start:,.1f}",
            "never" if fct is None else f"{fct:,.1f}",
            "" if slowdown is None else f"{slowdown:.2f}",
        )
    return made


def _lost(result: ExperimentResult, link: str) -> int:
    return sum(result.counters[link][name] for name in LOST)
