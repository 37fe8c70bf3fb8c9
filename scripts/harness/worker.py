"""`python -m scripts.harness.worker MODULE FUNCTION JSON`: a function of a bench as a process of its own.

JSON has its keyword arguments. A coroutine runs on the event loop of the daemons (uvloop). An error is one line.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from typing import Any

from netns.errors import LabError
from nitro_emu.errors import NitroError
from scripts.harness.client_server import python
from scripts.harness.errors import BenchError
from srd.cli.options import run
from srd.errors import SrdError


def worker(module: str, function: str, **arguments: Any) -> list[str]:
    """Return the command line that calls a function in a process of its own."""
    return python("scripts.harness.worker", module, function, json.dumps(arguments))


def main() -> None:
    module, function, arguments = sys.argv[1:]
    try:
        found = getattr(importlib.import_module(module), function)(**json.loads(arguments))
        if inspect.iscoroutine(found):
            sys.exit(run(found))
    except (BenchError, LabError, NitroError, SrdError, OSError) as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
