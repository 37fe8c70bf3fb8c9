"""The YAML files of cards and control planes: netns.yaml_file's, of a size of their own."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import netns.yaml_file
from nitro_emu.errors import ConfigError

MAX_FILE_BYTES: Final = 1 << 20
"""Sixteen times what 256 virtual functions with every key take."""


def mapping_of(content: bytes, *, wanted: str) -> dict[Hashable, Any]:
    """Return the mapping in a file's content. Raises ConfigError without the file's name; `wanted`: what it holds."""
    return netns.yaml_file.mapping_of(content, error=ConfigError, wanted=wanted, max_bytes=MAX_FILE_BYTES)
