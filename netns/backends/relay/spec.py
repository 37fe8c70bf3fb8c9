"""The relay's specification: its TAPs and their shapes. The lab writes it as JSON; the relay reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netns.errors import BackendError, ShapeError
from netns.netem.shape import Shape


@dataclass(frozen=True, slots=True)
class TapSpec:
    """One end of a link: an existing TAP device in a named namespace."""

    netns: str
    ifname: str


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """One shaped link; frames from `a` to `b` pass `shape_ab`."""

    name: str
    a: TapSpec
    b: TapSpec
    shape_ab: Shape
    shape_ba: Shape
    seed_ab: int
    seed_ba: int


@dataclass(frozen=True, slots=True)
class RelaySpec:
    """All links of one relay process, and the path of its control socket."""

    lab: str
    control: Path
    links: tuple[LinkSpec, ...]


def load_spec(path: Path) -> RelaySpec:
    """Read a specification; BackendError with the file and the position in it if it is invalid."""
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise BackendError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BackendError(f"{path}: not JSON: {error}") from None
    try:
        return _relay(document)
    except (BackendError, ShapeError) as error:
        raise BackendError(f"{path}: {error}") from None


def _relay(document: object) -> RelaySpec:
    links = tuple(_link(item, at=f"links[{n}]") for n, item in enumerate(_get(document, "links", list, at="top")))
    names = [link.name for link in links]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise BackendError(f"links: {repeated[0]} is there twice")
    if not links:
        raise BackendError("links: there are none to relay")
    return RelaySpec(
        lab=_get(document, "lab", str, at="top"),
        control=Path(_get(document, "control", str, at="top")),
        links=links,
    )


def _link(document: object, *, at: str) -> LinkSpec:
    return LinkSpec(
        name=_get(document, "name", str, at=at),
        a=_tap(_get(document, "a", dict, at=at), at=f"{at}.a"),
        b=_tap(_get(document, "b", dict, at=at), at=f"{at}.b"),
        shape_ab=Shape.from_dict(_get(document, "shape_ab", dict, at=at)),
        shape_ba=Shape.from_dict(_get(document, "shape_ba", dict, at=at)),
        seed_ab=_get(document, "seed_ab", int, at=at),
        seed_ba=_get(document, "seed_ba", int, at=at),
    )


def _tap(document: object, *, at: str) -> TapSpec:
    return TapSpec(netns=_get(document, "netns", str, at=at), ifname=_get(document, "ifname", str, at=at))


def _get(document: object, key: str, kind: type, *, at: str) -> Any:
    """Return `document[key]`, which must be a `kind`."""
    value = document.get(key) if isinstance(document, dict) else None
    if not isinstance(value, kind):
        raise BackendError(f"{at}: {key!r} is missing or not a {kind.__name__}")
    return value
