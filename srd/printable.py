"""Text from elsewhere, made safe to show: file names, the other end's reasons, what a trace file says."""

from __future__ import annotations


def printable(text: object) -> str:
    """Return `text` as one line, with what a terminal could take for a command, or cannot show, spelled out.

    What is printable already stays as it is, so that applying it twice does no harm.
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(text))
