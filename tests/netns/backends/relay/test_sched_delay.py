from __future__ import annotations

from contextlib import closing
from pathlib import Path

from netns.backends.relay.relay import SchedDelay


def test_waited_ns__is_the_second_number(tmp_path: Path) -> None:
    account = tmp_path / "schedstat"
    account.write_text("3845469 1234 2\n")
    with closing(SchedDelay(account)) as run_queue:
        assert run_queue.waited_ns() == 1234
        account.write_text("3845469 5678 2\n")
        assert run_queue.waited_ns() == 5678


def test_waited_ns__of_a_kernel_without_accounts(tmp_path: Path) -> None:
    with closing(SchedDelay(tmp_path / "nothing")) as run_queue:
        assert run_queue.waited_ns() == 0


def test_waited_ns__of_this_process_never_goes_back() -> None:
    with closing(SchedDelay()) as run_queue:
        assert 0 <= run_queue.waited_ns() <= run_queue.waited_ns()
