"""Errors of `srd compare`."""

from __future__ import annotations

from srd.errors import SrdError


class GridError(SrdError):
    """A grid's file is wrong: exit status 2; the message has file, key, value and remedy."""


class CellError(SrdError):
    """A cell did not reach its end, by a fault of its transport or of a worker: the cell's result."""


class ResultsError(SrdError):
    """Results cannot be read or written."""


class PayloadError(SrdError):
    """The file of a workload cannot be read, or there is no room for it."""
