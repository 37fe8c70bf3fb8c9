"""srd.io.adaptive_poll: polling between closely spaced messages, while no other process needs the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from srd.io import adaptive_poll
from srd.io.adaptive_poll import SUPPRESS_S, YIELD_S, AdaptivePoller

AWAKE_S = 0.0003


class Loop:
    """An event loop that runs one turn for each call."""

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._due.append(callback)

    def turn(self) -> bool:
        """Run what is due; return whether anything was: otherwise a loop would sleep."""
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


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def one(loop: Loop) -> AdaptivePoller:
    return AdaptivePoller(loop)  # type: ignore[arg-type]  # what is used of it


pytestmark = pytest.mark.sources


def test_extend__polls_for_adaptive_poll_s(host: Host, loop: Loop, one: AdaptivePoller) -> None:
    assert not loop.turn()
    one.extend(host.now, window_s=AWAKE_S)
    assert all(loop.turn() for _ in range(5))
    host.now += AWAKE_S / 2
    one.extend(host.now, window_s=AWAKE_S)
    host.now += AWAKE_S * 0.9
    awake = []
    for _ in range(2):
        assert loop.turn(), "longer, after another message"
        awake.append(one.active)
        host.now += AWAKE_S
    assert awake == [True, False]
    assert not loop.turn()


@pytest.mark.parametrize("stream", [True, False])
def test_extend__not_soon_after_a_suppression(host: Host, loop: Loop, one: AdaptivePoller, *, stream: bool) -> None:
    if stream:
        one.suppress(host.now)
    else:
        host.ru_nivcsw += 1
    one.extend(host.now, window_s=AWAKE_S)
    pause_s = SUPPRESS_S if stream else YIELD_S
    host.now += pause_s * 0.9
    one.extend(host.now, window_s=AWAKE_S)
    assert not loop.turn()
    host.now += pause_s * 0.2
    one.extend(host.now, window_s=AWAKE_S)
    assert loop.turn()


def test_end__stops_polling_at_once(host: Host, loop: Loop, one: AdaptivePoller) -> None:
    one.extend(host.now, window_s=AWAKE_S)
    one.end()
    loop.turn()
    assert not one.active
    assert not loop.turn()


def test_extend__during_a_suppression_does_not_shorten_it(host: Host, loop: Loop, one: AdaptivePoller) -> None:
    one.suppress(host.now)
    host.ru_nivcsw += 1
    one.extend(host.now, window_s=AWAKE_S)
    host.now += SUPPRESS_S * 0.9
    one.extend(host.now, window_s=AWAKE_S)
    assert not loop.turn()


def test_extend__a_shorter_window_does_not_end_a_longer_one(host: Host, loop: Loop, one: AdaptivePoller) -> None:
    one.extend(host.now, window_s=AWAKE_S)
    one.extend(host.now, window_s=AWAKE_S / 10)
    host.now += AWAKE_S / 2
    assert loop.turn()
    assert one.active
