"""The result of a scenario."""

from __future__ import annotations

from dataclasses import dataclass, field

from scripts.benches.torture.plans import Scenario


@dataclass(slots=True)
class Result:
    """Everything that was wrong, and how much was done."""

    scenario: Scenario
    wrong: list[str] = field(default_factory=list)
    """Wrong bytes."""
    hangs: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Where both ends do not agree."""
    leaks: list[str] = field(default_factory=list)
    leaked_bytes: int = 0
    leaked_descriptors: int = 0
    requests: int = 0
    posted_bytes: int = 0
    """Of messages and files; all of what arrived was compared."""

    @property
    def faults(self) -> list[tuple[str, str]]:
        """(what kind, what) of everything."""
        kinds = (
            ("wrong bytes", self.wrong),
            ("disagreement", self.problems),
            ("hang", self.hangs),
            ("traceback", self.tracebacks),
            ("leak", self.leaks),
        )
        return [(kind, what) for kind, found in kinds for what in found]
