"""What a transport is to an experiment: something that starts flows in a simulation and says when each has arrived.

Rules.
1. A transport is a subclass of `Transport`. It has no state of its own: one instance serves all simulations, and what
   belongs to a run is kept in the `Simulation`.
2. `simulation` makes the fabric that the transport needs, `prepare` what applications have before they send (open
   connections); flows start afterwards. Times are virtual, in seconds from the beginning of the simulation.
3. The same calls give the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mypy_extensions import mypyc_attr

from netns.topology.model import Topology
from srd.proto.config import ProtocolConfig
from srd.sim.simulation import Simulation

Done = Callable[[float], None]
"""Called with the time at which the last byte of a flow was delivered."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Transport:
    """How the bytes of a flow get from one host to another."""

    def simulation(self, topology: Topology, *, config: ProtocolConfig, seed: int) -> Simulation:
        """Return a simulation whose fabric this transport can use; `config` is that of SRD's cores."""
        return Simulation(topology, config=config, seed=seed)

    def prepare(self, simulation: Simulation, pairs: Iterable[tuple[str, str]]) -> None:
        """Open what flows from these sources to these destinations need; virtual time goes on meanwhile.

        Raises SimulationError if that does not succeed.
        """

    def flow(
        self, simulation: Simulation, source: str, destination: str, size_bytes: int, *, at: float, done: Done
    ) -> None:
        """Start a flow at a time, not before now; call `done` when its last byte is delivered."""
        raise NotImplementedError

    def counters(self, simulation: Simulation) -> dict[str, int]:  # noqa: ARG002 - a transport may count nothing
        """Return what the transport has counted in a simulation, by names that say what."""
        return {}
