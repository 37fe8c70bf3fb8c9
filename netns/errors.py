"""What can go wrong in the lab, as one tree.

    LabError                 anything this package raises on purpose; the message is one line for the user
      |-- ShapeError         a shape's value is out of range, or is not in tc's notation
      |-- TopologyError      a topology file or an argument describes no possible fabric
      `-- FabricError        the kernel, a process or the lab's state refuses what a valid topology asks for

Commands print the message and exit: 2 for ShapeError and TopologyError (bad input), 1 for FabricError.
"""

from __future__ import annotations


class LabError(Exception):
    """Root of the errors that this package raises; the message names the value and the remedy."""


class ShapeError(LabError):
    """A shape's field is out of range, or a value is not in tc's notation."""


class TopologyError(LabError):
    """A topology file or builder argument describes no possible fabric."""


class FabricError(LabError):
    """The kernel, the relay process or the lab's recorded state refuses what was asked."""
