"""Fidelity: the relay compared with the kernel's netem, with the same settings and 20,000 packets through each.

The kernel backend runs under User-Mode Linux if the host's kernel has no netem, otherwise on the host, like the relay.
scripts/benches/fidelity/settings.py has the settings, measures.py the comparisons. A setting fails if one of its
comparisons fails: a test at level 0.01, divided by the number of tests (Bonferroni), or a deviation of more than 2 %.
`seed_failed`: packets whose loss under a seed is not that of the public test vector's generator, on the relay, and on
the kernel if it supports seeds (`kernel_seeds` 1; not before Linux 6.6). Where there is neither netem nor User-Mode
Linux, only the relay's seeds are measured.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from netns.backends.kernel.capabilities import missing_netem
from netns.backends.uml import KERNEL, missing_uml, run_uml
from netns.base.output import event_of
from netns.errors import BackendError
from netns.netem.queue import Netem
from netns.programs import ending_with_us
from scripts.benches.fidelity.measures import Comparison, compare
from scripts.benches.fidelity.settings import SEEDED, SETTINGS, Setting, write_tables
from scripts.benches.fidelity.trial import Recording
from scripts.benches.outcome import Round, Wanted
from scripts.harness.client_server import Event
from scripts.harness.errors import BenchError
from scripts.harness.needs import Need
from scripts.harness.steps import say, step
from scripts.harness.worker import worker

WANTED: Final = (Wanted("cases", ">=", 20), Wanted("cases_failed", "<=", 0), Wanted("seed_failed", "<=", 0))
ALPHA: Final = 0.01
NICENESS: Final = -10


def lacks_netem(_kernel: str = KERNEL) -> str | None:
    """Return why netem runs neither in this kernel nor under User-Mode Linux; None if it does."""
    try:
        missing = missing_netem() and missing_uml()
    except BackendError:  # without the privilege to find out, which is an error of the case
        return None
    return missing and f"{missing} (this kernel has no netem)"


NEEDS: Final = (Need(KERNEL, ("cases", "cases_failed"), lacks_netem),)


def measure(seed: int) -> Round:
    """Make one round: all settings on both backends; without netem the seeded one on the relay."""
    with tempfile.TemporaryDirectory(prefix="srd-fidelity-") as name:
        directory = Path(name)
        write_tables(directory)
        if lacks_netem():
            relay = record((SEEDED,), fabric="relay", directory=directory)
            return Round(seed, {"seed_failed": wrong_fates(relay[SEEDED.name], SEEDED, directory=directory)})
        settings = (*SETTINGS, SEEDED)
        kernel = record(settings, fabric="kernel", directory=directory)
        relay = record(settings, fabric="relay", directory=directory)
        return _round(seed, kernel=kernel, relay=relay, directory=directory)


def record(settings: Iterable[Setting], *, fabric: str, directory: Path) -> dict[str, Recording]:
    settings = tuple(settings)
    into = directory / fabric
    into.mkdir()
    step(f"{len(settings)} settings, {fabric}")
    run_trial(
        "scripts.benches.fidelity.trial",
        fabric=fabric,
        directory=str(into),
        settings=[setting.to_dict(directory) for setting in settings],
    )
    paths = {setting.name: into / f"{setting.name}.npz" for setting in settings}
    return {name: Recording.load(path) for name, path in paths.items() if path.exists()}


def run_trial(module: str, *, fabric: str, **orders: Any) -> Event:
    """Run the settings of a trial on their backend, on a lab of their own; return the last event, if there is one.

    Raises BenchError with the last output if it fails.
    """
    command = worker(module, "run_settings", name=f"trial-{os.getpid()}", fabric=fabric, **orders)
    with tempfile.TemporaryFile() as log, _raised_priority():
        try:
            if fabric == "kernel" and missing_netem() is not None:
                status = run_uml(command, stdout=log, stderr=log, repeatable=True)
            else:
                status = subprocess.run(ending_with_us(command), stdout=log, stderr=log, check=False).returncode
        except BackendError as error:
            raise BenchError(str(error)) from None
        log.seek(0)
        lines = log.read().decode(errors="replace").strip().splitlines()
    if status:
        raise BenchError(f"{fabric}: {lines[-1] if lines else 'the trial ended without output'}")
    return next((event for line in reversed(lines) if (event := event_of(line)) is not None), {})


@contextmanager
def _raised_priority() -> Iterator[None]:
    """Run with a higher priority, as the kernel's own work does, to measure the model and not the host."""
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError):  # without the privilege, the delays include more of the host's
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, usual)


def compared(setting: Setting, *, kernel: Recording, relay: Recording, directory: Path) -> list[Comparison]:
    shape = setting.shape(directory)
    return [
        comparison
        for measure in setting.measures
        for comparison in compare(measure, shape, kernel=kernel, relay=relay, length_bytes=setting.length_bytes)
    ]


def wrong_fates(recording: Recording, setting: Setting, *, directory: Path) -> int:
    """Return the number of packets whose loss differs from that of the setting's seed."""
    netem: Netem[int] = Netem(setting.shape(directory), seed=0)
    numbers = range(len(recording.entered_at_ns))
    wanted = [netem.enqueue(0, packet=number, length_bytes=setting.length_bytes) is not None for number in numbers]
    arrived = np.bincount(recording.number, minlength=len(wanted)) > 0
    return int((arrived != np.array(wanted)).sum())


def _round(seed: int, *, kernel: dict[str, Recording], relay: dict[str, Recording], directory: Path) -> Round:
    found = {
        setting.name: compared(setting, kernel=kernel[setting.name], relay=relay[setting.name], directory=directory)
        for setting in SETTINGS
    }
    everything = [comparison for comparisons in found.values() for comparison in comparisons]
    p_values = [comparison.p_value for comparison in everything if comparison.p_value is not None]
    alpha = ALPHA / len(p_values)
    failed = [name for name, comparisons in found.items() if any(each.failed(alpha=alpha) for each in comparisons)]
    for name in failed:
        for each in found[name]:
            if each.failed(alpha=alpha):
                say(f"fidelity: {name}: {each}")
    seeds = SEEDED.name in kernel
    wrong = wrong_fates(relay[SEEDED.name], SEEDED, directory=directory)
    if seeds:
        wrong += wrong_fates(kernel[SEEDED.name], SEEDED, directory=directory)
    ours: dict[str, float] = {
        "cases": len(found),
        "cases_failed": len(failed),
        "seed_failed": wrong,
        "kernel_seeds": int(seeds),
        "tests": len(p_values),
        "least_p_value": min(p_values),
        "least_p_value_wanted": alpha,
        "worst_deviation_fraction": max(each.deviation or 0.0 for each in everything),
    }
    netem: dict[str, float] = {}
    for name, comparisons in found.items():
        for each in comparisons:
            ours[f"{name}.{each.measure}"], netem[f"{name}.{each.measure}"] = each.relay, each.kernel
    return Round(seed, ours, {"netem": netem})
