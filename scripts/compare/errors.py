"""What can go wrong in a comparison.

CompareError         the root: one line that names the value and the remedy
+-- UnavailableError this kernel or this installation lacks what a protocol needs
+-- TransferError    a transfer did not transfer the whole file
"""

from __future__ import annotations


class CompareError(Exception):
    """The root: its text is one line for the user."""


class UnavailableError(CompareError):
    """This kernel or this installation lacks what a protocol needs."""


class TransferError(CompareError):
    """A transfer did not transfer the whole file."""
