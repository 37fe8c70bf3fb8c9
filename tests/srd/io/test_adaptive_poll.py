"""srd.io.adaptive_poll: staying awake between messages that follow closely, where nobody else wants the processor."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from srd.io import adaptive_poll
from srd.io.adaptive_poll import SUPPRESS_S, YIELD_S, AdaptivePoller

AWAKE_S = 0.0003


class Loop:
    """An event loop of which each turn is asked for."""

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._due.append(callback)

    def turn(self) -> bool:
        """Run what is due; return whether something was: else a loop would have gone to sleep."""
        due, self._due = self._due, []
        for callback in due:
            callback()
        return bool(due)


class Host:
    """The clock, and the kernel's counters of this thread."""

    RUSAGE_THREAD = 1

    def __init__(self) -> None:
        self.now = 100.0
        self.ru_nivcsw = 0

    def monotonic(self) -> float:
        return self.now

    def getrusage(self, _who: int) -> Host:
        return self


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host()
    monkeypatch.setattr(adaptive_poll, "time", host)
    monkeypatch.setattr(adaptive_poll, "resource", host)
    return host


pytestmark = pytest.mark.sources


def test_keep__the_loop_is_awake_for_so_long_and_no_longer(host: Host) -> None:
    loop = Loop()
    one = AdaptivePoller(loop, window_s=AWAKE_S)  # type: ignore[arg-type]  # what is used of it
    assert not loop.turn()
    one.extend(host.now)
    assert all(loop.turn() for _ in range(5))
    host.now += AWAKE_S / 2
    one.extend(host.now)
    host.now += AWAKE_S * 0.9
    awake = []
    for _ in range(2):
        assert loop.turn(), "longer, after another message"
        awake.append(one.active)
        host.now += AWAKE_S
    assert awake == [True, False]
    assert not loop.turn()


@pytest.mark.parametrize("stream", [True, False])
def test_keep__not_until_all_has_been_calm_for_a_while(host: Host, stream: bool) -> None:  # noqa: FBT001 - a case
    loop = Loop()
    one = AdaptivePoller(loop, window_s=AWAKE_S)  # type: ignore[arg-type]  # what is used of it
    if stream:
        one.suppress(host.now)
    else:
        host.ru_nivcsw += 1
    one.extend(host.now)
    calm_s = SUPPRESS_S if stream else YIELD_S
    host.now += calm_s * 0.9
    one.extend(host.now)
    assert not loop.turn()
    host.now += calm_s * 0.2
    one.extend(host.now)
    assert loop.turn()


def test_end__lets_it_sleep_at_once(host: Host) -> None:
    loop = Loop()
    one = AdaptivePoller(loop, window_s=AWAKE_S)  # type: ignore[arg-type]  # what is used of it
    one.extend(host.now)
    one.end()
    loop.turn()
    assert not one.active
    assert not loop.turn()


def test_keep__what_else_happens_makes_calm_no_sooner(host: Host) -> None:
    loop = Loop()
    one = AdaptivePoller(loop, window_s=AWAKE_S)  # type: ignore[arg-type]  # what is used of it
    one.suppress(host.now)
    host.ru_nivcsw += 1
    one.extend(host.now)
    host.now += SUPPRESS_S * 0.9
    one.extend(host.now)
    assert not loop.turn()
