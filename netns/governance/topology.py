"""Flavors whose nodes have a topology: which pod sets they are for, and where the pods would go.

Quota first, then the placement: if what fits has no place, others would have to go; if it had no place on empty nodes
either, waiting does not help. netns.placement chooses the places. (Kueue: flavorassigner/tas_flavorassigner.go.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from netns.governance.assignment import FlavorAssignment, Mode, PodSetAssignment
from netns.governance.facts import TOPOLOGY_FAILED, Fact
from netns.governance.model import ClusterQueue, ResourceGroup
from netns.governance.state import State
from netns.inventory.nodes import PODS
from netns.placement.model import PlacementRequest, ResourceFlavor, Unplaceable
from netns.placement.model import TopologyAssignment as Domains


def topology_only(state: State, queue: ClusterQueue) -> bool:
    """Return whether all flavors of a queue have a topology, so that all pods are placed by it."""
    flavors = [state.flavors.get(name) for group in queue.groups for name, _ in group.flavors]
    return bool(flavors) and all(each is not None and each.topology is not None for each in flavors)


def why_not_topology(
    state: State, queue: ClusterQueue, podset: PlacementRequest, flavor: ResourceFlavor, group: ResourceGroup
) -> str | None:
    """Return why a flavor is not for a pod set, by whether the one asks for a topology and the other has one."""
    if podset.mode == "implied":
        if flavor.topology is None or topology_only(state, queue):
            return None
        return f'Flavor "{flavor.name}" supports only TopologyAwareScheduling'
    if flavor.topology is None:
        if not any(resource in group.resources for resource in podset.requests):
            return None
        return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling'
    room = state.rooms.get(flavor.name)
    if room is None:
        return f'Flavor "{flavor.name}" information missing in TAS cache'
    wanted = (podset.level, *(each.level for each in podset.slices))
    if any(level is not None and level not in room.levels for level in wanted):
        return f'Flavor "{flavor.name}" does not contain the requested level'
    return None


def place_by_topology(state: State, queue: ClusterQueue, made: FlavorAssignment) -> None:
    """Place what fits in quota; what does not fit on the nodes as they are becomes Preempt or NoFit."""
    if not state.rooms or not _asked(state, queue, made):
        return
    if made.mode == Mode.FIT:
        failure = place(state, queue, made, empty=False)
        if failure is not None:
            podset, unplaceable = failure
            podset.facts.append(Fact("topology", text=str(unplaceable)))
            podset.set_mode(Mode.PREEMPT)
    if made.mode == Mode.PREEMPT:
        asked = _asked(state, queue, made)
        failure = place(state, queue, made, empty=True, keep=False)
        if failure is not None:
            podset, unplaceable = failure
            podset.set_mode(Mode.NO_FIT)
            flavor = _flavor(state, podset)
            podset.facts.append(Fact("topology", text=str(unplaceable)))
            for attempt in podset.attempts:
                if attempt.flavor == flavor:
                    attempt.mode, attempt.reason = Mode.NO_FIT, TOPOLOGY_FAILED
        else:
            for podset in asked:
                podset.set_mode(Mode.PREEMPT)
                if not podset.facts:
                    podset.facts.append(Fact("topology", text="waits for its topology"))


def place(
    state: State, queue: ClusterQueue, made: FlavorAssignment, *, empty: bool, keep: bool = True
) -> tuple[PodSetAssignment, Unplaceable] | None:
    """Place the pod sets that ask for it; return the first that has no place. `keep`: note the places."""
    found: dict[str, Domains] = {}
    asked = _asked(state, queue, made)
    for flavor in dict.fromkeys(_flavor(state, podset) for podset in asked):
        if flavor is None:
            continue
        of_flavor = [podset for podset in asked if _flavor(state, podset) == flavor]
        results = state.rooms[flavor].place([_request(podset) for podset in of_flavor], empty=empty)
        for podset in of_flavor:
            result = results.get(podset.podset.name)
            if isinstance(result, Unplaceable):
                return podset, result
            if result is not None:
                found[podset.podset.name] = result
    if keep:
        for podset in asked:
            podset.topology = found.get(podset.podset.name)
    return None


def fits_by_topology(state: State, queue: ClusterQueue, made: FlavorAssignment) -> bool:
    """Return whether there is a place for all pod sets that ask for one, on the nodes as they are."""
    return not state.rooms or place(state, queue, made, empty=False, keep=False) is None


def _asked(state: State, queue: ClusterQueue, made: FlavorAssignment) -> list[PodSetAssignment]:
    implied = topology_only(state, queue)
    return [
        each
        for each in made.podsets
        if (each.podset.mode != "implied" or implied) and _flavor(state, each) in state.rooms
    ]


def _flavor(state: State, podset: PodSetAssignment) -> str | None:
    """Return the flavor with a topology that a pod set uses; it may be one only."""
    return next(_with_topology(state, (chosen.flavor for chosen in podset.flavors.values())), None)


def _with_topology(state: State, names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if name in state.rooms)


def _request(podset: PodSetAssignment) -> PlacementRequest:
    requests = {name: amount for name, amount in podset.podset.requests.items() if name != PODS}
    return replace(podset.podset, count=podset.count, requests=requests)
