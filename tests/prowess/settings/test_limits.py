"""The limits of a skill: where they are written, and what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from prowess.errors import SettingsError
from prowess.settings.limits import GIB, MIB, Limits, Sandbox, Verdict, declared, limits_of, wider

PLACE = "a.py"


def test_empty_table_is_a_skill_that_may_do_next_to_nothing() -> None:
    """To be limited is enough: everything else is asked for."""
    assert limits_of(({}, PLACE)) == Limits()
    assert (
        Limits().in_words()
        == "no network, 2 GiB of memory, no processes of its own, files up to 256 MiB, 1 GiB of temporary files"
    )


def test_every_limit_is_read() -> None:
    """Sizes are numbers, or numbers with a unit."""
    table = {
        "network": True,
        "read": ["data"],
        "write": ["out", "/var/x"],
        "env": ["KEY"],
        "settings": ["weather"],
        "memory": "1.5 GiB",
        "cpu": 60,
        "processes": 4,
        "file_size": 1000,
        "disk": 5000,
    }

    found = limits_of((table, PLACE))

    assert found == Limits(
        network=True,
        read=("data",),
        write=("out", "/var/x"),
        env=("KEY",),
        settings=("weather",),
        memory=int(1.5 * GIB),
        cpu=60,
        processes=4,
        file_size=1000,
        disk=5000,
    )
    assert found.in_words() == (
        "network, reads data, writes out /var/x, variables KEY, settings weather, 1536 MiB of memory, "
        "60 s of processor time, 4 processes, files up to 1000 bytes, 5000 bytes of temporary files"
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("10 B", 10), ("2kb", 2000), ("2 KiB", 2048), ("3M", 3_000_000), ("1 TiB", 1024**4), ("inf", None)],
)
def test_sizes_have_units(text: str, size: int | None) -> None:
    """As people write them."""
    assert limits_of(({"memory": text}, PLACE)).memory == size


def test_infinity_is_no_limit() -> None:
    """TOML has a word for it."""
    found = limits_of(({"memory": math.inf, "cpu": math.inf, "file_size": "inf", "disk": "inf"}, PLACE))

    assert (found.memory, found.cpu, found.file_size, found.disk) == (None, None, None, None)
    assert found.in_words() == "no network, no processes of its own"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"netwrok": True}, r'unknown limit \'netwrok\'; did you mean "network"\?'),
        ({"qqq": 1}, "there are network, read, write"),
        ({"network": "lan"}, 'network must be true, false or "loopback", not "lan"'),
        ({"network": 1}, "network must be"),
        ({"read": "data"}, 'read must be a list of printable strings, of 8192 characters at most, not "data"'),
        ({"write": [1]}, "write must be"),
        ({"env": [" "]}, "env must be"),
        ({"memory": "much"}, "memory must be a size in bytes"),
        ({"memory": 0}, "memory must be"),
        ({"memory": True}, "memory must be"),
        ({"memory": []}, "memory must be"),
        ({"cpu": math.nan}, "cpu must be"),
        ({"cpu": "1 s"}, "cpu must be seconds"),
        ({"processes": -1}, "processes must be an integer from 0 to 4194304, not -1"),
        ({"processes": True}, "processes must be"),
        ({"processes": 1.5}, "processes must be"),
        ({"file_size": -5}, "file_size must be"),
    ],
)
def test_wrong_limits_are_refused(table: dict[str, Any], words: str) -> None:
    """With the place, the name and the value."""
    with pytest.raises(SettingsError, match=words) as caught:
        limits_of((table, PLACE))

    assert str(caught.value).startswith("a.py: ")


def test_limits_are_plain_data() -> None:
    """For the committed catalog: what is written is read back."""
    for limits in (
        Limits(),
        Limits(network="loopback", read=("a",), memory=None, cpu=None, file_size=MIB + 1, disk=None),
        Limits(cpu=2.5),
    ):
        assert limits_of((json.loads(json.dumps(limits.to_json())), PLACE)) == limits
    assert Limits(file_size=3 * 1024).to_json()["file_size"] == "3 KiB"


@pytest.mark.parametrize(
    ("now", "keys"),
    [
        (Limits(), []),
        (Limits(network=True), ["network"]),
        (Limits(network="loopback"), ["network"]),
        (Limits(read=("a", "b")), ["read"]),
        (Limits(read=()), []),
        (Limits(env=("K",), settings=("s",), processes=1), ["env", "settings", "processes"]),
        (Limits(memory=None), ["memory"]),
        (Limits(memory=1), []),
        (Limits(cpu=5), []),
    ],
)
def test_wider_limits_are_told(now: Limits, keys: list[str]) -> None:
    """So that nobody gets more than was agreed to."""
    assert wider(now, Limits(read=("a",))) == keys


def test_no_limit_is_wider_than_a_limit() -> None:
    """And as wide as itself."""
    assert wider(Limits(cpu=None), Limits(cpu=5)) == ["cpu"]
    assert wider(Limits(cpu=6), Limits(cpu=5)) == ["cpu"]
    assert wider(Limits(), Limits()) == []


# --- where skills say it --------------------------------------------------------------------------


BLOCK = """\
# /// script
# dependencies = []
#
# [tool.prowess.sandbox]
# network = true
# read = ["data"]
# ///
from prowess import skill_command
"""


def test_file_declares_limits_in_its_inline_metadata() -> None:
    """As PEP 723 has it."""
    assert declared(BLOCK, "a.py") == ({"network": True, "read": ["data"]}, "a.py")
    assert declared(BLOCK.replace("\n", "\r\n"), "a.py") == ({"network": True, "read": ["data"]}, "a.py")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sandbox = 1",
        "# /// script\n# [tool.prowess]\n# ///\n# sandbox",
        "# /// script\n# tool = 1\n# ///\n# sandbox",
    ],
)
def test_file_may_declare_nothing(text: str) -> None:
    """As most do."""
    assert declared(text, "a.py") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# /// script\n# [tool.prowess.sandbox\n# ///\n", "not valid TOML"),
        ("# /// script\n# tool.prowess.sandbox = 1\n# ///\n", "must be a table"),
    ],
)
def test_broken_inline_metadata_is_refused(text: str, words: str) -> None:
    """A limit that is overlooked would be none."""
    with pytest.raises(SettingsError, match=words):
        declared(text, "a.py")


@pytest.mark.parametrize(
    "text",
    [
        BLOCK.replace("# ///\n", "", 1),
        BLOCK.replace("\n", "\r"),
        BLOCK.replace("# /// script", "#/// script"),
        BLOCK.replace("# /// script\n", "# /// script\n\n"),
        "".join(f"    {line}\n" for line in BLOCK.splitlines()),
        f"{BLOCK}\n{BLOCK}",
        f"# /// script\n# dependencies = []\n# ///\n{BLOCK}",
    ],
)
def test_limits_outside_of_a_block_are_refused(text: str) -> None:
    """Whoever wrote them meant them: a skill without its limits would be the worst answer."""
    with pytest.raises(SettingsError, match="must be in one block that begins with the line `# /// script`"):
        declared(text, "a.py")


def test_byte_order_mark_hides_no_limits() -> None:
    """Editors write one, and Python ignores it."""
    assert declared(f"\ufeff{BLOCK}", "a.py") == declared(BLOCK, "a.py")
    assert declared("\ufeff---\nsandbox:\n  network: false\n---\n", "SKILL.md") is not None


@pytest.mark.parametrize(
    "text",
    [
        "---\nsandbox:\n  network: false\n",
        "\n---\nsandbox:\n  network: false\n---\n",
        "---\nname: x\nsandbox :\n  network: false\n---\n",
        '---\n"sandbox":\n  network: false\n---\n',
        "---\n{name: x, sandbox: {network: false}}\n---\n",
        '---\n{"name": "x",\n "sandbox": {"network": false}}\n---\n',
        "---\nname: x\n? sandbox\n: {network: false}\n---\n",
    ],
)
def test_front_matter_that_is_not_found_is_refused(text: str) -> None:
    """As with blocks."""
    with pytest.raises(SettingsError, match="limits must be a block `sandbox:` in the front matter"):
        declared(text, "SKILL.md")


@pytest.mark.parametrize(
    "table",
    [
        {"cpu": 1e300},
        {"memory": 2**70},
        {"processes": 2**23},
        {"read": ["x" * 100] * 100},
        {"write": ["a\x1b[2J"]},
        {"env": ["a\u202eb"]},
        {"read": ["\ud800"]},
    ],
)
def test_limits_that_no_system_and_no_terminal_takes_are_refused(table: dict[str, Any]) -> None:
    """They would be an error of the system when the worker starts, or change what people read."""
    with pytest.raises(SettingsError, match="must be"):
        limits_of((table, PLACE))


def test_skill_md_declares_limits_in_its_front_matter() -> None:
    """Beside what other clients read there."""
    text = """---
name: weather
sandbox:
  # why not
  network: loopback
  read: [data, "b c", 'd']

  env: []
  memory: .inf
  processes: 2  # git
license: MIT
---
# Weather
"""
    table = {"network": "loopback", "read": ["data", "b c", "d"], "env": [], "memory": math.inf, "processes": 2}

    assert declared(text, "SKILL.md") == (table, "SKILL.md")


@pytest.mark.parametrize(
    "text",
    [
        "# sandbox",
        "---\nname: sandbox\n---\n",
        "---\nname: x\n---\nsandbox:\n  network: true\n",
        '---\nname: x\ndescription: "{a} and b, sandbox: c"\n---\n',
        "---\n{name: x, description: a sandbox}\n---\n{sandbox: y}\n",
    ],
)
def test_skill_md_may_declare_nothing(text: str) -> None:
    """Outside of the front matter it is prose."""
    assert declared(text, "SKILL.md") is None


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("sandbox: {network: true}", "must be a block"),
        ("sandbox:\n  read:\n    - a", "must be `name: value`"),
        ("sandbox:\n  read", "name: value"),
    ],
)
def test_front_matter_that_is_not_understood_is_refused(lines: str, words: str) -> None:
    """YAML can say it in many ways, of which one is enough."""
    with pytest.raises(SettingsError, match=words):
        declared(f"---\n{lines}\n---\n", "SKILL.md")


def test_sandbox_may_end_the_front_matter() -> None:
    """There need not be anything behind it."""
    assert declared("---\nsandbox:\n  network: false\n---\n", "SKILL.md") == ({"network": False}, "SKILL.md")


# --- what the owner says --------------------------------------------------------------------------


def test_owner_replaces_what_a_skill_declares_key_by_key() -> None:
    """So one key can be opened, and the rest stays as its author meant it."""
    sandbox = Sandbox.of({"my-skill": {"network": False, "memory": "1 GiB"}}, "prowess.toml")

    found = sandbox.limits("my_skill", ({"network": True, "env": ["K"]}, PLACE))

    assert found == Limits(network=False, env=("K",), memory=GIB)


def test_owner_may_limit_a_skill_that_declares_nothing_and_lift_limits() -> None:
    """A stranger's file has the limits that its user gives it."""
    sandbox = Sandbox.of({"a": {}, "b": False, "c": {"limited": False}, "unenforced": True}, "prowess.toml")

    assert sandbox.unenforced
    assert sandbox.limits("a") == Limits()
    assert sandbox.limits("b", ({}, PLACE)) is None
    assert sandbox.limits("c", ({}, PLACE)) is None
    assert sandbox.limits("d", ({}, PLACE)) == Limits()
    assert sandbox.limits("d") is None
    assert sandbox.packages() == {"a": False, "b": True, "c": True}


def test_owner_may_say_what_was_allowed() -> None:
    """Another contract is not what was looked at."""
    sandbox = Sandbox.of({"a": {"contract": "1f", "network": True}, "b": {"contract": "2e", "limited": False}}, "f")

    assert sandbox["a"] == Verdict({"network": True}, "1f")
    assert sandbox["b"] == Verdict(None, "2e")
    assert sandbox["c"] is None


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (1, "must be a table"),
        ({"a": 1}, "sandbox.a must be a table with the limits of the skill 'a', or false for none, not 1"),
        ({"a": True}, "not true"),
        ({"unenforced": "yes"}, "sandbox.unenforced must be"),
        ({"a": {"contract": 1}}, "contract must be a string"),
        ({"a": {"limited": 0}}, "limited true or false"),
        ({"a": {"limited": False, "read": []}}, "lifts all limits: remove read, or that line"),
    ],
)
def test_wrong_table_of_the_owner_is_refused(table: Any, words: str) -> None:
    """With the file that it is in."""
    with pytest.raises(SettingsError, match=words) as caught:
        Sandbox.of(table, "prowess.toml")

    assert str(caught.value).startswith("prowess.toml: ")


def test_wrong_limit_of_the_owner_names_the_table() -> None:
    """At once, and not when the skill is called. The line is found by its name."""
    with pytest.raises(SettingsError, match=r"^prowess.toml: \[sandbox.a\]: unknown limit"):
        Sandbox.of({"a": {"netz": 1}}, "prowess.toml")
