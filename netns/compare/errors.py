"""Errors of `srd compare`."""

from __future__ import annotations

from netns.errors import LabError


class GridError(LabError):
    """A grid's file is wrong: exit status 2; the message has file, key, value and remedy."""


class CellError(LabError):
    """A cell did not reach its end, by a fault of its transport or of a worker: the cell's result."""


class ResultsError(LabError):
    """Results cannot be read or written."""


class PayloadError(LabError):
    """The file of a workload cannot be read, or there is no room for it."""
