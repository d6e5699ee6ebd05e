"""The project under soak: which files it has, what was saved into them, and what clients should see.

Saves are made as editors, git, `cp -p` and crashing programs make them. Each good save of a skill has a version of its own,
which stands in the description of its command and in what the command returns, so that a list and a call can be compared.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["LAST", "Announced", "Project"]

SETTINGS = """\
# {comment}
cache_dir = "cache"

[host]
grace = 1.5
"""
MOVING = """\
from __future__ import annotations

from typing import Any

from prowess import skill_command
{imports}

@skill_command(read_only=True)
def value(token: str) -> dict[str, Any]:
    '''Version {version}.'''
    return {{"token": token, "file": {name!r}, "version": {version}, "shared": {shared}}}


@skill_command
def extra_{variant}(n: int = {variant}) -> int:
    return n
"""
BROKEN: dict[str, str] = {
    "syntax": "from prowess import skill_command\ndef (:\n",
    "import": "from prowess import skill_command\nimport nothing_of_this_name\n",
    "annotation": "from prowess import skill_command\n@skill_command\ndef value(token: 'Nobody') -> int: ...\n",
    "exit": "from prowess import skill_command\nraise SystemExit(5)\n",
    "print": "from prowess import skill_command\nprint('x' * 1000)\nraise RuntimeError('half way')\n",
    "deadly": "from prowess import skill_command\nimport os\n"
    "os.write(os.open(os.environ['SOAK_JOURNAL'], os.O_WRONLY | os.O_APPEND), f'- {os.getpid()} kills\\n'.encode())\n"
    "os._exit(11)\n",
}
SLOW = "import time\ntime.sleep(0.4)\n"
NATIVE = "import ctypes\nctypes.PyDLL(None).usleep(1_200_000)\n"
"""Holds the interpreter, as loading a large native library does, for longer than the stall limit."""
VARIANTS = 3
LAST = 5
"""The moving files are called m0 to m5. m0 is always there, though perhaps broken, and always replaced at one stroke."""
FOREIGN = ("notes.txt", "elsewhere/deployment.yaml")
"""Files of the user in the folder that is set as the cache."""
LONG_AGO = 1_000_000_000


@dataclass(slots=True)
class State:
    """What is in one file."""

    name: str
    """The name the file had when this was saved into it."""
    version: int
    variant: int
    imports: str = ""
    broken: str = ""
    missing: str = ""
    """What is still to be written, where a save stopped half way."""

    @property
    def text(self) -> str:
        more, shared = ("from soak_shared import SHARED\n", "SHARED") if self.name == "m1" else ("", 0)
        return MOVING.format(
            name=self.name, version=self.version, variant=self.variant, imports=more + self.imports, shared=shared
        )


class Project:
    """Saves files, one step at a time, and knows what they come to."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root
        self.saves = 0
        self.done: dict[str, int] = {}
        """How often each kind of save was made."""
        self.version = 100_000
        """Of the last good save. All have the same number of digits: a file may keep its size."""
        self.history: dict[str, list[int]] = {}
        """The versions that each moving file has had, in their order. A version that was restored is there twice."""
        self.written: dict[str, bytes] = {}
        """What is in every file of the user, by its path."""
        self._rng = rng
        self._files: dict[str, State] = {}
        self._past: dict[str, State] = {}
        """What was in each file before its last change."""
        self._shared = 0
        self._settings_broken = False
        self.settings_were_broken = False
        """Since somebody looked: while they are, no worker can be started."""
        self._steps: list[tuple[int, Callable[[], None]]] = [
            (8, self._edit),
            (3, self._tear),
            (3, self._copy),
            (2, self._restore),
            (3, self._break),
            (4, self._mend),
            (3, self._add),
            (2, self._delete),
            (2, self._rename),
            (2, self._touch),
            (2, self._edit_shared),
            (2, self._edit_folder),
            (1, self._save_settings),
        ]
        self._make()

    def _make(self) -> None:
        (self.root / "skills" / "pack" / "scripts").mkdir(parents=True)
        for path in FOREIGN:
            self._plant(f"cache/{path}")
        steady = Path(__file__).with_name("skills.py").read_text("utf-8")
        self._write("skills/steady.py", steady)
        self._save_settings(broken=False)
        self._edit_shared()
        self._edit_folder()
        main = "from .part import VERSION\nfrom prowess import skill_command\n\n\n@skill_command\n"
        self._write("skills/pack/scripts/main.py", f"{main}def part() -> int:\n    return VERSION\n")
        for number in range(3):
            self._put(f"m{number}")
        self.saves = 0
        self.done.clear()

    # What there is

    @property
    def broken(self) -> bool:
        """Whether something cannot be loaded at the moment."""
        return self._settings_broken or any(state.broken for state in self._files.values())

    def names(self) -> set[str]:
        """The changing tools that clients should see, once nothing is broken."""
        found = {"pack_part"}
        for name, state in self._files.items():
            found |= {f"{name}_value", f"{name}_extra_{state.variant}"}
        return found

    def versions(self) -> dict[str, int]:
        """What each moving file should answer, once nothing is broken."""
        return {name: state.version for name, state in self._files.items()}

    # Saving

    def step(self) -> str:
        """One save, or two where it takes two; gives what was done."""
        weights = [weight for weight, _ in self._steps]
        before = self.saves
        while self.saves == before:
            (_, action), *_ = self._rng.choices(self._steps, weights)
            action()
        kind = action.__name__.strip("_")
        self.done[kind] = self.done.get(kind, 0) + self.saves - before
        return kind

    def mend(self) -> None:
        """Mend all that is broken."""
        for name in [name for name, state in self._files.items() if state.broken]:
            self._mend_one(name)
        if self._settings_broken:
            self._save_settings(broken=False)

    def add(self, name: str) -> None:
        """A further file."""
        self._put(name)

    def spoil(self, name: str) -> None:
        """Break one file."""
        self._files[name].broken = "syntax"
        self._write(f"skills/{name}.py", BROKEN["syntax"], whole=True)

    def plant(self) -> None:
        """Put a file of the user, and an old one, where a host keeps its manifests."""
        self._plant("cache/manifests/deployment.yaml")

    def _plant(self, path: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        self._write(path, "kind: Deployment\n")
        os.utime(file, (LONG_AGO, LONG_AGO))

    def _write(self, path: str, text: str, *, whole: bool = False) -> None:
        """Save a file: in place, or, as a whole, by a draft that takes its place."""
        file = self.root / path
        if whole:
            draft = file.with_name(f".{file.name}.draft")
            draft.write_text(text, "utf-8")
            draft.rename(file)
        else:
            file.write_text(text, "utf-8")
        self._wrote(path, text)

    def _wrote(self, path: str, text: str) -> None:
        self.written[path] = text.encode()
        self.saves += 1

    def _next(self, name: str, /, **same: str | int) -> State:
        """What comes into a moving file next."""
        self.version += 1
        state = State(name, self.version, self._rng.randrange(VARIANTS))
        if (luck := self._rng.random()) < 0.1:
            state.imports = SLOW if luck > 0.03 else NATIVE
        return self._enter(name, dataclasses.replace(state, **same))

    def _enter(self, name: str, state: State) -> State:
        """From now on the file may be seen in this state."""
        self._files[name] = state
        self.history.setdefault(name, []).append(state.version)
        return state

    def _put(self, name: str) -> None:
        """A good version of a moving file."""
        text = self._next(name).text
        self._write(f"skills/{name}.py", text, whole=name == "m0" or self._rng.random() < 0.5)

    def _some(self, *, broken: bool) -> str | None:
        there = [name for name, state in self._files.items() if bool(state.broken) is broken]
        return self._rng.choice(there) if there else None

    def _keep(self, name: str) -> None:
        """Remember what is in a file, so that it can be restored."""
        self._past[name] = dataclasses.replace(self._files[name])

    def _edit(self) -> None:
        if name := self._some(broken=False):
            self._keep(name)
            self._put(name)

    def _tear(self) -> None:
        """Write a part of a file that cannot be parsed. The rest follows when somebody mends it."""
        name = self._some(broken=False)
        if name and name != "m0":
            self._keep(name)
            state = self._next(name)
            cut = self._rng.choice([cut for cut in range(len(state.text)) if not _parses(state.text[:cut])])
            state.broken, state.missing = "torn", state.text[cut:]
            self._write(f"skills/{name}.py", state.text[:cut])

    def _copy(self) -> None:
        """Replace a file by one of the same size, and of the same time of modification: `cp -p`, or `mv`."""
        if name := self._some(broken=False):
            old = self._files[name]
            path, file = f"skills/{name}.py", self.root / f"skills/{name}.py"
            times = file.stat()
            text = self._next(name, name=old.name, variant=old.variant, imports=old.imports).text
            in_place = name != "m0" and self._rng.random() < 0.5
            new = file if in_place else file.with_name(f".{file.name}.draft")
            new.write_text(text, "utf-8")
            os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
            new.rename(file)
            assert file.stat().st_size == times.st_size
            self._wrote(path, text)

    def _restore(self) -> None:
        """Take back the last change of a file."""
        if (name := self._some(broken=False)) and name in self._past:
            state = self._past[name]
            self._keep(name)
            self._enter(name, state)
            self._write(f"skills/{name}.py", state.text, whole=True)

    def _break(self) -> None:
        if name := self._some(broken=False):
            kind = self._rng.choice(list(BROKEN))
            self._keep(name)
            self._files[name].broken = kind
            self._write(f"skills/{name}.py", BROKEN[kind], whole=name == "m0" or self._rng.random() < 0.5)

    def _mend(self) -> None:
        if self._settings_broken:
            self._save_settings(broken=False)
        elif name := self._some(broken=True):
            self._mend_one(name)

    def _mend_one(self, name: str) -> None:
        state = self._files[name]
        if not state.missing:
            self._put(name)
            return
        with (self.root / f"skills/{name}.py").open("a", encoding="utf-8") as file:
            file.write(state.missing)
        state.broken = state.missing = ""
        self._wrote(f"skills/{name}.py", state.text)

    def _absent(self) -> list[str]:
        return [name for name in (f"m{number}" for number in range(LAST + 1)) if name not in self._files]

    def _add(self) -> None:
        if absent := self._absent():
            self._put(self._rng.choice(absent))

    def _going(self) -> str | None:
        there = [name for name, state in self._files.items() if name not in {"m0", "m1"} and not state.broken]
        return self._rng.choice(there) if there else None

    def _delete(self) -> None:
        if name := self._going():
            del self._files[name], self.written[f"skills/{name}.py"]
            (self.root / f"skills/{name}.py").unlink()
            self.saves += 1

    def _rename(self) -> None:
        """A renamed file says what it said before, under its new name."""
        name, absent = self._going(), self._absent()
        if name and absent:
            new = self._rng.choice(absent)
            self._enter(new, self._files.pop(name))
            self.written[f"skills/{new}.py"] = self.written.pop(f"skills/{name}.py")
            (self.root / f"skills/{name}.py").rename(self.root / f"skills/{new}.py")
            self.saves += 1

    def _touch(self) -> None:
        file = self.root / "skills/steady.py"
        self._write("skills/steady.py", file.read_text("utf-8"), whole=True)

    def _edit_shared(self) -> None:
        self._shared += 1
        self._write("soak_shared.py", f"SHARED = {self._shared}\n", whole=True)

    def _edit_folder(self) -> None:
        self.version += 1
        self._write("skills/pack/scripts/part.py", f"VERSION = {self.version}\n", whole=True)

    def _save_settings(self, broken: bool | None = None) -> None:
        self._settings_broken = self._rng.random() < 0.4 if broken is None else broken
        self.settings_were_broken |= self._settings_broken
        text = SETTINGS.format(comment=self.saves)
        self._write("prowess.toml", f"{text}nonsense = 1\n" if self._settings_broken else text, whole=True)


def _parses(text: str) -> bool:
    with contextlib.suppress(SyntaxError):
        ast.parse(text)
        return True
    return False


class Announced:
    """The versions that one client was shown in lists. What it is shown or told later is never older."""

    def __init__(self, history: dict[str, list[int]]) -> None:
        self._history = history
        self._places: dict[str, int] = {}
        """How far each file is known to have come. A version that was restored has two places; the first one counts."""

    def take(self, tools: list[dict[str, Any]]) -> None:
        """A list of tools has come."""
        for tool in tools:
            if found := re.search(r"^Version (\d+)\.", tool.get("description", "")):
                name = tool["name"].removesuffix("_value")
                since, version = self.since(name), int(found[1])
                assert self.is_current(name, version, since), f"{name} is listed in version {version}, an older one"
                self._places[name] = self._history[name].index(version, since)

    def since(self, name: str) -> int:
        """The place of the oldest version that may still answer."""
        return self._places.get(name, 0)

    def is_current(self, name: str, version: int, since: int) -> bool:
        """Whether a version was saved at that place or later."""
        return version in self._history.get(name, [])[since:]
