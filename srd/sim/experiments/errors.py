"""The error of experiments."""

from srd.sim.errors import SimulationError


class ExperimentError(SimulationError):
    """An experiment, or a grid of them, is not as it should be; the message is one line with the remedy."""
