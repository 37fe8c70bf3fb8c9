"""Changes of a shape that overlap in time, each of which can be taken back without the others.

A change sets some properties. A `ChangedShape` keeps them in the order in which they began, on the shape below them,
and each property has the value of the newest change that sets it. A change that is over is taken out from wherever it
lies: what others have set stays, and what was over before does not come back. A change without an end stays; it becomes
part of the shape below once no older change has an end.

A lab (netns/lab/lab.py) and the virtual fabric (netns/backends/virtual) keep one for each direction of a link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, Self

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

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON; `from_dict` is the inverse."""
        fields = {name: asdict(value) if is_dataclass(value) else value for name, value in self.fields.items()}  # type: ignore[arg-type]  # an instance
        return {"key": self.key, "fields": fields}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Change:
        """Invert `to_dict`. Raises ShapeError."""
        return cls(revived_fields(values["fields"]), values["key"])


@dataclass(frozen=True, slots=True)
class ChangedShape:
    """A shape with changes of which at least one has an end."""

    below: Shape
    changes: tuple[Change, ...]
    """From the oldest to the newest."""

    @classmethod
    def of(cls, shape: Shape | Self) -> Self:
        """Return a shape as one that may have changes."""
        return cls(shape, ()) if isinstance(shape, Shape) else shape

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON; `shape_from_dict` is the inverse."""
        return {"below": self.below.to_dict(), "changes": [change.to_dict() for change in self.changes]}

    @property
    def effective(self) -> Shape:
        """What the link does. Raises ShapeError if no link can do that."""
        shape = self.below
        for change in self.changes:
            shape = shape.with_fields(change.fields)
        return shape

    def simplified(self) -> Shape | Self:
        """Return the same with as few changes as possible; as a plain shape if none of them has an end."""
        kept: list[Change] = []
        for change in self.changes:
            if kept and kept[-1].key is None and change.key is None:
                change = Change({**kept.pop().fields, **change.fields})  # noqa: PLW2901 - two without an end are one
            kept.append(change)
        below = self.below
        if kept and kept[0].key is None:
            below = below.with_fields(kept.pop(0).fields)
        return type(self)(below, tuple(kept)) if kept else below


AnyShape = Shape | ChangedShape


def shape_from_dict(values: Mapping[str, Any]) -> AnyShape:
    """Invert `Shape.to_dict` and `ChangedShape.to_dict`. Raises ShapeError, KeyError or TypeError."""
    if "below" not in values:
        return Shape.from_dict(values)
    return ChangedShape(Shape.from_dict(values["below"]), tuple(map(Change.from_dict, values["changes"])))


def effective(shape: AnyShape) -> Shape:
    """Return what a link with this shape does. Raises ShapeError if no link can do that."""
    return ChangedShape.of(shape).effective


def with_change(shape: AnyShape, change: Change) -> AnyShape:
    """Return a shape with a change that begins. Raises ShapeError if no link can do that."""
    now = ChangedShape.of(shape)
    return _checked(ChangedShape(now.below, (*now.changes, change)))


def without_change(shape: AnyShape, key: str) -> AnyShape:
    """Return a shape without a change that is over, if it has it. Raises ShapeError if no link can do that."""
    now = ChangedShape.of(shape)
    return _checked(ChangedShape(now.below, tuple(change for change in now.changes if change.key != key)))


def _checked(shape: ChangedShape) -> AnyShape:
    _ = shape.effective
    return shape.simplified()
