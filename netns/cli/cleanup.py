"""`srd-lab cleanup`: remove what crashed labs left behind."""

from __future__ import annotations

import click

from netns.backends.choice import require_root
from netns.errors import BackendError
from netns.lab.builder import dismantle, problems
from netns.lab.state import LabDirectory, leftover_directories, locked, recorded_labs


@click.command()
@click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
def cleanup(dry_run: bool) -> None:  # noqa: FBT001 - click passes by keyword
    """Remove what crashed labs left behind; labs that are up and complete stay (srd-lab down --all removes those).

    Only objects in a lab's record are touched. Each removed lab is printed on a line; it is no error if there is none.
    """
    require_root("srd-lab cleanup")
    verb = "would remove" if dry_run else "removed"
    with locked():
        for name in recorded_labs():
            directory = LabDirectory(name)
            try:
                state = directory.read()
            except BackendError as error:
                click.echo(f"srd-lab: {error}", err=True)
                continue
            if state is None or not (why := problems(state)):
                continue
            if not dry_run:
                dismantle(directory, state)
            click.echo(f"{verb} lab {name}: {'; '.join(why)}")
        for directory in leftover_directories():
            if not dry_run:
                directory.remove()
            click.echo(f"{verb} {directory.path}: it holds no record")
