"""Files of htsim, the simulator of NDP, EQDS and Swift: connection matrices (.cm) and topologies (.topo).

A connection matrix has a flow a line; hosts are numbers from 0 in the order of the topology's hosts:

    Nodes 16
    Connections 2
    Triggers 1
    0->5 id 1 start 0 size 2000000 recv_done_trigger 1
    5->9 id 2 trigger 1 size 1000000
    trigger id 1 oneshot

`start` is in picoseconds. A flow with `trigger n` starts when that fires: a barrier when `count` of the flows that name
it are complete, the others at the first one. `send_done_trigger` fires here as `recv_done_trigger` does, when the last
byte is delivered; `prio` says nothing to these transports.

A topology has 2 or 3 tiers of switches; `Tier 0` are those of the hosts. `Queue_Down` and `Queue_Up` are bytes in front
of a port; `Switch_Latency_ns` is added to the delay of the links below a switch. Only one link joins two nodes here, so
`Bundle` is one link of that many times the rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from netns.errors import LabError
from netns.netem.shape import Shape, limit_for
from netns.topology.model import ETHERNET_HEADER_BYTES, MAX_LINKS, Link, Switch, Tier, Topology, check_range
from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.workload import check_count, check_size
from srd.sim.flows import Flow

MTU: Final = 4096 + 28
"""htsim's programs send packets of 4 KiB by default; UDP and IP headers besides."""
HOST_QUEUE_PACKETS: Final = 10_000
"""A host's own queue: what it sends beyond the rate of its link waits, and is not lost."""
_FLOW_KEYS: Final = frozenset({"id", "start", "size", "trigger", "send_done_trigger", "recv_done_trigger", "prio"})
_TOTALS: Final = frozenset({"nodes", "connections", "triggers"})


def _lines(path: Path) -> list[tuple[str, list[str]]]:
    """Return the lines of a file that say something, as a position and words."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise ExperimentError(f"{path}: {reason}") from None
    words = [line.partition("#")[0].split() for line in text.splitlines()]
    return [(f"{path}: line {number}", found) for number, found in enumerate(words, 1) if found]


def _number(text: str, *, at: str) -> int:
    try:
        number = int(float(text))
    except (ValueError, OverflowError):
        raise ExperimentError(f"{at}: {text!r} is no number") from None
    if number < 0:
        raise ExperimentError(f"{at}: {text} is less than 0")
    return number


def read_matrix(path: Path, *, hosts: Sequence[str]) -> tuple[Flow, ...]:
    """Return the flows of a connection matrix. Raises ExperimentError with file, line and value."""
    flows: list[tuple[str, str, str, dict[str, int]]] = []
    needs: dict[int, int] = {}
    totals: dict[str, int] = {}
    for at, words in _lines(path):
        key = words[0].lower()
        if "->" in words[0]:
            ends = [_host(end, hosts, at=at) for end in words[0].split("->", 1)]
            flows.append((at, *ends, _fields(words[1:], at=at)))  # type: ignore[arg-type]  # two ends
        elif key == "trigger":
            needs |= _trigger(words[1:], at=at)
        elif key in _TOTALS and len(words) == 2:
            totals[key] = _number(words[1], at=at)
        else:
            raise ExperimentError(f"{at}: {' '.join(words)!r} is neither a flow (0->1 ...), a trigger nor a total")
    if totals.get("connections", len(flows)) != len(flows):
        raise ExperimentError(f"{path}: has {len(flows)} flows, but says Connections {totals['connections']}")
    if totals.get("nodes", 0) > len(hosts):
        raise ExperimentError(f"{path}: for {totals['nodes']} hosts; the topology has {len(hosts)}, take a larger one")
    try:
        check_count(len(flows))
    except ExperimentError as error:
        raise ExperimentError(f"{path}: {error}") from None
    return tuple(_flow(flow, flows, needs) for flow in flows)


def _host(text: str, hosts: Sequence[str], *, at: str) -> str:
    number = _number(text, at=at)
    if number >= len(hosts):
        raise ExperimentError(f"{at}: host {number}; the topology has {len(hosts)}, from 0")
    return hosts[number]


def _fields(words: Sequence[str], *, at: str) -> dict[str, int]:
    if len(words) % 2:
        raise ExperimentError(f"{at}: {words[-1]!r} has no value")
    fields = {key: _number(value, at=at) for key, value in zip(words[::2], words[1::2], strict=True)}
    for key in fields:
        if key not in _FLOW_KEYS:
            raise ExperimentError(f"{at}: {key!r} is none of {', '.join(sorted(_FLOW_KEYS))}")
    if "size" not in fields:
        raise ExperimentError(f"{at}: has no size; flows without end are not simulated")
    return fields


def _trigger(words: Sequence[str], *, at: str) -> dict[int, int]:
    """Return how many flows a trigger waits for, by its number."""
    match [word.lower() for word in words]:
        case ["id", number, "oneshot" | "multishot"]:
            return {_number(number, at=at): 1}
        case ["id", number, "barrier"]:
            return {_number(number, at=at): 0}
        case ["id", number, "barrier", "count", count]:
            return {_number(number, at=at): _number(count, at=at)}
    raise ExperimentError(f"{at}: not as in: trigger id 1 oneshot|multishot|barrier [count 2]")


def _flow(
    flow: tuple[str, str, str, Mapping[str, int]],
    flows: Sequence[tuple[str, str, str, Mapping[str, int]]],
    needs: Mapping[int, int],
) -> Flow:
    at, source, destination, fields = flow
    if source == destination:
        raise ExperimentError(f"{at}: from a host to itself")
    size_bytes = check_size(fields["size"])
    trigger = fields.get("trigger")
    if trigger is None:
        return Flow(source, destination, size_bytes, start_s=fields.get("start", 0) / 1e12)
    ends = ("send_done_trigger", "recv_done_trigger")
    after = tuple(index for index, other in enumerate(flows) if trigger in [other[3].get(end) for end in ends])
    if trigger not in needs or not after:
        raise ExperimentError(f"{at}: trigger {trigger} is not defined, or no flow fires it")
    if needs[trigger] > len(after):
        raise ExperimentError(f"{at}: trigger {trigger} waits for {needs[trigger]} flows, but {len(after)} name it")
    return Flow(source, destination, size_bytes, after=after, needs=needs[trigger] or len(after))


def read_topo(path: Path, *, seed: int) -> Topology:
    """Return the topology of a .topo file. Raises ExperimentError with file, line and value."""
    head: dict[str, int] = {}
    tiers: dict[int, dict[str, int]] = {}
    into = head
    for at, words in _lines(path):
        if len(words) != 2:
            raise ExperimentError(f"{at}: {' '.join(words)!r} is no key and value")
        key, value = words[0].lower(), _number(words[1], at=at)
        if key == "tier":
            into = tiers.setdefault(value, {})
        else:
            into[key] = value
    try:
        return _Topo(head, [tiers[index] for index in range(len(tiers))]).made(name=path.stem, seed=seed)
    except KeyError as error:
        raise ExperimentError(f"{path}: lacks {error.args[0]}") from None
    except (LabError, ExperimentError) as error:
        raise ExperimentError(f"{path}: {error}") from None


class _Topo:
    """The keys of a file: of the whole, and of each tier."""

    def __init__(self, head: Mapping[str, int], tiers: Sequence[Mapping[str, int]]) -> None:
        if len(tiers) not in {2, 3} or head.get("tiers", len(tiers)) != len(tiers):
            raise ExperimentError(f"has {len(tiers)} tiers; give Tiers 2 or 3, and as many of Tier 0, Tier 1, Tier 2")
        self._tiers = tiers
        self._nodes = head["nodes"]
        self._pod = head["podsize"] if len(tiers) == 3 else self._nodes
        latency_ns = sum(tier["downlink_latency_ns"] + tier.get("switch_latency_ns", 0) for tier in tiers)
        self._rtt_us = 4 * latency_ns / 1000
        for tier in tiers:
            if not tier["radix_down"] or not tier["downlink_speed_gbps"]:
                raise ExperimentError("a Radix_Down or a Downlink_speed_Gbps is 0")

    def made(self, *, name: str, seed: int) -> Topology:
        """Return the topology. Raises KeyError for a key that is missing, ExperimentError for what does not add up."""
        check_range("Nodes", self._nodes, low=2, high=MAX_LINKS)
        hosts = [f"h{index + 1}" for index in range(self._nodes)]
        leaf_of = self._switches("leaf", hosts, up=1, down=self._tiers[0]["radix_down"])
        links = [
            self._link(host, leaf_of[index // self._tiers[0]["radix_down"]], 0) for index, host in enumerate(hosts)
        ]
        switches: list[tuple[Tier, list[str]]] = [("leaf", leaf_of)]
        below, pods = leaf_of, self._nodes // self._pod
        if len(self._tiers) == 3:
            aggregations = self._above("agg", below, level=1)
            leaves_a_pod, aggregations_a_pod = len(below) // pods, len(aggregations) // pods
            links += [
                self._link(leaf, aggregation, 1)
                for index, leaf in enumerate(below)
                for aggregation in _part(aggregations, index // leaves_a_pod, of=aggregations_a_pod)
            ]
            spines = self._above("spine", aggregations, level=2)
            links += [  # as htsim wires them: the n-th of each pod has every aggregations_a_pod-th spine
                self._link(aggregation, spine, 2)
                for index, aggregation in enumerate(aggregations)
                for spine in spines[index % aggregations_a_pod :: aggregations_a_pod]
            ]
            switches += [("aggregation", aggregations), ("spine", spines)]
        else:
            spines = self._above("spine", below, level=1)
            links += [self._link(leaf, spine, 1) for leaf in below for spine in spines]
            switches.append(("spine", spines))
        return Topology(
            name=name,
            hosts=tuple(hosts),
            switches=tuple(Switch(each, tier) for tier, names in switches for each in names),
            links=tuple(links),
            mtu=MTU,
            seed=seed,
        )

    def _above(self, prefix: str, below: Sequence[str], *, level: int) -> list[str]:
        tier = self._tiers[level]
        links = self._tiers[level - 1]["radix_up"] // tier.get("bundle", 1)
        return self._switches(prefix, below, up=links, down=tier["radix_down"] // tier.get("bundle", 1))

    def _switches(self, prefix: str, below: Sequence[str], *, up: int, down: int) -> list[str]:
        """Return the names of switches with so many ports down, for nodes with so many links up."""
        if not down or not up or len(below) * up % down:
            raise ExperimentError(f"{len(below)} nodes with {up} links up do not fill switches with {down} ports down")
        return [f"{prefix}{index + 1}" for index in range(len(below) * up // down)]

    def _link(self, lower: str, upper: str, level: int) -> Link:
        tier = self._tiers[level]
        down_bytes, up_bytes = tier.get("queue_down"), self._tiers[level - 1].get("queue_up") if level else None
        up = self._shape(tier, up_bytes)
        return Link(
            lower, upper, up if level else replace(up, limit_packets=HOST_QUEUE_PACKETS), self._shape(tier, down_bytes)
        )

    def _shape(self, tier: Mapping[str, int], queue_bytes: int | None) -> Shape:
        """Return a port; without a size its queue is one bandwidth-delay product of the longest round trip."""
        delay_us = (tier["downlink_latency_ns"] + tier.get("switch_latency_ns", 0)) / 1000
        rate_bps = tier["downlink_speed_gbps"] * tier.get("bundle", 1) * 10**9
        buffer_bytes = round(rate_bps * self._rtt_us / 8e6) if queue_bytes is None else queue_bytes
        packet_bytes = MTU + ETHERNET_HEADER_BYTES
        limit = limit_for(rate_bps=rate_bps, delay_us=delay_us, buffer_bytes=buffer_bytes, packet_bytes=packet_bytes)
        return Shape(delay_us=delay_us, rate_bps=rate_bps, limit_packets=limit)


def _part(names: Sequence[str], index: int, *, of: int) -> Sequence[str]:
    return names[index * of : (index + 1) * of]
