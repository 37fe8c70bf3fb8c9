"""Parse shapes in the notation of `tc qdisc ... netem`: each property has a value of one or more arguments.

    delay: 10ms                     delay: 10ms 1ms 25%             TIME [JITTER [CORRELATION]]
    distribution: normal            uniform, normal, pareto, paretonormal, or the file of a table
    loss: 1%                        loss: random 1% 25%             PERCENT [CORRELATION]
    loss: gemodel 1% 10% 70% 0.1%                                   P [R [1-H [1-K]]]
    loss: state 1% 90% 5% 50% 0.5%                                  P13 [P31 [P32 [P23 [P14]]]]
    duplicate: 1% 25%               corrupt: 0.1% 10%               PERCENT [CORRELATION]
    reorder: 25% 50%                gap: 5                          the first needs a delay
    rate: 1mbit 20 53 5             RATE [OVERHEAD [CELLSIZE [CELLOVERHEAD]]], in bytes
    slot: 800us 1ms packets 10      slot: distribution normal 10ms 1ms bytes 10000
    limit: 1000        ecn: true        seed: 7        jitter: 1ms        trace: FILE        ce_threshold: 20us

Source: iproute2, tc/q_netem.c, netem_parse_opt(), with its defaults. All but the last three are tc's: `jitter` without
a `delay`, `trace`, which is a file of mahimahi (netns/netem/mahimahi.py), and `ce_threshold` (netns/netem/shape.py).

Raises ShapeError with property, value and remedy.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from netns.base.units import UnitError, parse_duration_us, parse_percent, parse_rate_bps
from netns.errors import ShapeError
from netns.netem.distributions import BUILTIN, table
from netns.netem.mahimahi import read_trace
from netns.netem.params import FourStates, GilbertElliott, Slot

MAX_DIGITS: Final = 20
"""Of a whole number: enough for 64 bits."""

Fields = dict[str, Any]
"""Fields of a Shape, by name."""


def parse_fields(mapping: Mapping[str, Any], *, base: Path) -> Fields:
    """Return the fields that `mapping` defines; `base` is the directory for relative file names."""
    if not isinstance(mapping, Mapping):
        raise ShapeError(f"{mapping!r} is not a shape: want keys out of {', '.join(KEYS)}")
    values: Fields = {}
    for key, value in mapping.items():
        if key not in KEYS:
            raise ShapeError(unknown(key))
        try:
            parsed = _parse_property(key, value, base=base)
        except (ShapeError, UnitError) as error:
            text = str(error)
            raise ShapeError(text if text.startswith(f"{key}: ") else f"{key}: {text}") from None
        for name in parsed.keys() & values.keys():
            raise ShapeError(f"{key}: {name.removesuffix('_us')} is given already; give it once")
        values |= parsed
    return values


def _parse_property(key: str, value: Any, *, base: Path) -> Fields:
    if key in _PLAIN:
        return {_PLAIN[key]: value}
    if key in _FILES:
        return {key: _FILES[key](_arguments(value, most=1)[0], base)}
    if key == "delay" and isinstance(value, str) and (words := value.split())[-2:-1] == ["distribution"]:  # as in tc
        return _delay(" ".join(words[:-2])) | {"distribution": _FILES["distribution"](words[-1], base)}
    return _KEYWORDS[key](value)


def unknown(key: object) -> str:
    """Return the error message for an unknown property."""
    near = difflib.get_close_matches(str(key), KEYS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the known ones are {', '.join(KEYS)}"
    return f"{key}: no such property of a link; {hint}"


def parse_assignments(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse `delay=10ms loss="gemodel 1% 10%"` of a command line to a mapping for `Shape.parse`."""
    found: dict[str, Any] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not value.strip():
            raise ShapeError(f"{argument}: want NAME=VALUE, as in delay=10ms; the names are {', '.join(KEYS)}")
        if key not in KEYS:
            raise ShapeError(unknown(key))
        if key in found:
            raise ShapeError(f"{key}: given twice")
        found[key] = _as_in_yaml(value) if key in _PLAIN else value
    return found


def _as_in_yaml(value: str) -> Any:
    """Convert a text to the integer or boolean that it is; return other texts unchanged."""
    booleans = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
    text = value.strip()
    if len(text) <= MAX_DIGITS and text.removeprefix("-").isdecimal():
        return int(text)
    return booleans.get(text.lower(), value)


def _arguments(value: Any, *, most: int, least: int = 1) -> list[str]:
    """Split a value into its arguments; a number is one argument."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ShapeError(f"{value!r} is not in tc's notation; give a number or a text, as in 10ms")
    arguments = str(value).split()
    if not least <= len(arguments) <= most:
        wanted = f"{least} to {most} arguments" if least < most else f"{most} argument{'s' if most > 1 else ''}"
        raise ShapeError(f"{value!r} has {len(arguments)} arguments; want {wanted}")
    return arguments


def _delay(value: Any) -> Fields:
    for argument in str(value).split():
        if argument in KEYS:
            raise ShapeError(f"{value!r}: {argument} is a property of its own, as in delay=10ms {argument}=...")
    arguments = _arguments(value, most=3)
    parsers = (
        ("delay_us", parse_duration_us),
        ("jitter_us", parse_duration_us),
        ("delay_correlation_percent", parse_percent),
    )
    return {name: parse(argument) for argument, (name, parse) in zip(arguments, parsers, strict=False)}


def _chance(name: str) -> Callable[[Any], Fields]:
    def parse(value: Any) -> Fields:
        arguments = _arguments(value, most=2)
        fields = {f"{name}_percent": parse_percent(arguments[0])}
        if len(arguments) > 1:
            fields[f"{name}_correlation_percent"] = parse_percent(arguments[1])
        return fields

    return parse


def _loss(value: Any) -> Fields:
    arguments = _arguments(value, most=6)
    if arguments[0] == "random":
        return _chance("loss")(" ".join(arguments[1:]))
    if arguments[0] not in _LOSS_MODELS:
        if not arguments[0][0].isdigit() and arguments[0][0] not in "+-.":
            raise ShapeError(f"{arguments[0]}: no such model of loss; the models are random, gemodel, state")
        return _chance("loss")(value)
    model, most = _LOSS_MODELS[arguments[0]]
    if not 1 <= len(arguments) - 1 <= most:
        raise ShapeError(f"{arguments[0]} has {len(arguments) - 1} percentages; want 1 to {most}")
    return {"loss_model": model([parse_percent(argument) for argument in arguments[1:]])}


def _gemodel(percents: Sequence[float]) -> GilbertElliott:
    return GilbertElliott(*(percents if len(percents) > 1 else (percents[0], 100 - percents[0])))


def _state(percents: Sequence[float]) -> FourStates:
    return FourStates(*(percents if len(percents) > 1 else (percents[0], 100 - percents[0])))


def _rate(value: Any) -> Fields:
    arguments = _arguments(value, most=4)
    fields: Fields = {"rate_bps": parse_rate_bps(arguments[0])}
    for argument, name in zip(
        arguments[1:], ("rate_overhead_bytes", "cell_bytes", "cell_overhead_bytes"), strict=False
    ):
        try:
            fields[name] = int(argument[: MAX_DIGITS + 1])  # a truncated number is out of range anyway
        except ValueError:
            raise ShapeError(f"{argument} is not a whole number of bytes (as in: 1mbit 20 53 5)") from None
    return fields


def _slot(value: Any) -> Fields:
    arguments = _arguments(value, least=1, most=8)
    fields: Fields = {}
    while len(arguments) > 1 and arguments[-2] in ("packets", "bytes"):
        count, key = arguments.pop(), arguments.pop()
        if not count.isdecimal() or len(count) > MAX_DIGITS:
            raise ShapeError(f"{key}: {count} is not a whole number")
        fields[key] = int(count)
    if arguments and arguments[0] == "distribution":
        if len(arguments) != 4:
            raise ShapeError(f"{value!r}: want distribution NAME DELAY JITTER")
        fields |= {
            "distribution": arguments[1],
            "delay_us": parse_duration_us(arguments[2]),
            "jitter_us": parse_duration_us(arguments[3]),
        }
    elif 1 <= len(arguments) <= 2:
        least_us = parse_duration_us(arguments[0])
        fields |= {"min_us": least_us, "max_us": parse_duration_us(arguments[1]) if len(arguments) > 1 else least_us}
    else:
        raise ShapeError(f"{value!r}: want MIN [MAX] or distribution NAME DELAY JITTER, then packets N, bytes N")
    return {"slot": Slot(**fields)}


def _distribution(name: str, base: Path) -> str:
    """Return the name of a built-in distribution, or the absolute path of a table that can be read."""
    if name in BUILTIN:
        return name
    path = str((base / name).absolute())
    table(path)
    return path


def _trace(name: str, base: Path) -> str:
    path = (base / name).absolute()
    read_trace(path)
    return str(path)


_PLAIN: Final = {"limit": "limit_packets", "ecn": "ecn", "seed": "seed", "gap": "gap"}

_FILES: Final[Mapping[str, Callable[[str, Path], str]]] = {"distribution": _distribution, "trace": _trace}

_LOSS_MODELS: Final[Mapping[str, tuple[Callable[[Sequence[float]], Any], int]]] = {
    "gemodel": (_gemodel, 4),
    "state": (_state, 5),
}

_KEYWORDS: Final[Mapping[str, Callable[[Any], Fields]]] = {
    "delay": _delay,
    "jitter": lambda value: {"jitter_us": parse_duration_us(value)},
    "loss": _loss,
    "duplicate": _chance("duplicate"),
    "corrupt": _chance("corrupt"),
    "reorder": _chance("reorder"),
    "rate": _rate,
    "slot": _slot,
    "ce_threshold": lambda value: {"ce_threshold_us": parse_duration_us(value)},
}

KEYS: Final = (
    "delay", "jitter", "distribution", "loss", "duplicate", "corrupt", "reorder", "gap", "rate", "trace", "limit",
    "slot", "ecn", "seed", "ce_threshold",
)  # fmt: skip
