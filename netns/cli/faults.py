"""`srd-lab set`, `fail`, `repair`, `run-schedule`, `capture`: commands for a lab that is up."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import click

from netns.backends.choice import require_root
from netns.base.options import Duration, json_lines_option, json_option
from netns.base.output import emit, print_json
from netns.base.tables import count, print_result
from netns.cli.commands import LAB_OPTION, lab_named
from netns.cli.show import shape_text
from netns.errors import BackendError
from netns.faults.faults import active, fail, repair
from netns.faults.runner import ScheduleRunner
from netns.faults.schedule import MAX_SCHEDULE_S, ScheduledEvent, read_schedule
from netns.netem.tc_format import netem_arguments
from netns.netem.tc_parse import parse_assignments
from netns.observe.capture import capture
from netns.observe.pcapng import STDOUT
from netns.signals import STOPPING_SIGNALS, signals_raise

TIME = Duration(most_s=MAX_SCHEDULE_S)


@click.command("set")
@LAB_OPTION
@click.option(
    "--direction",
    type=click.Choice(["both", "ab", "ba"]),
    default="both",
    show_default=True,
    help="ab: from the first to the second node in LINK's name.",
)
@json_option
@click.argument("link")
@click.argument("changes", nargs=-1, required=True, metavar="NAME=VALUE...")
def set_command(
    *, name: str | None, direction: Literal["both", "ab", "ba"], as_json: bool, link: str, changes: tuple[str, ...]
) -> None:
    """Change a shaped link while it carries traffic; other properties stay unchanged.

    A limit that was derived from delay and rate follows them, until one is given.

    \b
      srd-lab set leaf1-spine1 delay=20ms loss=1%
      srd-lab set leaf1-spine1 --direction ab "loss=gemodel 1% 10%" rate=100mbit limit=50
    """  # noqa: D301 - \b is click's mark for "do not rewrap"
    require_root("srd-lab set")
    lab = lab_named(name)
    lab.change(link, parse_assignments(changes), direction=direction, base=Path.cwd())
    if as_json:
        shapes = lab.shapes(link)
        ab, ba = (None if each is None else " ".join(netem_arguments(each)) for each in shapes.values())
        print_json({"lab": lab.name, "link": link, "ab": ab, "ba": ba})
        return
    a, _, b = link.partition("-")
    for (sender, receiver), shape in zip(((a, b), (b, a)), lab.shapes(link).values(), strict=True):
        if shape is not None:
            click.echo(f"{sender} to {receiver}: {shape_text(' '.join(netem_arguments(shape)), shape.derived)}")


@click.command("fail")
@LAB_OPTION
@click.option("--at", "at_s", type=TIME, default=0.0, help="Start after this time, as 5s.")
@click.option("--for", "for_s", type=TIME, help="Repair it after this time, as 2s; default: never.")
@click.option("--carrier", is_flag=True, help="Clear the carrier, too: both ends detect it, and use other next hops.")
@json_option
@click.argument("target", metavar="LINK|NODE")
def fail_command(
    *, name: str | None, at_s: float, for_s: float | None, carrier: bool, as_json: bool, target: str
) -> None:
    """Let a link or a node drop everything, silently: carriers and routes do not change.

    With --carrier the neighbours see NO-CARRIER and use other next hops; other routers do not detect it.
    With --for the command runs until the repair; when interrupted, it repairs at once.
    """
    require_root("srd-lab fail")
    lab = lab_named(name)
    links = lab.topology.links_at(target)
    found = {"lab": lab.name, "failed": target, "links": [link.name for link in links], "for_s": for_s}
    if for_s is None:
        time.sleep(at_s)
        fail(lab, target, carrier=carrier)
        of_lab = "" if name is None else f" --lab {name}"
        text = f"{target} is dead ({count(links, 'link')}); repair it: srd-lab repair{of_lab} {target}"
        print_result(found, as_json=as_json, text=text)
        return
    with signals_raise():
        event = ScheduledEvent(at_us=at_s * 1e6, action="fail", name=target, for_us=for_s * 1e6, carrier=carrier)
        ScheduleRunner(lab, on_event=_silent if as_json else _report).run([event])
    if as_json:
        print_json(found)


@click.command("repair")
@LAB_OPTION
@click.option("--all", "everything", is_flag=True, help="End all failures.")
@json_option
@click.argument("target", metavar="LINK|NODE", required=False)
def repair_command(*, name: str | None, everything: bool, as_json: bool, target: str | None) -> None:
    """End the failures of a link or node that `fail` began."""
    require_root("srd-lab repair")
    if everything == (target is not None):
        raise click.UsageError("give LINK|NODE or --all, one of the two")
    lab = lab_named(name)
    if target is not None:
        lab.topology.links_at(target)
    failures = active(lab, target)
    if not failures and target is not None:
        dead = ", ".join(sorted({failure.name for failure in active(lab)})) or "nothing"
        raise BackendError(f"{target}: was not made to fail; dead now: {dead}")
    try:
        repair(lab, failures)
    finally:  # of several, some may not be
        left = {failure.key for failure in active(lab)}
        repaired = [failure.name for failure in failures if failure.key not in left]
        if as_json:
            print_json({"lab": lab.name, "repaired": repaired})
        else:
            for each in repaired:
                click.echo(f"{each} is repaired")


@click.command()
@LAB_OPTION
@json_lines_option
@click.argument("plan", metavar="FILE", type=click.Path(path_type=Path))
def run_schedule(*, name: str | None, as_json: bool, plan: Path) -> None:
    """Execute a schedule of failures and changes, in YAML; times are from its start.

    \b
      events:
        - {at: 5s, fail: spine1, for: 2s}      # a node or a link; without `for` it stays down
        - {at: 8s, set: leaf1-spine2, shape: {delay: 20ms}}     # as `srd-lab set`: other properties stay
        - {at: 9s, set: leaf1-spine2, direction: ab, shape: {loss: 5%}, for: 1s}
        - {at: 12s, repair: spine1}
        - {at: 14s, fail: leaf1-spine3, carrier: true, for: 1s}   # routers see it, and use other next hops

    An event with a `for` is undone after it, and only that event.
    """  # noqa: D301 - \b is click's mark for "do not rewrap"
    require_root("srd-lab run-schedule")
    lab = lab_named(name)
    events = read_schedule(plan, lab.topology)
    with signals_raise():
        ScheduleRunner(lab, on_event=_emit if as_json else _report).run(events)


@click.command("capture")
@LAB_OPTION
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    required=True,
    help="The pcapng file to write; -: standard output, as in: | tshark -r -",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier capture in that file.")
@click.option("--for", "for_s", type=TIME, help="Stop after this time, as 10s.")
@click.option("-c", "--packets", type=click.IntRange(min=1), help="Stop after so many packets.")
@json_option
@click.argument("link")
def capture_command(
    *,
    name: str | None,
    output: Path,
    overwrite: bool,
    for_s: float | None,
    packets: int | None,
    as_json: bool,
    link: str,
) -> None:
    """Capture the packets on a link, in both directions and in order of time, until Ctrl-C.

    With -o - they can be read while they arrive: srd-lab capture LINK -o - | tshark -r -
    """
    require_root("srd-lab capture")
    if as_json and output == STDOUT:
        raise click.UsageError("--json: prints on standard output, where the packets go; leave it out")
    with _stop_on_signal() as stop_requested:
        captured = capture(
            lab_named(name),
            link,
            path=output,
            overwrite=overwrite,
            seconds=for_s,
            packets=packets,
            stop=stop_requested.is_set,
            ready=lambda: click.echo(f"capturing {link} into {output}", err=True),
        )
    if as_json:
        print_json({"link": link, "file": str(output), "packets": captured.packets, "dropped": captured.dropped})
        return
    packets_in = "1 packet" if captured.packets == 1 else f"{captured.packets} packets"
    click.echo(f"{packets_in} in {output}, {captured.dropped} dropped by the recording", err=output == STDOUT)


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    """Yield an event that the first signal sets, so that the capture is completed properly."""
    stop_requested = threading.Event()
    previous = {number: signal.signal(number, lambda *_: stop_requested.set()) for number in STOPPING_SIGNALS}
    try:
        yield stop_requested
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _report(at_s: float, text: str) -> None:
    click.echo(f"{at_s:8.3f} s  {text}")


def _emit(at_s: float, text: str) -> None:
    emit("schedule", at_s=round(at_s, 3), text=text)


def _silent(_at_s: float, _text: str) -> None:
    """Say nothing: the document at the end does."""
