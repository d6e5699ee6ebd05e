"""What the decorator refuses, and that each refusal says which command, where, and what to do instead."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
from pathlib import Path
from typing import Any

import pytest

from prowess import skill_command
from prowess.command import Command
from prowess.contracts.declaration import Declaration, declaration_of, location_of
from prowess.errors import DeclarationError, ProwessError

HERE = Path(__file__).name


def plain(a: int = 1) -> int:
    return a


class Parts(ExceptionGroup):
    """A group of an author."""


class Thing:
    def method(self) -> None: ...

    @classmethod
    def of_class(cls) -> None: ...

    @staticmethod
    def static() -> None: ...

    def __call__(self) -> None: ...


def line_here() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def declared(command: Command[Any, Any]) -> Declaration:
    found = declaration_of(command)
    assert found is not None
    return found


def refusal(function: Any = plain, **options: Any) -> str:
    with pytest.raises(DeclarationError) as caught:
        skill_command(**options)(function) if options else skill_command(function)
    return str(caught.value)


# --- what is decorated


@pytest.mark.parametrize(
    "function, problem",
    [
        (Thing.method, "command 'method': it is a method of Thing"),
        (Thing.static, "command 'static': it is a method of Thing"),
        (Thing().method, "command 'method': methods cannot be commands"),
        (Thing.of_class, "command 'of_class': methods cannot be commands"),
        (vars(Thing)["of_class"], "command 'of_class': methods cannot be commands"),
        (vars(Thing)["static"], "command 'static': methods cannot be commands"),
    ],
)
def test_methods_are_refused(function: Any, problem: str):
    """A method has a `self` that no client can send."""
    message = refusal(function)
    assert problem in message
    assert "Decorate a plain function, and call the method from there" in message


@pytest.mark.parametrize(
    "function, problem",
    [
        (functools.partial(plain, 1), "command 'partial': an instance of partial cannot be a command"),
        (Thing, "command 'Thing': a class cannot be a command"),
        (Thing(), "command 'Thing': an instance of Thing cannot be a command"),
        (len, "command 'len': an instance of builtin_function_or_method cannot be a command"),
        (
            functools.cache(plain),
            "command 'plain': an instance of _lru_cache_wrapper cannot be a command. Use cache_ttl=",
        ),
    ],
)
def test_other_callables_are_refused(function: Any, problem: str):
    """What has no signature, name and place of its own has to be wrapped in a function."""
    message = refusal(function)
    assert problem in message
    assert "rite a function that calls it, and decorate that" in message


def test_a_name_by_position_is_refused():
    """Other frameworks take it there."""
    assert "command 'find': its name is given by position. Write skill_command(name='find')" in refusal("find")


def test_a_refusal_names_the_file_and_the_line_of_the_decorator():
    """Also for what has no place of its own."""
    with pytest.raises(DeclarationError) as caught:
        skill_command(functools.partial(plain, 1))
    assert (__file__, line_here() - 1) == (caught.value.file, caught.value.line)
    assert str(caught.value).startswith(f"{__file__}:{caught.value.line}: command ")


def test_a_refused_function_is_placed_where_it_stands():
    """The location is the function's, decorators included, whatever line the check runs on."""
    location = location_of(plain)
    assert str(location) in refusal(cache_ttl=-1)
    assert f"{__file__}:{plain.__code__.co_firstlineno}" == str(location)


def test_a_lambda_needs_a_name():
    """Without one no client could call it."""
    assert "a lambda has no name. Give it one" in refusal(lambda: 1)
    assert "answer" == declared(skill_command(name="answer")(lambda: 42)).name


def test_a_command_cannot_be_decorated_again():
    """The payload of one would be the result of the other."""
    command = skill_command(plain)
    message = refusal(command)
    assert "command 'plain': it is already a command" in message
    assert "decorate its .raw under another name" in message
    assert "other" == declared(skill_command(name="other")(command.raw)).name


# --- options


@pytest.mark.parametrize("name", ["", "a b", "a.", ".a", "a..b", "a/b", "é", "a\n"])
def test_names_are_letters_digits_underscores_and_hyphens(name: str):
    """Clients refuse anything else; dots only separate."""
    assert f"the name {name!r} does not match" in refusal(name=name)


@pytest.mark.parametrize("name", ["a", "A-b_c", "2", "deploy.staging"])
def test_plain_and_dotted_names_are_taken(name: str):
    """The name of the function is only the default."""
    assert name == declared(skill_command(name=name)(plain)).name


@pytest.mark.parametrize(
    "options, problem, remedy",
    [
        ({"titel": "x"}, "skill_command has no parameter 'titel'", 'Did you mean "title"?'),
        ({"frame": None}, "skill_command has no parameter 'frame'", ""),
        ({"zzzzzz": 1}, "skill_command has no parameter 'zzzzzz'", "See help(skill_command)"),
        ({"cache_ttl": -1}, "cache_ttl=-1 must be a number of seconds, 0 or more", "0 for no cache"),
        ({"cache_ttl": math.nan}, "cache_ttl=nan must be a number of seconds, 0 or more", "0 for no cache"),
        ({"cache_ttl": math.inf}, "cache_ttl=inf must be a number of seconds, 0 or more", "0 for no cache"),
        ({"cache_ttl": 2**31}, "cache_ttl is above 2147483647", "Give a smaller number"),
        ({"timeout": 10**400}, "timeout is above 2147483647", "Give a smaller number"),
        ({"timeout": 1e300}, "timeout is above 2147483647", "Give a smaller number"),
        ({"concurrency": 2**64}, "concurrency is above 2147483647", "Give a smaller number"),
        ({"max_attempts": 2**31, "retry_on": OSError}, "max_attempts is above 2147483647", "Give a smaller number"),
        ({"max_attempts": 0}, "max_attempts=0 is below 1", "1 means no retry"),
        ({"max_attempts": -3, "retry_on": OSError}, "max_attempts=-3 is below 1", "1 means no retry"),
        ({"max_attempts": 2}, "max_attempts=2 has no effect without retry_on", "Name the exceptions"),
        ({"retry_on": BaseException}, "retry_on holds <class 'BaseException'>", "Name exception classes"),
        ({"retry_on": KeyboardInterrupt}, "retry_on holds <class 'KeyboardInterrupt'>", "Name exception classes"),
        ({"retry_on": asyncio.CancelledError}, "which must be an Exception class", "Name exception classes"),
        ({"retry_on": BaseExceptionGroup}, "which must be an Exception class", "Name exception classes"),
        (
            {"retry_on": ExceptionGroup},
            "retry_on holds ExceptionGroup",
            "Name the exceptions inside the group",
        ),
        ({"retry_on": (OSError, Parts)}, "retry_on holds Parts", "Name the exceptions inside the group"),
        ({"aliases": ["a/b", "a.b"]}, "the alias 'a.b' is given twice", "a slash and a dot mean the same"),
        ({"inject_settings": ["a.b", "a-b"]}, "the parameter 'a_b' is filled twice", '"a-b:another_name"'),
        ({"inject_settings": ["a:x", "b:x"]}, "by the setting 'a' and by the setting 'b'", '"b:another_name"'),
        ({"inject_settings": ["a", "a"]}, "the parameter 'a' is filled twice", "Drop one of them"),
        ({"inject_root": True, "inject_settings": ["a:project_root"]}, "by inject_root and by the", "Drop one of them"),
        ({"force": True}, "force=True has no effect here", "Drop it"),
        ({"force": True, "destructive": True}, "force=True has no effect here", "Drop it"),
        ({"force": True, "cache_ttl": 1}, "force=True has no effect here", "Drop it"),
        (
            {"force": True, "cache_ttl": 1, "destructive": True, "idempotent": True},
            "force=True has no effect here",
            "Drop it",
        ),
        ({"retry_on": (OSError, "x")}, "retry_on holds 'x'", "Name exception classes"),
        ({"retry_on": [OSError]}, "retry_on holds [<class 'OSError'>]", "Name exception classes"),
        ({"timeout": 0}, "timeout=0 must be greater than 0", "leave it out for the default"),
        ({"timeout": math.nan}, "timeout=nan must be greater than 0", "leave it out for the default"),
        ({"concurrency": 0}, "concurrency=0 must be at least 1", "Leave it out for no limit"),
        ({"read_only": True, "destructive": True}, "read_only and destructive", "Keep the one that is true"),
        ({"input_schema": "object"}, "input_schema='object' must be a JSON Schema", 'Give a dict, "any"'),
        ({"output_schema": []}, "output_schema=[] must be a JSON Schema", 'Give a dict, "any"'),
        ({"output_field": ""}, "output_field='' must be a name", "leave it out"),
        ({"aliases": ["a b"]}, "the alias 'a b' does not match", 'Write it like "search/web"'),
        ({"inject_settings": [""]}, "inject_settings holds '', which lacks the name of a setting", 'Write "api.key"'),
        ({"inject_settings": [":key"]}, "inject_settings holds ':key'", 'Write "api.key"'),
        ({"icons": [{"mimeType": "image/png"}]}, "the icon {'mimeType': 'image/png'} has no src", "Write it like"),
        ({"icons": ["i.png"]}, "the icon 'i.png' has no src", "Write it like"),
        ({"icons": [{"src": "i.png", "sizes": {1}}]}, "must be JSON data", "Use dicts"),
        ({"icons": [{"src": "i.png", "sizes": "48x48"}]}, "sizes or a theme that clients reject", '"sizes": ["48x48"]'),
        ({"icons": [{"src": "i.png", "sizes": [48]}]}, "sizes or a theme that clients reject", "Write it like"),
        ({"icons": [{"src": "i.png", "mimeType": 5}]}, "has a mimeType", "Write it like"),
        ({"icons": [{"src": "i.png", "theme": "blue"}]}, "a theme that clients reject", "Write it like"),
        ({"meta": {"x": object()}}, "must be JSON data", "Use dicts with string keys"),
        ({"meta": {"x": math.nan}}, "meta={'x': nan} must be JSON data", "Use dicts with string keys"),
        ({"meta": {1: 2}}, "meta={1: 2} must be JSON data", "Use dicts with string keys"),
        ({"tags": ["ok", 1]}, "tags=['ok', 1] must be a list of strings", "Write it like"),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], problem: str, remedy: str):
    """Every refusal names the command, the option, its value, and what to do instead."""
    message = refusal(**options)
    assert HERE in message
    assert "command 'plain': " in message
    assert problem in message
    assert remedy in message.partition(problem)[2]


@pytest.mark.parametrize(
    "options, wanted",
    [
        ({"name": 5}, "a string"),
        ({"description": 5}, "a string"),
        ({"category": 5}, "a string"),
        ({"title": 5}, "a string"),
        ({"output_field": 5}, "a string"),
        ({"profile": 5}, "a string"),
        ({"read_only": "yes"}, "True or False"),
        ({"destructive": 1}, "True or False"),
        ({"idempotent": 0}, "True or False"),
        ({"open_world": "no"}, "True or False"),
        ({"thread": 0}, "True or False"),
        ({"inject_root": "root"}, "True or False"),
        ({"autowire": 1}, "True or False"),
        ({"force": 1}, "True or False"),
        ({"max_attempts": 2.5}, "a whole number"),
        ({"max_attempts": True}, "a whole number"),
        ({"concurrency": "1"}, "a whole number"),
        ({"cache_ttl": "60"}, "a number of seconds"),
        ({"timeout": "60"}, "a number of seconds"),
        ({"inject_settings": "api.key"}, "a list"),
        ({"aliases": "search"}, "a list"),
        ({"tags": "fast"}, "a list"),
        ({"icons": {"src": "i.png"}}, "a list"),
        ({"meta": ["a"]}, "a dict"),
    ],
)
def test_an_option_of_a_wrong_type_is_refused(options: dict[str, Any], wanted: str):
    """A text in the place of a list would be taken for a list of letters, silently."""
    ((option, value),) = options.items()
    assert f"{option}={value!r} is not {wanted}" in refusal(**options)


def test_none_is_the_default_of_every_option():
    """So that options can be computed and passed on."""
    options = dict.fromkeys(("category", "aliases", "cache_ttl", "meta", "output", "inject_root"))
    assert declared(skill_command(plain)) == declared(skill_command(**options)(plain))


# --- dangers


@pytest.mark.parametrize("option", [{"cache_ttl": 1}, {"retry_on": OSError}])
def test_a_destructive_command_is_neither_cached_nor_repeated(option: dict[str, Any]):
    """Unless running it twice is harmless, or the author takes the risk."""
    name = next(iter(option))
    message = refusal(destructive=True, **option)
    assert f"{name} on a destructive command that is not idempotent" in message
    assert "Declare idempotent=True if running it twice is harmless, or force=True" in message
    for way_out in ({"idempotent": True}, {"force": True}):
        assert declared(skill_command(destructive=True, **option, **way_out)(plain))


async def asynchronous() -> None: ...


async def asynchronously_yielding() -> Any:
    yield 1


@pytest.mark.parametrize("function", [asynchronous, asynchronously_yielding])
def test_threads_are_for_sync_functions(function: Any):
    """An option that would do nothing is a mistake."""
    assert "thread= is for sync functions" in refusal(function, thread=True)
    assert declared(skill_command(thread=False)(plain)).thread is False


@pytest.mark.parametrize(
    "options, attempts",
    [
        ({}, 1),
        ({"retry_on": OSError}, 3),
        ({"retry_on": (OSError, KeyError)}, 3),
        ({"retry_on": OSError, "max_attempts": 1}, 1),
        ({"retry_on": OSError, "max_attempts": 7}, 7),
    ],
)
def test_attempts_default_to_three_where_something_is_worth_a_retry(options: dict[str, Any], attempts: int):
    """`max_attempts` counts all calls, the first one included."""
    assert attempts == declared(skill_command(**options)(plain)).max_attempts


# --- notes


def test_refusals_are_errors_of_prowess():
    """One `except` catches all that Prowess raises."""
    assert issubclass(DeclarationError, ProwessError)


@pytest.mark.parametrize("value", [None, 5, plain, Thing(), "x"])
def test_what_is_no_command_has_no_declaration(value: object):
    """A stranger's attribute of the same name is none either."""
    assert declaration_of(value) is None
    stranger = type("Stranger", (), {"__prowess__": 5})()
    assert declaration_of(stranger) is None


def test_a_name_that_is_not_bound_yet_is_no_local_name():
    """A closure may be compiled while the function around it has not come that far."""

    def make(*, early: bool) -> Declaration:
        @skill_command
        def inner() -> Any:
            return late

        if early:
            return declared(inner)
        late = 1
        return declared(inner)

    assert "late" not in make(early=True).local_names()
    assert 1 == make(early=False).local_names()["late"]
