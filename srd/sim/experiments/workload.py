"""Workloads: which flows there are between the hosts of a topology, and when each begins.

    incast:48x2MB          48 hosts send to the last one, all at the same time
    permutation:2MB        every host sends to one other, and receives from one other; which ones is drawn
    websearch:0.6:500      500 flows between random hosts, at 60 % of what their links carry
    allreduce:64MB         all hosts reduce so many bytes around a ring
    FILE.cm                htsim's connection matrix (htsim.py)

Sizes of websearch: the web search workload of DCTCP (netns/base/message_sizes.py). Arrivals are Poisson's.

A ring all-reduce of N hosts has 2 (N - 1) steps. In each, every host sends a part of 1/N to the next host; it sends in
step k what it has received in step k - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from netns.base.message_sizes import WEB_SEARCH, mean_bytes, quantile
from netns.base.units import UnitError, parse_count, parse_size
from srd.sim.experiments.errors import ExperimentError
from srd.sim.flows import Flow, all_reduce

NOTATION: Final = "incast:NxSIZE, permutation[:SIZE], websearch:LOAD[:FLOWS], allreduce:SIZE, or a file NAME.cm"
MAX_FLOWS: Final = 1_000_000
"""Each takes about 1 kB here, and most simulations take a millisecond or more for one."""
MAX_FLOW_BYTES: Final = 1 << 40
WEBSEARCH_MEAN_BYTES: Final = mean_bytes(WEB_SEARCH)


def made(text: str, *, hosts: Sequence[str], host_bps: int, seed: int) -> tuple[Flow, ...]:
    """Return the flows of a workload by its notation. Raises ExperimentError.

    `host_bps`: the rate of a host's link; 0 if it has none.
    """
    kind, _, rest = text.partition(":")
    random = Random(f"{seed}/{text}")  # noqa: S311 - a simulation's random numbers, reproducible
    if len(hosts) < 2:
        raise ExperimentError(f"--workload {text}: the topology has one host; a flow needs two")
    try:
        match kind:
            case "incast":
                return _incast(rest, hosts)
            case "permutation":
                return _permutation(rest, hosts, random)
            case "websearch":
                return _websearch(rest, hosts, random, host_bps=host_bps)
            case "allreduce":
                check_count(2 * (len(hosts) - 1) * len(hosts))
                return all_reduce(hosts, size_bytes=_size(rest))
    except (ExperimentError, UnitError, ValueError) as error:
        raise ExperimentError(f"--workload {text}: {error}") from None
    raise ExperimentError(f"--workload {text}: no such workload; use {NOTATION}")


def check_count(count: int) -> int:
    """Return a number of flows. Raises ExperimentError unless it can be simulated."""
    if not 1 <= count <= MAX_FLOWS:
        raise ExperimentError(f"{count} flows; there are 1 to {MAX_FLOWS}")
    return count


def check_size(size_bytes: int) -> int:
    """Return the size of a flow. Raises ExperimentError."""
    if not 1 <= size_bytes <= MAX_FLOW_BYTES:
        raise ExperimentError(f"a flow of {size_bytes} bytes; it has 1 to {MAX_FLOW_BYTES}")
    return size_bytes


def _size(text: str) -> int:
    return check_size(parse_size(text))


def _incast(text: str, hosts: Sequence[str]) -> tuple[Flow, ...]:
    senders_text, _, size = text.partition("x")
    senders, size_bytes = check_count(parse_count(senders_text)), _size(size)
    if senders >= len(hosts):
        raise ExperimentError(f"{senders} senders and a receiver, but {len(hosts)} hosts; take fewer senders")
    return tuple(Flow(source, hosts[-1], size_bytes) for source in hosts[:senders])


def _permutation(text: str, hosts: Sequence[str], random: Random) -> tuple[Flow, ...]:
    """Draw a permutation of one cycle, so that no host sends to itself."""
    size_bytes, order = _size(text or "2MB"), list(hosts)
    random.shuffle(order)
    to = dict(zip(order, [*order[1:], order[0]], strict=True))
    return tuple(Flow(host, to[host], size_bytes) for host in hosts)


def _websearch(text: str, hosts: Sequence[str], random: Random, *, host_bps: int) -> tuple[Flow, ...]:
    load_text, _, count_text = text.partition(":")
    load = float(load_text)
    if not 0 < load < 1:
        raise ExperimentError(f"a load of {load_text} is not between 0 and 1")
    if not host_bps:
        raise ExperimentError(
            "hosts' links have no rate, of which it is a share; give them one (host_link: {rate: ...})"
        )
    flows_per_s = load * host_bps * len(hosts) / (8 * WEBSEARCH_MEAN_BYTES)
    now_s, flows = 0.0, list[Flow]()
    for _ in range(check_count(parse_count(count_text) if count_text else 10 * len(hosts))):
        now_s += random.expovariate(flows_per_s)
        source, destination = random.sample(hosts, 2)
        flows.append(Flow(source, destination, round(quantile(WEB_SEARCH, random.random())), now_s))
    return tuple(flows)
