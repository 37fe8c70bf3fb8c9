"""A lab: a topology that is built, and removed again by the names in its record.

    with Lab.up(reference()) as lab:
        subprocess.run(lab.command("h1", ["ping", "-c1", lab.address("h2")]))
        lab.reshape("leaf1-spine1", ab=Shape(loss_percent=100))

Rules:

- Each name is recorded before the object is created (netns/lab/state.py). Removal uses the record alone, so that it is
  the same after `down`, after an exception or a signal during `up`, and after a crash of the process that made the lab.
- A lab outlives the process that made it. In a `with` block it does not: its record then names the process, and a lab
  whose owner is dead counts as crashed.
- Removal ends the processes that still run inside the lab's namespaces, because they would keep the namespaces alive
  without a name. They are found by their namespace, never by the name of their command.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, Self

from netns.backends.choice import Wanted, choose_backend, require_root
from netns.backends.kernel.capabilities import missing
from netns.backends.kernel.netlink import apply, interface_statistics, netem_statistics
from netns.backends.relay.client import request
from netns.errors import BackendError, OutdatedError
from netns.lab.builder import build, dismantle, problems
from netns.lab.operations import SetNetem
from netns.lab.plan import Backend, namespace, plan, shape_seed
from netns.lab.state import LabDirectory, LabState, locked, recorded_labs
from netns.netem.changes import AnyShape, Change, effective, with_change
from netns.netem.shape import Shape, require_real
from netns.netem.tc_format import netem_arguments
from netns.observe.pcapng import check_writable
from netns.processes import ProcessIdentity, processes_in
from netns.programs import tool
from netns.topology.addressing import Addressing, IpVersion, addressing, versions
from netns.topology.model import ETHERNET_HEADER_BYTES, Link, Topology

Counters = dict[str, int]
"""packets, bytes (with Ethernet headers), dropped; of a shaped direction also queued: the packets held now."""

LinkCounters = dict[str, Counters]
"""ab, ba."""

Direction = Literal["ab", "ba"]

_OTHER: Final[Mapping[Direction, Direction]] = {"ab": "ba", "ba": "ab"}


class Lab:
    """A fabric that is up. Create it with `Lab.up`, or look it up with `Lab.find`."""

    def __init__(self, directory: LabDirectory, state: LabState) -> None:
        self._directory = directory
        self._state = state
        ip_versions = versions(state.topology)
        self._addresses = {version: addressing(state.topology, version=version) for version in ip_versions}

    @classmethod
    def up(cls, topology: Topology, *, backend: Wanted = "auto") -> Lab:
        """Build `topology`. Remainders of a crashed lab of its name are removed first.

        Raises TopologyError if the backend cannot build it, BackendError if a lab of that name is up, if the caller is
        not root, or if the kernel refuses an operation; then, and after SIGINT, SIGTERM or SIGHUP, nothing is left.
        """
        require_root("srd-lab up")
        chosen, reason = choose_backend(topology, backend)
        steps = plan(topology, chosen)
        directory = LabDirectory(topology.name)
        with locked():
            existing = directory.read()
            if existing is not None:
                if not problems(existing):
                    raise BackendError(
                        f"lab {topology.name} is up; take it down first: srd-lab down --lab {topology.name}"
                    )
                dismantle(directory, existing)
            for capture in topology.captures:
                check_writable(Path(capture.file), overwrite=capture.overwrite)
            state = build(directory, LabState(topology, chosen, reason), steps)
        return cls(directory, state)

    @classmethod
    def find(cls, name: str) -> Lab:
        """Return the lab called `name`; BackendError with the names of the existing labs if it is not up."""
        directory = LabDirectory(name)
        state = directory.read()
        if state is None:
            known = ", ".join(recorded_labs()) or "none"
            raise BackendError(f"there is no lab {name}; labs: {known}")
        return cls(directory, state)

    @property
    def name(self) -> str:
        """The lab's name, which is its topology's."""
        return self._state.topology.name

    @property
    def topology(self) -> Topology:
        """The topology as it was built; `reshape` does not change it."""
        return self._state.topology

    @property
    def directory(self) -> LabDirectory:
        """The directory of the lab's record."""
        return self._directory

    @property
    def backend(self) -> Backend:
        """The backend that carries the shaped links."""
        return self._state.backend

    @property
    def reason(self) -> str:
        """Why this backend was chosen."""
        return self._state.reason

    @property
    def notes(self) -> tuple[str, ...]:
        """Features that this kernel lacks."""
        return self._state.notes

    def netns(self, node: str) -> str:
        """The namespace of a host or switch; BackendError if there is no such node."""
        if node not in self.topology.nodes:
            raise BackendError(
                f"{node}: no such node in lab {self.name}; the nodes are: {', '.join(self.topology.nodes)}"
            )
        return namespace(self.topology, node)

    @property
    def versions(self) -> tuple[IpVersion, ...]:
        """The versions of IP in the lab: (4,) or (4, 6)."""
        return tuple(self._addresses)

    def addressing(self, version: IpVersion = 4) -> Addressing:
        """All addresses of one version of IP; TopologyError if the lab does not have it."""
        return self._addresses.get(version) or addressing(self.topology, version=version)

    def address(self, host: str, *, version: IpVersion = 4) -> str:
        """The host's main address, reached over all spines. Raises TopologyError."""
        self.topology.switch_of(host)
        return self.addressing(version).main[host]

    def pinned_addresses(self, host: str, *, version: IpVersion = 4) -> Mapping[str, str]:
        """Spine -> the host's address whose traffic, in both directions, crosses only that spine."""
        self.topology.switch_of(host)
        return dict(self.addressing(version).pinned[host])

    def command(self, node: str, argv: Sequence[str]) -> list[str]:
        """A command line that runs `argv` inside a node's namespace."""
        return [tool("ip"), "netns", "exec", self.netns(node), *argv]

    def reshape(
        self,
        link: str,
        *,
        ab: AnyShape | None = None,
        ba: AnyShape | None = None,
        instead_of: Mapping[Direction, AnyShape] | None = None,
    ) -> None:
        """Change a shaped link while it carries traffic; None leaves that direction as it is.

        `ab` is from the first to the second end in `link`, whatever their order in the topology. With `instead_of`
        nothing changes unless the shapes are still those, by `changeable`: OutdatedError. Raises TopologyError for an
        unknown link, ShapeError for a shape that only the virtual backend supports, BackendError for a link that was
        not shaped from the start.
        """
        found = self.topology.link(link)
        if not found.shaped:
            raise BackendError(f"link {link}: it is not shaped, and only a shaped link can be changed")
        for shape in (ab, ba):
            require_real(None if shape is None else effective(shape), at=f"link {link}")
        with self._directory.locked():
            now = self._recorded(link)
            if instead_of is not None and any(
                (now[direction] or Shape()) != was for direction, was in instead_of.items()
            ):
                raise OutdatedError(f"link {link}: was changed meanwhile")
            given: tuple[tuple[Direction, AnyShape | None], ...] = (("ab", ab), ("ba", ba))
            for direction, new in given:
                if new is not None:
                    same = instead_of is not None and effective(instead_of[direction]) == effective(new)
                    own = direction if link == found.name else _OTHER[direction]
                    if not same:  # a shape that is set again would begin its draws anew
                        self._reshape(found, own, effective(new))
                    self._directory.write_shape(found.name, direction=own, shape=new)

    def change(
        self,
        link: str,
        changes: Mapping[str, Any],
        *,
        direction: Literal["both", "ab", "ba"] = "both",
        base: Path = Path(),
    ) -> None:
        """Change some properties of a link for good, in tc's notation, and keep the others.

        Raises TopologyError, ShapeError or BackendError; then nothing has changed.
        """
        change = Change.parse(changes, base=base)
        edit_shapes(self, link, lambda shape: with_change(shape, change), direction=direction)

    def changeable(self, link: str, *, direction: Literal["both", "ab", "ba"] = "both") -> dict[Direction, AnyShape]:
        """Return the current shapes of a direction, or of the shaped ones of `both`; BackendError if there are none."""
        before = {
            name: shape or Shape()
            for name, shape in self._recorded(link).items()
            if direction == name or (direction == "both" and shape is not None)
        }
        if not before:
            raise BackendError(f"link {link}: it is not shaped, and only a shaped link can be changed")
        return before

    def shapes(self, link: str) -> dict[Direction, Shape | None]:
        """Return the current shape of each direction; `ab` is from the first to the second end in `link`."""
        return {name: None if shape is None else effective(shape) for name, shape in self._recorded(link).items()}

    def _recorded(self, link: str) -> dict[Direction, AnyShape | None]:
        """Return the current shape of each direction, with the changes that will be taken back."""
        found = self.topology.link(link)
        ab, ba = (
            self._directory.shape(found.name, direction=direction) or built
            for direction, built in (("ab", found.shape_ab), ("ba", found.shape_ba))
        )
        return {"ab": ab, "ba": ba} if link == found.name else {"ab": ba, "ba": ab}

    def dead_links(self) -> frozenset[str]:
        """Return the names of the links that a failure holds down now (netns/faults/faults.py)."""
        return frozenset(link for failure in self._directory.failures() for link in failure.links)

    def counters(self) -> dict[str, LinkCounters]:
        """Return the counters of each direction of each link since it was built, the drops of its shape included."""
        interfaces = {node: interface_statistics(self.netns(node)) for node in self.topology.nodes}
        found = {
            link.name: {
                "ab": _sent(interfaces[link.a][link.b], to_host=link.b in self.topology.hosts),
                "ba": _sent(interfaces[link.b][link.a], to_host=link.a in self.topology.hosts),
            }
            for link in self.topology.links
        }
        shaped = self._relayed() if self.backend == "relay" else self._queued()
        for name, directions in shaped.items():
            found[name] |= directions
        return found

    def relay_status(self) -> dict[str, Any] | None:
        """The relay's cpu_seconds, tap_drops, late_mean_us, late_total_us and late_max_us; None without a relay."""
        if self._state.relay is None:
            return None
        answer = request(self._directory.relay_control, {"op": "counters"})
        return {key: value for key, value in answer.items() if key != "links"}

    def status(self) -> dict[str, Any]:
        """Return the lab's full status, ready for JSON; `problems` is empty if nothing of the lab is missing.

        `links` has for each link its ends, whether it is dead, and each direction's current shape in tc's notation;
        `derived` names the properties of directions that follow from others, where there are any.
        """
        topology = self.topology
        return {
            "name": self.name,
            "backend": self.backend,
            "reason": self.reason,
            "phase": self._state.phase,
            "problems": problems(self._state) + self._overload(),
            "notes": list(self.notes),
            "mtu": topology.mtu,
            "ecmp": topology.ecmp,
            "seed": topology.seed,
            "hosts": {
                host: {
                    "netns": self.netns(host),
                    "address": self.address(host),
                    "switch": topology.switch_of(host),
                    "pinned": dict(self.pinned_addresses(host)),
                    "address6": self.address(host, version=6) if topology.ipv6 else None,
                }
                for host in topology.hosts
            },
            "switches": {
                switch.name: {"netns": self.netns(switch.name), "tier": switch.tier} for switch in topology.switches
            },
            "links": self._link_states(),
            "relay": self._state.relay and self._state.relay.to_dict(),
            "owner": self._state.owner and self._state.owner.to_dict(),
            "processes": [
                {"pid": process.pid, "command": process.command, "netns": netns}
                for process, netns in processes_in(self._state.namespaces).items()
            ],
        }

    def _link_states(self) -> dict[str, dict[str, Any]]:
        dead = self.dead_links()
        found: dict[str, dict[str, Any]] = {}
        for link in self.topology.links:
            shapes = self.shapes(link.name) if link.shaped else {"ab": None, "ba": None}
            found[link.name] = {"a": link.a, "b": link.b, "dead": link.name in dead}
            for direction, shape in shapes.items():
                found[link.name][direction] = None if shape is None else " ".join(netem_arguments(shape))
            derived = {direction: list(shape.derived) for direction, shape in shapes.items() if shape and shape.derived}
            found[link.name] |= {"derived": derived} if derived else {}
        return found

    def _overload(self) -> list[str]:
        """Report the packets that the relay itself lost, if any: results measured on the lab are invalid then."""
        try:
            account = self.relay_status()
        except BackendError:  # `problems` reports a dead relay
            return []
        lost = account["tap_drops"] if account else 0
        return [f"the relay was overloaded and lost {lost} packets itself: results are invalid"] if lost else []

    def down(self) -> None:
        """Remove the lab and end the processes in it; do nothing if it does not exist."""
        require_root("srd-lab down")
        with locked():
            state = self._directory.read()
            if state is not None:
                dismantle(self._directory, state)

    def __enter__(self) -> Self:
        self._state = replace(self._state, owner=ProcessIdentity.of(os.getpid()))
        self._directory.write(self._state)
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def _reshape(self, link: Link, direction: Direction, shape: Shape) -> None:
        before = self.shapes(link.name)[direction]
        if self.backend == "kernel" and (reason := missing(shape)) is not None:
            raise BackendError(f"link {link.name}: this kernel cannot do {' '.join(netem_arguments(shape))}: {reason}")
        if self.backend == "relay":
            message = {"op": "set", "link": link.name, "direction": direction, "shape": shape.to_dict()}
            request(self._directory.relay_control, message)
        else:
            node, neighbour = (link.a, link.b) if direction == "ab" else (link.b, link.a)
            seed = shape_seed(self.topology, link, direction=direction)
            apply([SetNetem(self.netns(node), neighbour, shape, seed, before)])

    def _relayed(self) -> dict[str, LinkCounters]:
        """Return the relay's counters of its links."""
        if self._state.relay is None:
            return {}
        links = request(self._directory.relay_control, {"op": "counters"})["links"]
        return {
            name: {
                direction: {
                    "packets": counters["packets"],
                    "bytes": counters["bytes"],
                    "dropped": counters["dropped"] + counters["overlimit"],
                    "queued": counters["queued"],
                }
                for direction, counters in directions.items()
            }
            for name, directions in links.items()
        }

    def _queued(self) -> dict[str, LinkCounters]:
        """Return the netem counters of the shaped directions."""
        found: dict[str, LinkCounters] = {}
        for link in self.topology.links:
            if link.shaped:
                a, b = netem_statistics(self.netns(link.a)), netem_statistics(self.netns(link.b))
                ends = (("ab", a.get(link.b)), ("ba", b.get(link.a)))
                found[link.name] = {direction: counters for direction, counters in ends if counters}
        return found


def edit_shapes(
    lab: Lab,
    link: str,
    edit: Callable[[AnyShape], AnyShape],
    *,
    direction: Literal["both", "ab", "ba"] = "both",
) -> None:
    """Change a link's shapes into what `edit` makes of each, whoever else changes them at the same time.

    Raises what `edit`, `Lab.changeable` and `Lab.reshape` do.
    """
    while True:
        before = lab.changeable(link, direction=direction)
        try:
            lab.reshape(link, instead_of=before, **{way: edit(before[way]) for way in _OTHER if way in before})
        except OutdatedError:
            continue
        return


def _sent(statistics: Mapping[str, int], *, to_host: bool) -> Counters:
    """What an interface sent. To a host, whose end has GRO, veth counts bytes without the Ethernet header."""
    packets = statistics["tx_packets"]
    uncounted = packets * ETHERNET_HEADER_BYTES if to_host else 0
    return {
        "packets": packets,
        "bytes": statistics["tx_bytes"] + uncounted,
        "dropped": statistics["tx_dropped"],
    }
