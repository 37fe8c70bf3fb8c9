"""Whether the datapath is compiled (see setup.py); benchmarks of the two builds are not comparable."""

from __future__ import annotations

from typing import Final

from srd.proto import peer

BUILD: Final = "interpreted" if str(peer.__file__).endswith(".py") else "compiled"
"""The build, for `srd --version` and reports."""
