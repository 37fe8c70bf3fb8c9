from __future__ import annotations

from netns import errors


def test_the_docstring_draws_the_whole_tree() -> None:
    kinds = [name for name, value in vars(errors).items() if isinstance(value, type)]
    assert len(kinds) == 11
    assert all(f" {name} " in (errors.__doc__ or "") for name in kinds)


def test_message__is_one_short_printable_line() -> None:
    assert str(errors.LabError("a\nb\x1b[31m: \ud800 é \\")) == r"a\nb\x1b[31m: \ud800 é " + "\\"
    message = str(errors.LabError("value " + "x" * 10_000 + " remedy"))
    assert (message[:6], message[-7:], len(message)) == ("value ", " remedy", errors.MAX_MESSAGE + 5)
    assert str(errors.LabError(message)).startswith("value ")
