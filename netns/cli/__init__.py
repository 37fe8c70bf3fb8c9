"""The command `srd-lab`: labs of network namespaces from the shell."""

from netns.cli.cleanup import cleanup
from netns.cli.commands import main
from netns.cli.faults import capture_command, discover, fail_command, repair_command, run_schedule, set_command
from netns.cli.rootless import rootless
from netns.cli.run import run
from netns.cli.top import top
from netns.cli.uml import uml_command

for command in (
    run,
    set_command,
    fail_command,
    repair_command,
    run_schedule,
    capture_command,
    discover,
    top,
    cleanup,
    rootless,
):
    main.add_command(command)
main.add_command(uml_command)

__all__ = ["main"]
