"""The result of a scenario."""

from __future__ import annotations

from dataclasses import dataclass, field

from scripts.benches.torture.plans import TortureScenario


@dataclass(slots=True)
class TortureResult:
    scenario: TortureScenario
    wrong: list[str] = field(default_factory=list)
    """Wrong bytes."""
    hangs: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    disagreements: list[str] = field(default_factory=list)
    """Contradictions between the journals of both ends."""
    leaks: list[str] = field(default_factory=list)
    leaked_bytes: int = 0
    leaked_descriptors: int = 0
    requests: int = 0
    posted_bytes: int = 0
    """Bytes of messages and files; all received bytes are compared."""

    @property
    def faults(self) -> list[tuple[str, str]]:
        kinds = (
            ("wrong bytes", self.wrong),
            ("disagreement", self.disagreements),
            ("hang", self.hangs),
            ("traceback", self.tracebacks),
            ("leak", self.leaks),
        )
        return [(kind, fault) for kind, found in kinds for fault in found]
