"""The names of cards, virtual functions, VPCs and groups: they are also parts of files' names."""

from __future__ import annotations

import re
from typing import Final

NAME: Final = r"[a-z0-9_-]{1,32}"
"""A regular expression, for `fullmatch`."""
NAME_RULE: Final = "use 1 to 32 of a-z, 0-9, _ and -"


def is_name(text: str) -> bool:
    """Whether a text is such a name."""
    return re.fullmatch(NAME, text) is not None
