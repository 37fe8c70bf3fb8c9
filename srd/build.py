"""Whether the datapath runs compiled (see setup.py): figures of the one mean nothing beside those of the other."""

from __future__ import annotations

from typing import Final

from srd.proto import peer

BUILD: Final = "interpreted" if str(peer.__file__).endswith(".py") else "compiled"
"""In one word, for `srd --version` and reports."""
