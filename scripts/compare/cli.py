"""The demo's command line: build the fabric, compare, show, write out/report.{html,json}.

    scripts/demo.py [--file F | --size BYTES] [--only ...] [--protocols ...] [--rounds N] [--json]
    scripts/demo.py --picture docs/demo.png        from the report.json of the last run; needs neither root nor time

Context managers remove everything that a run creates; SIGTERM and SIGHUP end the run by unwinding them, like Ctrl-C.
Exit status: 0; 1 if one of SRD's transfers was not verified, or nothing could be measured; 2 for wrong usage.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from rich.console import Console

from netns.errors import LabError
from netns.lab.lab import Lab
from netns.topology.model import Topology, reference
from scripts.compare import conditions, contestants, page, plots, report
from scripts.compare.contestants import SRD
from scripts.compare.errors import CompareError
from scripts.compare.experiment import Experiment, able
from scripts.compare.fabric import Fabric
from scripts.compare.payload import TMPFS, Payload, prepared
from scripts.compare.screen import Screen, checks, headlines, loads, remarks, table
from scripts.compare.transfer import TRANSFER_BOUND_S
from scripts.harness.environment import environment
from scripts.harness.unwinding import unwinding

DEFAULT_BYTES: Final = 256 << 20
DEFAULT_SEED: Final = 1
LAB_NAME: Final = "demo"
_OUT: Final = Path("out")
_Item = TypeVar("_Item")


class Choice(click.ParamType[tuple[Any, ...]]):
    """Several of a table's keys, separated by commas; the result is in the table's order."""

    name = "keys"

    def __init__(self, table: Mapping[str, _Item]) -> None:
        self._table = table

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the requested items; click reports a key that is not in the table."""
        if not isinstance(value, str):
            return value
        wanted = value.split(",")
        for key in wanted:
            if key not in self._table:
                self.fail(f"{key!r} is none of {', '.join(self._table)}", param, ctx)
        return tuple(item for key, item in self._table.items() if key in wanted)


@click.command()
@click.option("--file", type=click.Path(path_type=Path), help="Send this file instead of random bytes.")
@click.option(
    "--size",
    default=DEFAULT_BYTES,
    show_default=True,
    type=click.IntRange(min=0),
    metavar="BYTES",
    help="Size of the random file.",
)
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(min=1), help="Repeat all, report medians.")
@click.option(
    "--only",
    "chosen_conditions",
    type=Choice(conditions.BY_KEY),
    default=conditions.CONDITIONS,
    metavar="A,B",
    help=f"Conditions, out of {','.join(conditions.BY_KEY)}. Default: all.",
)
@click.option(
    "--protocols",
    "chosen_contestants",
    type=Choice(contestants.BY_KEY),
    default=contestants.CONTESTANTS,
    metavar="A,B",
    help=f"Protocols, out of {','.join(contestants.BY_KEY)}. Default: all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout, all else on stderr.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    metavar="PNG",
    help="Measure nothing: draw out/report.json's progress into this file.",
)
def main(
    *,
    file: Path | None,
    size: int,
    rounds: int,
    chosen_conditions: tuple[conditions.Condition, ...],
    chosen_contestants: tuple[contestants.Contestant, ...],
    as_json: bool,
    picture: Path | None,
) -> None:
    """Send one file over SRD and over kernel TCP through the same lossy four-path fabric, and compare."""
    console = Console(stderr=as_json, highlight=False)
    if picture is not None:
        report.write_bytes(plots.picture_png(report.read(_OUT / "report.json")), picture)
        console.print(f"wrote {picture}")
        return
    experiment = Experiment(
        contestants=chosen_contestants, conditions=chosen_conditions, rounds=rounds, bound_s=TRANSFER_BOUND_S
    )
    result = compare(experiment, file=file, byte_count=size, lab_name=LAB_NAME, console=console)
    show(result, console=console)
    report.write(result, _OUT / "report.json")
    report.write_bytes(page.render(result).encode(), _OUT / "report.html")
    console.print(f"wrote {_OUT / 'report.html'} and {_OUT / 'report.json'}")
    if as_json:
        print(json.dumps(result))
    if contestants.BY_KEY[SRD] in chosen_contestants and not report.all_srd_verified(result):
        raise CompareError("SRD did not transfer every file with verification; see above")


def compare(
    experiment: Experiment, *, file: Path | None, byte_count: int, lab_name: str, console: Console
) -> report.Report:
    """Build the reference fabric, run `experiment` on it, and remove it; return the report.

    Raises CompareError or LabError with one line for the user.
    """
    started_at, began = dt.datetime.now(tz=dt.UTC), time.monotonic()
    topology = reference(name=lab_name)
    with contextlib.ExitStack() as stack:
        with console.status("preparing the file and the fabric"):
            payload = stack.enter_context(prepared(name=lab_name, file=file, byte_count=byte_count, seed=DEFAULT_SEED))
            lab = stack.enter_context(Lab.up(topology))
        fabric = Fabric(lab)
        taking_part, unavailable = able(experiment.contestants, fabric=fabric)
        if SRD in unavailable or not taking_part:
            raise CompareError("; ".join(unavailable.values()))
        console.print(f"fabric: [bold]{fabric.kind}[/bold] ({lab.reason})")
        for key, reason in unavailable.items():
            console.print(f"without {contestants.BY_KEY[key].label}: {reason}")
        observer = Screen(console, byte_count=payload.byte_count, rounds=experiment.rounds)
        with contextlib.closing(observer):
            results = experiment.among(taking_part).run(fabric=fabric, payload=payload, observer=observer)
        about = _about(topology, payload, seed=None if file else DEFAULT_SEED)
        return report.build(
            results,
            fabric=fabric.kind,
            fabric_reason=lab.reason,
            capacity_bps=fabric.capacity_bps,
            rounds=experiment.rounds,
            bound_s=experiment.bound_s,
            unavailable=unavailable,
            started_at=started_at.isoformat(timespec="seconds"),
            took_s=round(time.monotonic() - began, 1),
            **about,
        )


def show(result: report.Report, *, console: Console) -> None:
    """Print the table and its remarks."""
    rounds = result["rounds"]
    console.print(
        f"\n[bold]{result['file']['bytes'] / 2**20:g} MiB over {len(result['spines'])} paths[/bold], "
        f"{'one round' if rounds == 1 else f'medians of {rounds} rounds'}"
    )
    console.print(table(result, width=console.width))
    for line in (*headlines(result), *loads(result), *remarks(result), *checks(result)):
        console.print(f"  {line}")
    console.print()


def _about(topology: Topology, payload: Payload, *, seed: int | None) -> dict[str, Any]:
    """Return the report's description of the set-up."""
    shape = next(link.shape_ab for link in topology.links if link.shape_ab is not None)
    return {
        "spines": list(topology.spines),
        "mtu": topology.mtu,
        "link": f"{shape.rate_bps / 1e6:g} Mbit/s and {shape.delay_us / 1e3:g} ms each way, "
        f"at most {shape.limit_packets} packets held",
        "tmpfs": str(TMPFS),
        "srd_paths": contestants.PATH_COUNT,
        "condition_titles": {condition.key: condition.title for condition in conditions.CONDITIONS},
        "file": {"name": payload.source.name, "bytes": payload.byte_count, "sha256": payload.sha256, "seed": seed},
        "environment": environment(),
    }


def run() -> int:
    """Run the command line and return its exit status."""
    try:
        with unwinding():
            main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (CompareError, LabError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0
