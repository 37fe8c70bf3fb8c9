"""Changes of a shape that overlap in time, each of which can be taken back without the others.

A change sets some properties. A `ChangedShape` keeps them in the order in which they began, on the shape below them,
and each property has the value of the newest change that sets it. A change that is over is taken out from wherever it
lies: what others have set stays, and what was over before does not come back. A change without an end stays; it becomes
part of the shape below once no older change has an end.

A lab (netns/lab/lab.py) and the virtual fabric (netns/backends/virtual) keep one for each direction of a link.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from netns.netem.shape import Shape, changed_fields, revived_fields


@dataclass(frozen=True, slots=True)
class Change:
    """Properties that are set together."""

    fields: Mapping[str, Any]
    """Those of a Shape, by name."""

    key: str | None = None
    """By which it is taken back; None: it has no end."""

    @classmethod
    def parse(cls, mapping: Mapping[str, Any], *, base: Path = Path(), key: str | None = None) -> Change:
        """Return a change in tc's notation; `base` is the directory for relative names. Raises ShapeError."""
        return cls(changed_fields(mapping, base=base), key)


@dataclass(frozen=True, slots=True)
class ChangedShape:
    """A shape with changes of which at least one has an end."""

    below: Shape
    changes: tuple[Change, ...]
    """From the oldest to the newest."""

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON; `shape_from_dict` is the inverse."""
        return asdict(self)


AnyShape = Shape | ChangedShape


def shape_from_dict(values: Mapping[str, Any]) -> AnyShape:
    """Invert `Shape.to_dict` and `ChangedShape.to_dict`. Raises ShapeError, KeyError or TypeError."""
    if "below" not in values:
        return Shape.from_dict(values)
    changes = (Change(revived_fields(each["fields"]), each["key"]) for each in values["changes"])
    return ChangedShape(Shape.from_dict(values["below"]), tuple(changes))


def effective(shape: AnyShape) -> Shape:
    """Return what a link with this shape does. Raises ShapeError if no link can do that."""
    below, changes = _parts(shape)
    for change in changes:
        below = below.with_fields(change.fields)
    return below


def with_change(shape: AnyShape, change: Change) -> AnyShape:
    """Return a shape with a change that begins. Raises ShapeError if no link can do that."""
    below, changes = _parts(shape)
    return _simplified(below, (*changes, change))


def without_change(shape: AnyShape, key: str) -> AnyShape:
    """Return a shape without a change that is over, if it has it. Raises ShapeError if no link can do that."""
    below, changes = _parts(shape)
    return _simplified(below, (change for change in changes if change.key != key))


def _parts(shape: AnyShape) -> tuple[Shape, tuple[Change, ...]]:
    return (shape, ()) if isinstance(shape, Shape) else (shape.below, shape.changes)


def _simplified(below: Shape, changes: Iterable[Change]) -> AnyShape:
    """Join those without an end that follow each other, and those that come first with the shape below."""
    kept: list[Change] = []
    for change in changes:
        joins = kept and kept[-1].key is None and change.key is None
        kept.append(Change({**kept.pop().fields, **change.fields}) if joins else change)
    if kept and kept[0].key is None:
        below = below.with_fields(kept.pop(0).fields)
    made = ChangedShape(below, tuple(kept)) if kept else below
    effective(made)  # raises what is wrong with it
    return made
