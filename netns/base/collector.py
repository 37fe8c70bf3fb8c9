"""Python's garbage collector in a daemon."""

from __future__ import annotations

import gc


def tune_collector() -> None:
    """Exclude existing objects, which live as long as the process, from garbage collection, and collect less often.

    Packets form no reference cycles, so reference counts free them, and collections would only cost time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
