"""srd.cli.options: a cancellation that is not a signal's."""

from __future__ import annotations

import asyncio

import pytest

from srd.cli.options import run


def test_run__a_cancellation_without_a_signal_is_passed_on() -> None:
    async def main() -> int:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(main())
