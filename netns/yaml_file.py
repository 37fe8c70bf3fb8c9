"""YAML files that hold one mapping: read with a limit, keys not given twice, a mistake as one line.

A key given twice is a mistake that PyYAML alone would not notice.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from netns.errors import LabError

MAX_FILE_BYTES: Final = 4 << 20

Place = Sequence[int | str]


def load_mapping(path: Path, *, error: type[LabError], wanted: str) -> dict[Hashable, Any]:
    """The mapping in `path`. Raises `error` without the file's name; `wanted` says what a mapping should have held."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as failure:
        raise error(failure.strerror or str(failure)) from None
    if len(content) > MAX_FILE_BYTES:
        raise error(f"larger than {MAX_FILE_BYTES >> 20} MiB; this is no such file")
    try:
        document = yaml.load(content, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except _GivenTwice as twice:
        raise error(str(twice)) from None
    except yaml.MarkedYAMLError as mistake:
        line = f"line {mistake.problem_mark.line + 1}: " if mistake.problem_mark else ""
        raise error(f"{line}not YAML: {mistake.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as mistake:
        raise error(f"not YAML: {str(mistake).splitlines()[0]}") from None
    if not isinstance(document, dict):
        raise error(wanted)
    return document


def first_mistake(error: ValidationError, *, known_keys: Callable[[Place], Sequence[str]]) -> str:
    """A validation error as one line: key, what is wrong with which value, what would be right.

    `known_keys` tells the keys of the part of the file at a place, for one that is not known there.
    """
    mistake = error.errors(include_url=False)[0]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in mistake["loc"]).lstrip(".")
    if mistake["type"] == "extra_forbidden":
        return f"{key}: no such key; the known ones here are {', '.join(known_keys(mistake['loc'][:-1]))}"
    if mistake["type"] == "missing":
        return f"{key}: missing"
    if mistake["type"] == "value_error":  # from a validator of ours, whose message says it all
        return f"{key}: {mistake['msg'].removeprefix('Value error, ')}".removeprefix(": ")
    reason = mistake["msg"].removeprefix("Input ").partition(" or instance of ")[0].replace("dictionary", "mapping")
    return f"{key}: {reprlib.repr(mistake['input'])} {reason}"


class _GivenTwice(Exception):  # noqa: N818 - never leaves this module
    """A key stands twice in one mapping."""


class _UniqueKeyLoader(yaml.SafeLoader):
    """A SafeLoader that refuses a key given twice in one mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if key_node.value in seen:
                    raise _GivenTwice(f"line {key_node.start_mark.line + 1}: {key_node.value} is given twice")
                seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)
