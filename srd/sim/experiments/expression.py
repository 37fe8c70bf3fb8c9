"""Figures that are made of others: `min(goodput_mbps_a, goodput_mbps_b) / 2`.

Numbers, names of figures, + - * /, brackets, min, max and abs; `<=` and `>=` are 1 where they hold, and 0 elsewhere.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from srd.sim.experiments.errors import ExperimentError

_NAME: Final = re.compile(r"(?<![\w.])[A-Za-z_][\w.]*")
"""A figure's name ends in that of its run, which may have a point, as no name of Python's may: `loss_0.1pct`."""
_FUNCTIONS: Final[Mapping[str, Callable[..., float]]] = {"min": min, "max": max, "abs": abs}
_MADE_OF: Final = "numbers, names of figures, + - * / <= >=, min, max and abs"
_OPERATORS: Final[Mapping[type[ast.AST], Callable[[Any, Any], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.LtE: lambda left, right: int(left <= right),
    ast.GtE: lambda left, right: int(left >= right),
}


class Expression:
    """One of them."""

    def __init__(self, text: str) -> None:
        """Raises ExperimentError if it is none."""
        self.text = text
        self._names = tuple(name for name in dict.fromkeys(_NAME.findall(text)) if name not in _FUNCTIONS)
        """In the tree the n-th one is `_n`."""
        self._wrong = ExperimentError(f"{text!r} is no expression; write it with {_MADE_OF}")
        try:
            self._tree = ast.parse(_NAME.sub(self._numbered, text).strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise self._wrong from None
        with suppress(ZeroDivisionError):
            self._value(self._tree, {f"_{number}": 1.0 for number in range(len(self._names))})

    def _numbered(self, found: re.Match[str]) -> str:
        return found[0] if found[0] in _FUNCTIONS else f"_{self._names.index(found[0])}"

    def value(self, figures: Mapping[str, float]) -> float:
        """Return its value. Raises ExperimentError if one of its figures is missing, or it divides by 0."""
        if lacking := [name for name in self._names if name not in figures]:
            raise ExperimentError(f"{lacking[0]} is no figure; there are {', '.join(figures)}")
        try:
            return self._value(self._tree, {f"_{number}": figures[name] for number, name in enumerate(self._names)})
        except ZeroDivisionError:
            raise ExperimentError(f"{self.text}: divides by 0") from None

    def _value(self, node: ast.expr, values: Mapping[str, float]) -> float:
        match node:
            case ast.Constant(value=int() | float() as value):
                return value
            case ast.Name(id=name) if name in values:
                return values[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._value(operand, values)
            case ast.BinOp(left=left, op=kind, right=right) | ast.Compare(left=left, ops=[kind], comparators=[right]):
                if operation := _OPERATORS.get(type(kind)):
                    return operation(self._value(left, values), self._value(right, values))
            case ast.Call(func=ast.Name(id=name), args=[_, *_] as arguments, keywords=[]) if name in _FUNCTIONS:
                with suppress(TypeError):  # abs has one argument; min and max have two, or more
                    return _FUNCTIONS[name](*(self._value(each, values) for each in arguments))
        raise self._wrong
