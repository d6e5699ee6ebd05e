"""`pytest -n 4` runs the tests in four processes, which are forked once everything has been collected.

With pytest-xdist each process would import all modules and collect all tests for itself: six seconds of processor time each.
A module stays in one process, so what its tests share is set up once, and what it imports is imported once. The longest
modules come first, test by test if nothing is shared: at the end no process is left alone with much. A process that dies
costs the test it was running.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import itertools
import json
import os
import select
import socket
import tempfile
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest import tmpdir
from _pytest.capture import FDCapture

__all__ = ["folder_of_all", "pytest_addoption", "pytest_runtestloop"]

Group = list[int]
"""The places of tests that run one after the other in one process: those of a module, or a single one."""

LONGEST = tuple(
    """
    test_soak test_tutorial test_environments test_git test_supervisor test_process_tree test_documents test_adversity
    test_failed_starts test_python_clients test_node_clients test_quick test_limited_skills test_output test_agents test_lost_agents
    test_progress test_page test_serve test_fleet test_fetch test_drain test_replicas test_pauses test_start test_last_good test_catching_up
    test_shutdown test_reload test_api test_trial test_commands test_faults test_plugin test_staleness test_trust
    test_floods test_hostile test_memory test_attacks test_patterns
    """.split()
)
"""The modules that take longest, in about that order."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `-n`."""
    group = parser.getgroup("parallel", "parallel tests")
    group._addoption("-n", dest="processes", default="0", metavar="N", help="test processes, or auto: one per core")  # noqa: SLF001 - as xdist


def folder_of_all(folders: pytest.TempPathFactory) -> Path:
    """The temporary folder of this run that all test processes share."""
    base = folders.getbasetemp()
    return base.parent if base.name == str(os.getpid()) else base


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Have the tests run by other processes, if so many are wanted."""
    count = min(_count(session.config), len(session.items))
    if not count or session.testsfailed or session.config.option.collectonly:
        return None
    parent = _Parent(session)
    try:
        parent.run(count)
    finally:
        parent.end()
    return True


def _count(config: pytest.Config) -> int:
    wanted = config.option.processes
    if wanted != "auto":
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _groups(items: list[pytest.Item]) -> list[Group]:
    """The tests in the order in which they are dealt out."""
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    groups: list[tuple[int, Group]] = []
    for path, places in itertools.groupby(range(len(items)), lambda place: items[place].path):
        rank, module = ranks.get(path.stem, len(ranks)), list(places)
        apart = rank < len(ranks) and not any(_shares(items[place]) for place in module)
        groups += [(rank, [place]) for place in module] if apart else [(rank, module)]
    return [group for _, group in sorted(groups, key=lambda it: it[0])]


def _shares(item: pytest.Item) -> bool:
    """Whether a test uses a fixture that outlives it, other than those that all tests have: their home is no folder or module."""
    found = getattr(item, "_fixtureinfo", None)  # only functions have fixtures
    used = (each[-1] for each in found.name2fixturedefs.values()) if found else ()
    return any(each.scope != "function" and each.baseid for each in used)


class _Child:
    """A process that runs tests, as the parent sees it."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid = pid
        self.link = link
        self.left: Group = []
        """The tests that it has been given and has not finished."""
        self._unread = b""

    def messages(self) -> Iterator[list[Any]]:
        """What it said; nothing more comes after an empty message."""
        data = self.link.recv(1 << 20)
        *lines, self._unread = (self._unread + data).split(b"\n")
        yield from map(json.loads, lines)
        if not data:
            yield []


class _Parent:
    """Forks the processes, deals out the tests, and reports what became of them."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._items = session.items
        self._hook = session.config.hook
        self._groups = deque(_groups(self._items))
        self._children: dict[socket.socket, _Child] = {}

    def run(self, count: int) -> None:
        """Until all tests have run."""
        config = self._session.config
        config._tmp_path_factory.getbasetemp()  # noqa: SLF001 - all processes share the numbered folder
        if reporter := config.pluginmanager.getplugin("terminalreporter"):
            reporter.showfspath = False  # the tests of several files come in turn
            reporter.write_line(f"running {len(self._items)} tests in {count} processes, the longest first")
        gc.collect()
        gc.freeze()  # a collection in a process neither walks nor copies what all of them share
        for _ in range(count):
            self._fork()
        while self._children:
            for link in select.select(list(self._children), [], [])[0]:
                for message in self._children[link].messages():
                    self._take(self._children[link], *message)

    def end(self) -> None:
        """Give no more tests, and wait until each process has finished what it runs."""
        for child in self._children.values():
            child.link.close()
            os.waitpid(child.pid, 0)
        gc.freeze()  # pytest collects garbage five times before it leaves, and would walk all reports

    def _fork(self) -> None:
        ours, theirs = socket.socketpair()
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # numpy has threads of its own
            pid = os.fork()
        if not pid:
            for link in (ours, *self._children):
                link.close()
            _run(self._session, theirs)
        theirs.close()
        self._children[ours] = _Child(pid, ours)

    def _take(self, child: _Child, what: str = "", *facts: Any) -> None:
        """One message of a process."""
        match what:
            case "wants more":
                group = self._groups.popleft() if self._groups else []
                child.left += group
                child.link.sendall(json.dumps(group).encode() + b"\n")
            case "begins":
                item = self._items[facts[0]]
                self._hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            case "reports":
                report = self._hook.pytest_report_from_serializable(config=self._session.config, data=facts[0])
                if isinstance(report.longrepr, list):  # where and why a test was skipped; JSON knows no tuples
                    report.longrepr = tuple(report.longrepr)
                self._hook.pytest_runtest_logreport(report=report)
            case "ends":
                item = self._items[facts[0]]
                child.left.remove(facts[0])
                self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
                self._stop_if_wanted()
            case _:
                self._end_of(child)

    def _end_of(self, child: _Child) -> None:
        del self._children[child.link]
        child.link.close()
        code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        if not child.left:
            if code:
                raise pytest.UsageError(f"a test process ended with exit code {code} after its last test")
            return
        place, *others = child.left
        item = self._items[place]
        told = f"the process that ran this test ended with exit code {code}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", told, "call")
        self._hook.pytest_runtest_logreport(report=report)
        self._stop_if_wanted()
        if others:
            self._groups.appendleft(others)
        self._fork()

    def _stop_if_wanted(self) -> None:
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)


class _ToParent:
    """The plugin in a test process that hands reports on, in the place of the terminal's."""

    def __init__(self, config: pytest.Config, link: socket.socket) -> None:
        self._config = config
        self._link = link
        self._untold = bytearray()
        self._tw = config.get_terminal_writer()  # where pytest-timeout tells what hangs
        self._lines = link.makefile("rb")

    def tell(self, *message: Any, now: bool = False) -> None:
        """Say something to the parent, `now` or together with what is said later: each time wakes it up."""
        self._untold += json.dumps(message, default=str).encode() + b"\n"
        if now:
            self._link.sendall(self._untold)
            self._untold.clear()

    def more(self) -> Group:
        """The next tests; none when there are no more."""
        self.tell("wants more", now=True)
        return json.loads(self._lines.readline() or b"[]")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hand on what became of a test."""
        self.tell("reports", self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def _run(session: pytest.Session, link: socket.socket) -> NoReturn:
    """Be a process that runs tests. What it inherits from pytest's own end, like its exit handlers, stays with the parent."""
    code = 1
    try:
        atexit._clear()  # noqa: SLF001 - removes the temporary folders of earlier runs, for one
        parent = _prepared(session, link)
        while group := parent.more():
            for place, following in itertools.zip_longest(group, group[1:]):
                item = session.items[place]
                after = session if following is None else session.items[following]  # it outlives each of its tests
                parent.tell("begins", place, now=True)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                parent.tell("ends", place)
        session._setupstate.teardown_exact(None)  # noqa: SLF001 - as pytest does after the last test
        threading._shutdown()  # noqa: SLF001 - as the interpreter does at its end
        atexit._run_exitfuncs()  # noqa: SLF001 - as above
        code = 0
    except (ConnectionError, KeyboardInterrupt):  # the run is over for the parent
        with contextlib.suppress(BaseException):
            session._setupstate.teardown_exact(None)  # noqa: SLF001 - ends what fixtures have started
    except BaseException:  # noqa: BLE001 - it is shown
        traceback.print_exc()
    finally:
        os._exit(code)


def _prepared(session: pytest.Session, link: socket.socket) -> _ToParent:
    """This process with reports, captured output and temporary folders of its own."""
    config = session.config
    plugins = config.pluginmanager
    parent = _ToParent(config, link)
    plugins.unregister(name="terminalreporter")
    plugins.register(parent, "terminalreporter")
    if capture := plugins.getplugin("capturemanager"):
        _capture_apart(capture)
    folders = config._tmp_path_factory  # noqa: SLF001 - as in `run`
    folders._basetemp = Path(folders.getbasetemp(), str(os.getpid()))  # noqa: SLF001 - names are sought in a small folder
    folders._basetemp.mkdir()  # noqa: SLF001
    tmpdir._force_symlink = lambda *_: None  # noqa: SLF001 - a link to the newest folder of a name, anew for each test
    return parent


def _capture_apart(manager: Any) -> None:
    """Have files of its own under the captured stdout and stderr, which modules may have kept: all processes share the former ones."""
    manager.suspend_global_capture()
    captured = manager._global_capturing  # noqa: SLF001 - `--capture=fd`, which is the default
    for each in (captured.out, captured.err):
        if isinstance(each, FDCapture):
            with tempfile.TemporaryFile() as file:
                os.dup2(file.fileno(), each.tmpfile.fileno())
