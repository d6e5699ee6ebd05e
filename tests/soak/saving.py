"""The project under soak: which files it has, what was saved into them, and what clients should see in the end."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Project"]

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
VARIANTS = 3
LAST = 5
"""The moving files are called m0 to m5. m0 is always there, though perhaps broken, and always replaced at one stroke."""


@dataclass(slots=True)
class State:
    """What is in one file."""

    version: int
    variant: int
    broken: str = ""


class Project:
    """Saves files, one step at a time, and knows what they come to."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root
        self.saves = 0
        self.done: dict[str, int] = {}
        """How often each kind of save was made."""
        self.version = 0
        self._rng = rng
        self._files: dict[str, State] = {}
        self._shared = 0
        self._settings_broken = False
        self.settings_were_broken = False
        """Since somebody looked: while they are, no worker can be started."""
        self._steps: list[tuple[int, Callable[[], None]]] = [
            (8, self._edit),
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
        steady = Path(__file__).with_name("steady.py").read_text("utf-8")
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
            self._put(name)
        if self._settings_broken:
            self._save_settings(broken=False)

    def add(self, name: str) -> None:
        """A further file."""
        self._put(name)

    def spoil(self, name: str) -> None:
        """Break one file."""
        self._files[name].broken = "syntax"
        self._write(f"skills/{name}.py", BROKEN["syntax"], whole=True)

    def _write(self, path: str, text: str, *, whole: bool = False) -> None:
        file = self.root / path
        if whole:
            draft = file.with_name(f".{file.name}.draft")
            draft.write_text(text, "utf-8")
            draft.rename(file)
        else:
            file.write_text(text, "utf-8")
        self.saves += 1

    def _put(self, name: str) -> None:
        """A good version of a moving file."""
        self.version += 1
        rng = self._rng
        state = self._files[name] = State(self.version, rng.randrange(VARIANTS))
        imports, shared = ("from soak_shared import SHARED\n", "SHARED") if name == "m1" else ("", 0)
        if rng.random() < 0.1:
            imports += "import time\ntime.sleep(0.4)\n"
        text = MOVING.format(name=name, version=state.version, variant=state.variant, imports=imports, shared=shared)
        self._write(f"skills/{name}.py", text, whole=name == "m0" or rng.random() < 0.5)

    def _some(self, *, broken: bool) -> str | None:
        there = [name for name, state in self._files.items() if bool(state.broken) is broken]
        return self._rng.choice(there) if there else None

    def _edit(self) -> None:
        if name := self._some(broken=False):
            self._put(name)

    def _break(self) -> None:
        if name := self._some(broken=False):
            self._files[name].broken = kind = self._rng.choice(list(BROKEN))
            self._write(f"skills/{name}.py", BROKEN[kind], whole=name == "m0" or self._rng.random() < 0.5)

    def _mend(self) -> None:
        if self._settings_broken:
            self._save_settings(broken=False)
        elif name := self._some(broken=True):
            self._put(name)

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
            del self._files[name]
            (self.root / f"skills/{name}.py").unlink()
            self.saves += 1

    def _rename(self) -> None:
        """A renamed file says what it said before, under its new name."""
        name, absent = self._going(), self._absent()
        if name and absent:
            new = self._rng.choice(absent)
            self._files[new] = self._files.pop(name)
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
