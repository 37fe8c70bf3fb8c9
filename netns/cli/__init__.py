"""The command `srd-lab`: labs of network namespaces from the shell."""

from netns.cli.commands import main
from netns.cli.run import run
from netns.cli.uml import uml

main.add_command(run)
main.add_command(uml)

__all__ = ["main"]
