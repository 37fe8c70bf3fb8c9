"""Read YAML files that contain one mapping: with limits, without duplicate keys, a mistake as one line."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import yaml
from pydantic import ValidationError

from nitro_emu.errors import ConfigError

MAX_FILE_BYTES: Final = 1 << 20
"""Sixteen times what 256 virtual functions with every key take."""

MAX_NUMBER_LENGTH: Final = 100
"""Characters of a number: Python's integers have no limit, and long ones take quadratic time."""

Position = Sequence[int | str]


def mapping_of(content: bytes, *, wanted: str) -> dict[Hashable, Any]:
    """Return the mapping in a file's content. Raises ConfigError without the file's name; `wanted`: what it holds."""
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"larger than {MAX_FILE_BYTES >> 20} MiB; this is no such file")
    try:
        document = yaml.load(content, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as mistake:
        line = f"line {mistake.problem_mark.line + 1}: " if mistake.problem_mark else ""
        raise ConfigError(f"{line}not YAML: {mistake.problem}") from None
    except RecursionError:
        raise ConfigError("not YAML: nested too deeply") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as mistake:
        raise ConfigError(f"not YAML: {str(mistake).splitlines()[0]}") from None
    if not isinstance(document, dict):
        raise ConfigError(wanted)
    return document


def first_mistake(error: ValidationError, *, known_keys: Callable[[Position], Sequence[str]]) -> str:
    """Return a validation error as one line: key, what is wrong with which value, what would be right.

    `known_keys` returns the keys of the part of the file at a position, for an unknown key there.
    """
    mistake = error.errors(include_url=False)[0]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in mistake["loc"]).lstrip(".")
    if mistake["type"] == "extra_forbidden":
        return f"{key}: no such key; the known ones here are {', '.join(known_keys(mistake['loc'][:-1]))}"
    if mistake["type"] == "missing":
        return f"{key}: missing"
    if mistake["type"] == "value_error":  # from a validator of ours, whose message is complete
        return f"{key}: {mistake['msg'].removeprefix('Value error, ')}".removeprefix(": ")
    reason = mistake["msg"].removeprefix("Input ").partition(" or instance of ")[0]
    for python, yaml_word in (("dictionary", "mapping"), ("Tuple", "list"), ("tuple", "list")):
        reason = reason.replace(python, yaml_word)
    if mistake["type"] == "string_type" and isinstance(mistake["input"], bool | int | float):
        reason += "; put it in quotes"
    return f"{key}: {reprlib.repr(mistake['input'])} {reason}"


def _refused(problem: str, *, at: yaml.Node | yaml.Event) -> ConfigError:
    mark = at.start_mark
    return ConfigError(f"line {mark.line + 1 if mark else 0}: {problem}")


class _Loader(yaml.SafeLoader):
    """A SafeLoader that refuses aliases, which expand without end, and duplicate keys, which PyYAML does not report."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML's
        if isinstance(event, yaml.AliasEvent):
            raise _refused(f"the alias *{event.anchor} is not read here; write it out", at=event)
        return super().compose_node(parent, index)

    def construct_number(self, node: yaml.ScalarNode) -> int:
        """Return an int within the supported range."""
        if len(node.value) > MAX_NUMBER_LENGTH:
            raise _refused(f"{node.value[:20]}... is too long for a number; quote a text", at=node)
        return int(self.construct_yaml_int(node))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if key_node.value in seen:
                    raise _refused(f"{key_node.value} is given twice; keep one", at=key_node)
                seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_number)
