"""`nitro-volume` as processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.programs import run_to_end
from tests.srd.cli.processes import Process


@dataclass(frozen=True)
class Attached:
    name: str
    run_dir: Path
    process: Process

    @property
    def uri(self) -> str:
        return f"nbd+unix:///{self.name}?socket={self.run_dir / self.name}.sock"

    def detach(self) -> None:
        result = run_to_end(command("detach", self.name, "--run-dir", str(self.run_dir)))
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        assert self.process.wait() == 0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "nitro_emu.cli.volume", *arguments]


@contextmanager
def attached(run_dir: Path, *options: str, name: str = "vol-1") -> Iterator[Attached]:
    with Process(command("attach", name, "--run-dir", str(run_dir), "--json", *options)) as process:
        process.event("ready")
        yield Attached(name, run_dir, process)
