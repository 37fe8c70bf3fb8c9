"""Untrusted text made safe to print: file names, the other end's reasons, contents of trace files."""

from __future__ import annotations


def printable(text: object) -> str:
    """Return `text` as one line, with control and other non-printable characters escaped.

    Printable text is unchanged, so the function is idempotent.
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(text))
