"""The command `srd-lab`: labs of network namespaces from the shell."""

from netns.cli.commands import main
from netns.cli.run import run

main.add_command(run)

__all__ = ["main"]
