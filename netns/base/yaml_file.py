"""Read YAML files that contain one mapping: with limits, without duplicate keys, a mistake as one line.

The supported subset of YAML: mappings, lists, texts, numbers of 64 bits, booleans and null, with anchors, aliases and
merge keys. Tags are refused. A duplicate key is a mistake, which PyYAML alone would not detect.

Without quotes, null and booleans are those of YAML 1.2 (its core schema, section 10.3.2), and numbers those of JSON.
All else is a text. PyYAML by itself has the types of YAML 1.1: 22:30 is 1350, 0443 is 291, 1_0 is 10, no and on are
booleans, and a date may raise any exception.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

MAX_FILE_BYTES: Final = 4 << 20
"""A lab of the largest topology with a shape for each link has less than a quarter of it, a card's settings with 256
virtual functions and every key a sixtieth."""

MAX_VALUES: Final = 250_000
"""Keys, values, lists and mappings of a file, with aliases expanded: enough for all links of the largest topology
(topology.model.MAX_LINKS) without shapes. PyYAML takes about 1 kB for each, and a line of aliases can expand to any
number of them."""

MAX_NUMBER_LENGTH: Final = 100
"""Characters of a number; Python's integers have no limit, and long ones take quadratic time."""

M = TypeVar("M", bound=BaseModel)


class Strict(BaseModel):
    """A part of a file: without conversions, and without other keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Lenient(BaseModel):
    """A part of what other programs write: they may add keys, and null is as good as absent; else as `Strict`."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: each for key, each in value.items() if each is not None}


def load_mapping(path: Path, *, error: type[Exception], wanted: str) -> dict[Hashable, Any]:
    """Return the mapping in `path`. Raises `error` without the file's name; `wanted` describes its contents."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as failure:
        raise error(failure.strerror or str(failure)) from None
    return mapping_of(content, error=error, wanted=wanted)


def mapping_of(content: bytes, *, error: type[Exception], wanted: str) -> dict[Hashable, Any]:
    """Return the mapping in a file's content. Raises as `load_mapping` does."""
    if len(content) > MAX_FILE_BYTES:
        raise error(f"larger than {MAX_FILE_BYTES >> 20} MiB; this is no such file")
    try:
        document = _document(content)
    except _Refused as refused:
        raise error(str(refused)) from None
    except yaml.MarkedYAMLError as mistake:
        line = f"line {mistake.problem_mark.line + 1}: " if mistake.problem_mark else ""
        raise error(f"{line}not YAML: {mistake.problem}") from None
    except RecursionError:
        raise error("not YAML: nested too deeply") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as mistake:
        raise error(f"not YAML: {str(mistake).splitlines()[0]}") from None
    if not isinstance(document, dict):
        raise error(wanted)
    return document


def validated(model: type[M], document: object, *, error: type[Exception], context: object = None) -> M:
    """Return a document as a model. Raises `error`: one line with the key, the value, and what would be right."""
    try:
        return model.model_validate(document, context=context)
    except ValidationError as mistakes:
        raise error(_first(mistakes, model=model)) from None


def _first(error: ValidationError, *, model: type[BaseModel]) -> str:
    mistake = error.errors(include_url=False)[0]
    position, _ = _walk(model, mistake["loc"])
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in position).lstrip(".")
    if mistake["type"] == "extra_forbidden":
        return f"{key}: no such key; the known ones here are {', '.join(_keys(model, mistake['loc'][:-1]))}"
    if mistake["type"] == "missing":
        return f"{key}: missing"
    if mistake["type"] == "value_error":  # from a validator of ours, whose message is complete
        return f"{key}: {mistake['msg'].removeprefix('Value error, ')}".removeprefix(": ")
    if mistake["type"] == "union_tag_invalid":
        of = mistake["ctx"]
        return f"{key}.{of['discriminator'][1:-1]}: {of['tag']!r:.100} should be one of {of['expected_tags']}"
    reason = mistake["msg"].removeprefix("Input ").partition(" or instance of ")[0].partition(" or object ")[0]
    for python, yaml_word in (("dictionary", "mapping"), ("Tuple", "list"), ("tuple", "list")):
        reason = reason.replace(python, yaml_word)
    if mistake["type"] == "string_type" and isinstance(mistake["input"], bool | int | float):
        reason += "; put it in quotes"
    return f"{key}: {reprlib.repr(mistake['input'])} {reason}"


def _keys(model: type[BaseModel], position: Sequence[int | str]) -> list[str]:
    """Return the keys of the part of a document at a position."""
    _, found = _walk(model, position)
    models = [kind for kind in found if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return [field.alias or name for kind in models for name, field in kind.model_fields.items()]


def _walk(model: type[BaseModel], position: Sequence[int | str]) -> tuple[list[int | str], list[Any]]:
    """Return a position without the tags that pydantic puts into it at unions, and the types of what is there."""
    path: list[int | str] = []
    found: list[Any] = [model]
    for step in position:
        if len(found) > 1 and (tagged := [kind for kind in found if _is_tagged(kind, step)]):
            found = tagged
        else:
            path.append(step)
            found = [inner for kind in found for inner in _inner(kind, step)]
    return path, found


def _is_tagged(kind: Any, tag: int | str) -> bool:
    """Return whether a type is a model with a field that is always `tag`."""
    fields = kind.model_fields.values() if isinstance(kind, type) and issubclass(kind, BaseModel) else ()
    return any(get_args(field.annotation) == (tag,) for field in fields)


def _inner(kind: Any, step: int | str) -> Iterator[Any]:
    """Yield the types of what is at a key or an index of a value of that type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            if step in {name, field.alias}:
                yield from _alternatives(field.annotation)
    elif arguments := [each for each in get_args(kind) if each is not Ellipsis]:
        yield from _alternatives(arguments[-1])


def _alternatives(kind: Any) -> Iterator[Any]:
    if get_origin(kind) is Annotated:
        yield from _alternatives(get_args(kind)[0])
    elif get_origin(kind) in {Union, UnionType}:
        for each in get_args(kind):
            yield from _alternatives(each)
    else:
        yield kind


class _Refused(Exception):  # noqa: N818 - never leaves this module
    """The file is YAML, but contains something outside the supported subset."""


def _document(content: bytes) -> object:
    loader = _Loader(content)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _expanded_count(node, {})
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _expanded_count(node: yaml.Node, counts: dict[yaml.Node, int]) -> int:
    """Return the number of values in `node`, aliases expanded. Raises _Refused if too many, or without end."""
    if node in counts:
        if counts[node] == 0:  # still being counted
            raise _Refused(f"{_line(node)}: an alias stands within what it is an alias of; write it out")
        return counts[node]
    counts[node] = 0
    count = 1
    if isinstance(node, yaml.MappingNode):
        count += sum(_expanded_count(key, counts) + _expanded_count(value, counts) for key, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        count += sum(_expanded_count(item, counts) for item in node.value)
    if count > MAX_VALUES:
        raise _Refused(f"{_line(node)}: expands to {count} values with aliases; at most {MAX_VALUES}")
    counts[node] = count
    return count


def _line(node: yaml.Node | yaml.Event) -> str:
    mark = node.start_mark
    return f"line {mark.line + 1 if mark else 0}"


_IMPLICIT: Final = [
    (f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{pattern})\Z"))
    for kind, pattern in (
        ("null", "|~|null|Null|NULL"),
        ("bool", "true|True|TRUE|false|False|FALSE"),
        ("int", "-?(?:0|[1-9][0-9]*)"),
        ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"),
        ("merge", "<<"),
    )
]
"""The types that a plain scalar has by what it looks like; the first that fits."""


class _Loader(yaml.SafeLoader):
    """A SafeLoader for the subset in the module's docstring."""

    yaml_implicit_resolvers = {None: _IMPLICIT}  # noqa: RUF012 - PyYAML's own way; None: whatever it begins with

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self._values = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML's
        if (tag := getattr(event, "tag", None)) is not None:
            raise _Refused(f"{_line(event)}: the tag {tag} is not read here; leave it out, and quote a text")
        self._values += 1
        if self._values > MAX_VALUES:
            raise _Refused(f"{_line(event)}: more than {MAX_VALUES} values; this is no such file")
        return super().compose_node(parent, index)

    def construct_text(self, node: yaml.ScalarNode) -> str:
        """Return a text that is valid in paths, command lines and environments."""
        if _UNTYPABLE.search(node.value):
            raise _Refused(f"{_line(node)}: {node.value!r} holds a character that no text can have; leave it out")
        return str(node.value)

    def construct_number(self, node: yaml.ScalarNode) -> float:
        """Return an int or a float, within the supported range."""
        if len(node.value) > MAX_NUMBER_LENGTH:
            raise _Refused(f"{_line(node)}: {node.value[:20]}... is too long for a number; quote a text")
        if node.tag.endswith(":float"):
            return float(node.value)
        number = int(node.value)
        if not -(2**63) <= number < 2**64:
            raise _Refused(f"{_line(node)}: {node.value} is no number of 64 bits; give a smaller one, or quote a text")
        return number

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if key_node.value in seen:
                    raise _Refused(f"{_line(key_node)}: {key_node.value} is given twice; keep one")
                seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


_UNTYPABLE: Final = re.compile("[\0\ud800-\udfff]")
"""Characters that paths, command lines and environments cannot contain: NUL, and surrogates."""

for _kind, _construct in (
    ("int", _Loader.construct_number),
    ("float", _Loader.construct_number),
    ("str", _Loader.construct_text),
):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _construct)
