from __future__ import annotations

import platform

from scripts.harness import environment


def test_environment__describes_this_machine() -> None:
    found = environment.environment()
    assert found["kernel"] == platform.release()
    assert all(found.values())
