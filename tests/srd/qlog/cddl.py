"""Validates JSON by CDDL (RFC 8610): as much of it as qlog's drafts use for what this project writes.

Maps with `key: type`, `? key: type` and `* text => any`, arrays with `*`, `+` and `n*m`, choices, strings, references,
sockets ($name, extended by /=), the controls .size, .regexp and .default. A float takes a JSON integer (RFC 8610,
appendix E). Anything else is an error of the schema.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORD = re.compile(r'\s+|;[^\n]*|"[^"]*"|\d+\*\d+|/=|=>|\.[a-z]+|\$?[A-Za-z]\w*|\d+|[{}\[\]?*+:/=]')
PLAIN: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "uint": (int,),
    "float32": (int, float),
    "float64": (int, float),
    "bool": (bool,),
}


@dataclass
class Type:
    """One alternative: `of` is a name, a literal string, a map's members or an array's item."""

    of: Any
    kind: str
    least: int = 0
    most: float = 0
    controls: dict[str, Any] = field(default_factory=dict)


@dataclass
class Map:
    """The members of a map, as (type, whether it may be missing); `is_open`: it may have others."""

    members: dict[str, tuple[list[Type], bool]]
    is_open: bool


class Schema:
    """The rules of some files."""

    def __init__(self, *paths: Path) -> None:
        self.rules: dict[str, list[Type]] = {}
        for path in paths:
            text = path.read_text()
            self._words = [word for word in self._split(text) if not re.match(r"\s|;", word)]
            while self._words:
                name, sign = self._take(), self._take()
                assert sign in {"=", "/="}, (name, sign)
                assert sign == "/=" or name not in self.rules, name
                self.rules.setdefault(name, []).extend(self._choice())

    @staticmethod
    def _split(text: str) -> list[str]:
        found, at = [], 0
        while at < len(text):
            match = WORD.match(text, at)
            assert match, text[at : at + 40]
            found.append(match[0])
            at = match.end()
        return found

    def _take(self, *wanted: str) -> str:
        word = self._words.pop(0)
        assert not wanted or word in wanted, (word, self._words[:5])
        return word

    def _choice(self) -> list[Type]:
        types = [self._type()]
        while self._words[:1] == ["/"]:
            self._take()
            types.append(self._type())
        return types

    def _type(self) -> Type:
        word = self._take()
        if word == "{":
            return Type(self._map(), "map")
        if word == "[":
            least, most = {"*": (0, float("inf")), "+": (1, float("inf"))}.get(sign := self._take(), (-1, 0.0))
            if least < 0:
                least, most = map(int, sign.split("*"))
            made = Type(self._choice(), "array", least=least, most=most)
            self._take("]")
            return made
        made = Type(word.strip('"'), "literal" if word.startswith('"') else "name")
        while self._words[:1] and self._words[0].startswith("."):
            control = self._take()
            assert control in {".size", ".regexp", ".default"}, control
            made.controls[control] = self._take().strip('"')
        return made

    def _map(self) -> Map:
        made = Map({}, is_open=False)
        while (word := self._take()) != "}":
            if word == "*":
                assert [self._take() for _ in range(3)] == ["text", "=>", "any"]
                made.is_open = True
                continue
            name = self._take() if word == "?" else word
            self._take(":")
            made.members[name] = (self._choice(), word == "?")
        return made

    def check(self, value: object, rule: str, *, at: str = "") -> list[str]:
        """Return what is wrong with a value, with its place."""
        return self._check(value, self.rules[rule], at or rule)

    def _check(self, value: object, types: list[Type], at: str) -> list[str]:
        wrong = [self._one(value, each, at) for each in types]
        return [] if not all(wrong) else min(wrong, key=len)

    def _one(self, value: object, wanted: Type, at: str) -> list[str]:
        if wanted.kind == "literal":
            return [] if value == wanted.of else [f"{at}: {value!r} is not {wanted.of!r}"]
        if wanted.kind == "array":
            if not isinstance(value, list) or not wanted.least <= len(value) <= wanted.most:
                return [f"{at}: {value!r} is not an array of {wanted.least} to {wanted.most}"]
            return [w for index, each in enumerate(value) for w in self._check(each, wanted.of, f"{at}[{index}]")]
        if wanted.kind == "map":
            return self._map_errors(value, wanted.of, at)
        return self._named(value, wanted, at)

    def _map_errors(self, value: object, wanted: Map, at: str) -> list[str]:
        if not isinstance(value, dict):
            return [f"{at}: {value!r} is not a map"]
        wrong = [f"{at}: unknown {key}" for key in value if key not in wanted.members and not wanted.is_open]
        for name, (types, is_optional) in wanted.members.items():
            if name in value:
                wrong += self._check(value[name], types, f"{at}.{name}")
            elif not is_optional:
                wrong.append(f"{at}: no {name}")
        return wrong

    def _named(self, value: object, wanted: Type, at: str) -> list[str]:
        if wanted.of in self.rules:
            return self._check(value, self.rules[wanted.of], at)
        kinds = PLAIN[wanted.of]  # or the schema is incomplete
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            return [f"{at}: {value!r} is not {wanted.of}"]
        if isinstance(value, int) and wanted.of == "uint":
            bits = 8 * int(wanted.controls.get(".size", 8))
            return [] if 0 <= value < 1 << bits else [f"{at}: {value} is not of {bits} bits"]
        pattern = wanted.controls.get(".regexp")
        return [] if pattern is None or re.fullmatch(pattern, str(value)) else [f"{at}: {value!r} is not {pattern}"]
