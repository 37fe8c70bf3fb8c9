"""One training on a lab: its steps as they are done, and what happens to the fabric between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from netns.errors import RankError
from netns.faults.faults import fail
from netns.lab.lab import Lab
from netns.topology.model import reference
from scripts.harness.client_server import Event
from scripts.harness.congestion import set_algorithm
from scripts.harness.ranks import heard, ranks
from srd.compare.counters import Reading
from srd.perf.tcp_socket import CUBIC

LAB_NAME: Final = "training-demo"
HOSTS: Final = ("h1", "h2")


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    steps: int
    lossy_after: int
    """From then on one spine loses 1 %."""
    dead_after: int
    """From then on the link that has carried most carries nothing."""
    limit_s: float
    """A training that is not done by then is ended."""


@dataclass(slots=True)
class Training:
    """What came of one training. Times are in seconds from its first step."""

    backend: str
    ended_at: list[float] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    error: str = ""
    stopped_at: float = 0.0

    @property
    def longest_after_fault_s(self) -> float:
        """The longest step from the first fault on; of one that was stopped, until then."""
        since = self.faults[0][0] if self.faults else 0.0
        steps = [seconds for at, seconds in zip(self.ended_at, self.step_s, strict=True) if at >= since]
        unfinished = self.stopped_at - self.ended_at[-1] if self.error and self.ended_at else 0.0
        return max([*steps, unfinished], default=0.0)


def train(backend: str, plan: TrainingPlan, *, show: Callable[[str], None]) -> Training:
    """Train on a lab of its own, and play the faults. Raises LabError when the lab or the job cannot be had."""
    found = Training(backend)
    with Lab.up(reference(name=f"{LAB_NAME}-{backend}")) as lab:
        set_algorithm(lab, HOSTS, name=CUBIC)
        faults = _Faults(lab, plan, found, show)

        with ranks(lab, HOSTS, "scripts.harness.torch_rank", backend, "train", "--steps", str(plan.steps)) as job:
            try:
                job.wait(on_line=heard(faults.hear), timeout_s=plan.limit_s)
            except RankError as error:
                if not found.losses:
                    raise
                found.error, found.stopped_at = str(error), time.time() - faults.began_at
    return found


class _Faults:
    def __init__(self, lab: Lab, plan: TrainingPlan, found: Training, show: Callable[[str], None]) -> None:
        self._lab, self._plan, self._found, self._show = lab, plan, found, show
        self._before = Reading.take(lab)
        self.began_at = 0.0

    def hear(self, step: Event) -> None:
        if step["event"] != "step":
            return
        found = self._found
        self.began_at = self.began_at or step["at"] - step["seconds"]
        found.ended_at.append(step["at"] - self.began_at)
        found.step_s.append(step["seconds"])
        found.losses.append(step["loss"])
        if step["step"] == self._plan.lossy_after:
            self._lose()
        if step["step"] == self._plan.dead_after:
            self._kill()

    def _lose(self) -> None:
        spine = self._lab.topology.spines[0]
        for link in self._lab.topology.links_of[spine]:
            self._lab.change(link.name, {"loss": "1%"})
        self._note(f"{spine} loses 1 %")

    def _kill(self) -> None:
        link = Reading.take(self._lab).busiest_link(self._lab, since=self._before)
        fail(self._lab, link)
        self._note(f"{link}, which carried most, is dead")

    def _note(self, what: str) -> None:
        at = time.time() - self.began_at
        self._found.faults.append((at, what))
        self._show(f"  {at:5.1f} s  step {len(self._found.losses)}: {what}")
