"""A collective that runs: what torch waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work as TorchWork

from srd.torch.group_error import GroupError


class Work(TorchWork):  # type: ignore[misc] # torch has no types here
    """Completed on the loop's thread, waited for on others.

    The torch Future that DDP wants is made when it is asked for. An exception set on a future made in Python crashes
    DDP's reducer; one that a `then` raises does not. So the base future always gets a value, and `then` unwraps it.
    """

    def __init__(self, results: Sequence[Any], *, after: Callable[[], None] | None = None) -> None:
        """`results`: the tensors that it fills; `after`: called when it has succeeded, before anybody learns of it."""
        super().__init__()
        self._results = list(results)
        self._after = after
        self._lock = threading.Lock()
        self._running = threading.Lock()  # held until it has ended
        self._running.acquire()
        self._ended = False
        self._error: BaseException | None = None
        self._future: Any = None
        self._source = -1

    # -- for the group ------------------------------------------------------------------------------------------------

    def end(self, error: BaseException | None, source: int = -1) -> None:
        """Note that it has ended; `source`: the rank that a receive from any got its tensor from."""
        self._source = source
        if error is None and self._after is not None:
            try:
                self._after()
            except RuntimeError as wrong:  # of torch
                error = wrong
        with self._lock:
            if self._ended:
                return
            self._ended, self._error = True, error
            future = self._future
        self._running.release()
        if future is not None:
            future.set_result(self._results)

    # -- torch's interface --------------------------------------------------------------------------------------------

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it has ended. Raises GroupError, or the error of torch that it ended with."""
        seconds = -1.0 if timeout is None or timeout <= timedelta() else timeout.total_seconds()
        if not self._running.acquire(timeout=seconds):
            raise GroupError(f"not finished within {seconds:g} s")
        self._running.release()
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """Wait."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it has ended."""
        return self._ended

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self._ended and self._error is None

    def exception(self) -> BaseException | None:
        """Return what it failed with."""
        return self._error

    def result(self) -> list[Any]:
        """Return the tensors."""
        return self._results

    def source_rank(self) -> int:
        """Return the rank that a receive got its tensor from."""
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Any:
        """Return a torch Future of the tensors."""
        with self._lock:
            if self._future is None:
                # Without its devices it refuses their tensors.
                gpus = {tensor.device for tensor in self._results if tensor.device.type == "cuda"}
                self._future = torch.futures.Future(devices=[*gpus])
                if self._ended:
                    self._future.set_result(self._results)
            future = self._future
        return future.then(self._unwrap)

    def _unwrap(self, future: Any) -> Any:
        if self._error is not None:
            raise self._error
        return future.value()
