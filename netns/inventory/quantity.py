"""Kubernetes' quantities ("500m", "1Gi", "1e3") as integers, as schedulers count.

Source: k8s.io/apimachinery, pkg/api/resource. `cpu` is counted in thousandths of a core, all else in whole units;
fractions of a unit are rounded up.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from netns.errors import QuantityError

_QUANTITY: Final = re.compile(r"([+-]?(?:\d{1,19}(?:\.\d{0,9})?|\.\d{1,9}))([A-Za-z]{0,2}|[eE][+-]?\d{1,2})")
_SUFFIXES: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_DECIMAL: Final = {suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate(_SUFFIXES, -3)}
_BINARY: Final = {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)}
_SCALE: Final[Mapping[str, Decimal]] = {**_DECIMAL, **_BINARY}


def parse_quantity(text: str | float, *, resource: str) -> int:
    """Return the amount of `resource` in `text`, rounded up; QuantityError if it is no quantity, or negative."""
    match = None if isinstance(text, bool) else _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise QuantityError(f"{resource}: {reprlib.repr(text)} is no quantity (for example 2, 500m, 16Gi)")
    number, suffix = Decimal(match[1]), match[2]
    if suffix in _SCALE:
        number *= _SCALE[suffix]
    elif suffix[:1] in ("e", "E") and len(suffix) > 1:
        number = number.scaleb(int(suffix[1:]))
    else:
        raise QuantityError(f"{resource}: {text!r} ends in {suffix!r}; use one of {', '.join(filter(None, _SCALE))}")
    if number < 0:
        raise QuantityError(f"{resource}: {text!r} is negative")
    if resource == "cpu":
        number *= 1000
    return int(number.to_integral_value(ROUND_CEILING))


def _parsed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    try:
        return {name: parse_quantity(amount, resource=str(name)) for name, amount in value.items()}
    except QuantityError as error:
        raise ValueError(str(error)) from None


Quantities = Annotated[dict[str, int], BeforeValidator(_parsed)]
"""A field of a document: quantities by resource."""
