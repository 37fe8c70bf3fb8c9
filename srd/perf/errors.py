"""What can go wrong in a measurement.

PerfError                 the root: one line that names the value and the remedy
└── UnavailableError      this kernel lacks what a test needs
"""

from __future__ import annotations

from srd.errors import SrdError


class PerfError(SrdError):
    """A test has failed; its text is one line for the user."""


class UnavailableError(PerfError):
    """This kernel lacks what a test needs."""
