"""The error of simulations."""

from srd.proto.base.errors import SrdError


class SimulationError(SrdError):
    """A simulation is invalid: a peer did not open, or ended; the message is one line."""
