"""The error of simulations."""

from srd.proto.errors import SrdError


class SimulationError(SrdError):
    """A simulation is not what was asked for: a peer did not open, or ended; the message is one line."""
