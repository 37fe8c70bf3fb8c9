"""The errors of the lab, as one tree.

    LabError                 anything this package raises on purpose; the message is one line for the user
      |-- ShapeError         a shape's value is out of range, or is not in tc's notation
      |-- TopologyError      a topology file or an argument describes no possible fabric
      |-- QuantityError      a text is no amount in Kubernetes' notation
      |-- NodesError         a list of nodes (EC2's, Kubernetes') is malformed, or lacks required labels
      |-- JobError           a job file is malformed, or requests what no cluster can provide
      |-- GovernanceError    a file of queues and quotas is malformed, or a job names none of them
      |-- PlacementError     a valid job finds no room on valid nodes
      |-- RankError          a process of a job failed, or was not done in time
      `-- BackendError       the kernel, a process or the lab's state refuses a valid request
            `-- OutdatedError    somebody else has changed it meanwhile

Commands print the message and exit: 2 for bad input (INPUT_ERRORS), 1 for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from netns.base.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_MESSAGE: Final = 2000
"""In characters: a message that quotes a file, or lists all links of a large fabric, stays readable."""


class LabError(Exception):
    """Root of the errors that this package raises; the message contains the value and the remedy.

    Messages quote the contents of files. They are made one printable line here, so that no value can break the line or
    reach the terminal as an escape sequence.
    """

    def __init__(self, message: str) -> None:
        line = printable(message)
        if len(line) > MAX_MESSAGE:  # the value is at the beginning, the remedy at the end
            line = f"{line[: MAX_MESSAGE // 2]} ... {line[-(MAX_MESSAGE // 2) :]}"
        super().__init__(line)


class ShapeError(LabError):
    """A shape's field is out of range, or a value is not in tc's notation."""


class TopologyError(LabError):
    """A topology file or builder argument describes no possible fabric."""


class QuantityError(LabError):
    """A text is no amount in Kubernetes' notation."""


class NodesError(LabError):
    """A source of nodes is malformed, or its nodes lack required labels."""


class JobError(LabError):
    """A job file is malformed, or requests what no cluster can provide."""


class GovernanceError(LabError):
    """A file of queues and quotas is malformed, or a job names a queue or priority class that is not there."""


class PlacementError(LabError):
    """A valid job finds no room on valid nodes; the message is Kueue's."""


class RankError(LabError):
    """A process of a job failed, or was not done in time; all others have been ended."""


class BackendError(LabError):
    """The kernel, the relay process or the lab's recorded state refuses a request."""


class OutdatedError(BackendError):
    """A change was made from a state that somebody else has changed meanwhile."""


def raise_all(errors: Iterable[Exception]) -> None:
    """Raise the errors of a work whose parts went on after each: the only one, or a BackendError with all."""
    distinct = {str(error): error for error in errors}
    if len(distinct) > 1:
        raise BackendError("; ".join(distinct))
    for error in distinct.values():
        raise error


INPUT_ERRORS: Final = (ShapeError, TopologyError, QuantityError, NodesError, JobError, GovernanceError)
"""Mistakes in the user's input: exit status 2."""
