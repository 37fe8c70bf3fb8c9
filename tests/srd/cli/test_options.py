"""srd.cli.options: signals."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from srd.cli.options import Interrupted, run


def test_run__returns_the_status() -> None:
    async def main() -> int:
        return 3

    assert run(main()) == 3


def test_run__raises_what_the_command_raises() -> None:
    async def main() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(main())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run__a_signal_cancels_and_the_command_cleans_up(number: signal.Signals) -> None:
    cleaned = []

    async def main() -> int:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(number)
        return 0

    with pytest.raises(Interrupted, match=f"stopped by {number.name}") as caught:
        run(main())
    assert cleaned == [number]
    assert caught.value.exit_code == 128 + number


def test_run__a_signal_ends_a_daemon_with_0() -> None:
    async def main() -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
        return 1

    assert run(main(), is_daemon=True) == 0


def test_run__a_command_may_handle_a_signal_as_its_end() -> None:
    async def main() -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 0
        return 1

    assert run(main()) == 0


def test_run__a_cancellation_without_a_signal_is_passed_on() -> None:
    async def main() -> int:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(main())
