"""The command `srd-lab`: labs of network namespaces from the shell."""

from netns.cli.commands import main

__all__ = ["main"]
