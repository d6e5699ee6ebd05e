"""The exception tree, and that messages name the value, the place and the way out."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from prowess import errors
from prowess.errors import (
    DeclarationError,
    InjectionError,
    InputError,
    InputRequired,
    LoadError,
    MissingCapability,
    ProwessError,
    SchemaError,
    SkillError,
    UnknownCommand,
    did_you_mean,
    extra_command,
    install_command,
    message_of,
)


def test_every_exception_of_ours_is_a_prowess_error():
    """Except the author's own, and the one that is control flow."""
    classes = {cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, BaseException)}
    assert {SkillError, InputRequired} == {cls for cls in classes if not issubclass(cls, ProwessError)}


def test_the_tree_is_drawn_as_it_is():
    """The docstring of the module shows every class, each below its parent."""
    drawn = errors.__doc__
    assert drawn is not None
    for name in errors.__all__:
        if inspect.isclass(getattr(errors, name)):
            assert name in drawn
    for child in (SchemaError, InjectionError):
        assert LoadError in child.__bases__


def test_no_handler_swallows_a_question():
    """`except Exception` in a command must not."""
    assert not issubclass(InputRequired, Exception)
    assert "waiting for answers to name, age" == str(InputRequired({"name": {}, "age": {}}))


def test_a_skill_error_carries_what_the_model_should_know():
    """Message, whether and when to try again, and data."""
    plain = SkillError("no")
    assert ("no", "no", False, None, None) == (
        str(plain),
        plain.message,
        plain.retryable,
        plain.retry_after,
        plain.data,
    )
    full = SkillError("busy", retryable=True, retry_after=2.5, data={"a": 1})
    assert (True, 2.5, {"a": 1}) == (full.retryable, full.retry_after, full.data)


@pytest.mark.parametrize(
    "error, text",
    [
        (DeclarationError("x", "it is bad", "Do this", file="a.py", line=3), "a.py:3: command 'x': it is bad. Do this"),
        (LoadError("bad"), "bad"),
        (LoadError("bad", file="a.py"), "a.py: bad"),
        (LoadError("bad", file="a.py", line=3), "a.py:3: bad"),
        (InputError("a.b", ["x: required"]), "Invalid arguments for a.b:\n- x: required"),
        (InputError("a.b", ["x", "y"]), "Invalid arguments for a.b (2 problems):\n- x\n- y"),
        (
            InputError("a.b", ["x"] * 102),
            "Invalid arguments for a.b (102 problems):" + "\n- x" * 100 + "\n- and 2 more",
        ),
        (UnknownCommand("a.c", ["a.b", "zzz"]), 'Unknown command: a.c; did you mean "a.b"?'),
        (UnknownCommand("a.c"), "Unknown command: a.c"),
        (
            MissingCapability("a.b", "sampling"),
            "a.b needs a client with the capability 'sampling', which this client did not declare",
        ),
    ],
)
def test_messages_say_what_where_and_what_to_do(error: Exception, text: str):
    """Call sites pass facts; the class writes the text."""
    assert text == str(error)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise LookupError


def test_every_exception_has_a_message():
    """Also one whose own `__str__` fails."""
    assert "x" == message_of(ValueError("x"))
    assert "its message cannot be shown: LookupError" == message_of(Unspeakable())


@pytest.mark.parametrize("name, expected", [("titel", '; did you mean "title"?'), ("q", ""), ("", ""), ("TITLE", "")])
def test_did_you_mean_names_the_nearest(name: str, expected: str):
    """Or says nothing where nothing is near."""
    assert expected == did_you_mean(name, ["title", "text"])


def test_the_beginning_of_a_long_name_is_compared():
    """A megabyte of a name must not cost more than a long one."""
    assert "" == did_you_mean("titel" * 1_000_000, ["title", "text"])


@pytest.mark.parametrize(
    "place, extra, package",
    [
        ("uv/archive-v0/x/bin/python", "uvx --from 'prowess[http]' prowess", "uvx --with pandas prowess"),
        (
            "uv/tools/prowess/bin/python",
            "uv tool install 'prowess[http]'",
            "uv tool install --with pandas prowess",
        ),
        (".venv/bin/python", "pip install 'prowess[http]'", None),
    ],
)
def test_the_command_that_installs_fits_the_environment(tmp_path: Path, place: str, extra: str, package: str | None):
    """Pip would install into an environment that uv owns and makes again."""
    (tmp_path / "uv/tools/prowess").mkdir(parents=True)
    (tmp_path / "uv/tools/prowess/uv-receipt.toml").touch()
    python = str(tmp_path / place)
    assert extra == extra_command("prowess[http]", python)
    assert (package or f"{python} -m pip install pandas") == install_command("pandas", python)
