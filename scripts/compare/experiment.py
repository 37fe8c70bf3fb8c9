"""The comparison: every contestant in every condition, in several rounds, over the same fabric.

Rounds are the outer loop and contestants the inner one, so that other load on the machine affects all of them equally.
The fabric is restored after each transfer, whatever its outcome.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from scripts.compare.conditions import Condition
from scripts.compare.contestants import Contestant
from scripts.compare.errors import UnavailableError
from scripts.compare.fabric import Fabric
from scripts.compare.outcome import Outcome
from scripts.compare.payload import Payload
from scripts.compare.transfer import Observer, Transfer

Results = dict[str, dict[str, list[Outcome]]]


class ComparisonObserver(Observer, Protocol):
    """An observer of the whole comparison."""

    def condition_begins(self, condition: Condition, *, round_number: int) -> None:
        """Handle the start of a condition."""

    def transfer_begins(self, contestant: Contestant) -> None:
        """Handle the start of a transfer."""

    def transfer_ended(self, contestant: Contestant, outcome: Outcome) -> None:
        """Handle the outcome of a transfer."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A comparison."""

    contestants: tuple[Contestant, ...]
    """The contestants."""

    conditions: tuple[Condition, ...]
    """The conditions."""

    rounds: int
    """Number of rounds."""

    bound_s: float
    """Timeout of a transfer."""

    def among(self, contestants: tuple[Contestant, ...]) -> Experiment:
        """Return the same experiment with other contestants."""
        return replace(self, contestants=contestants)

    def run(self, *, fabric: Fabric, payload: Payload, observer: ComparisonObserver) -> Results:
        """Return the outcomes by condition and contestant, in the order of the rounds."""
        results: Results = {condition.key: defaultdict(list[Outcome]) for condition in self.conditions}
        for round_number in range(1, self.rounds + 1):
            for condition in self.conditions:
                observer.condition_begins(condition, round_number=round_number)
                for contestant in self.contestants:
                    observer.transfer_begins(contestant)
                    outcome = self._transfer(contestant, condition, fabric, payload, observer)
                    results[condition.key][contestant.key].append(outcome)
                    observer.transfer_ended(contestant, outcome)
        return results

    def _transfer(
        self,
        contestant: Contestant,
        condition: Condition,
        fabric: Fabric,
        payload: Payload,
        observer: ComparisonObserver,
    ) -> Outcome:
        fabric.set_loss(condition.spine_loss_percent)
        try:
            return Transfer(
                contestant,
                condition=condition,
                payload=payload,
                fabric=fabric,
                observer=observer,
                bound_s=self.bound_s,
            ).run()
        finally:
            fabric.restore()


def able(wanted: Sequence[Contestant], *, fabric: Fabric) -> tuple[tuple[Contestant, ...], dict[str, str]]:
    """Return those of `wanted` that this machine can run, and for the others the reason, by key."""
    reasons: dict[str, str] = {}
    for contestant in wanted:
        reason = contestant.why_unavailable()
        if reason is None and contestant.subflow_for_each_spine:
            try:
                fabric.add_subflow_endpoints()
            except UnavailableError as error:
                reason = str(error)
        if reason is not None:
            reasons[contestant.key] = reason
    return tuple(contestant for contestant in wanted if contestant.key not in reasons), reasons
