"""The front matter of Agent Skills."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from piped import Client, hosted, make_project, write_skill

from prowess_host.clients.machine import Machine
from prowess_host.doctor.checks import CheckedProject, examine
from prowess_host.files import served_files
from prowess_host.files.served_files import FileSources, look
from prowess_host.files.skill_folders import read_front_matter

GOOD = "---\nname: pdf-tools\ndescription: Work with PDFs.\n"


def test_front_matter_is_kept_as_it_was_written() -> None:
    """Dates and versions stay texts, further fields stay."""
    text = f"{GOOD}license: MIT\nmetadata:\n  when: 2026-01-01\n  number: 1\n---\nBody\n---\n"
    fields, problems = read_front_matter(text.encode(), "pdf-tools")
    assert {
        "name": "pdf-tools",
        "description": "Work with PDFs.",
        "license": "MIT",
        "metadata": {"when": "2026-01-01", "number": 1},
    } == fields
    assert [] == problems


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("Body", 1, "must begin with front matter"),
        ("---\nname: a", 1, "must begin with front matter"),
        ("\n---\nname: a\n---", 1, "must begin with front matter"),
        ("---\n- a\n---", 2, "without fields"),
        ("---\nname: [a\n---", 2, "has invalid YAML"),
        ("---\nname: a\nname: b\n---", 3, "has invalid YAML"),
        ("---\na: &x 1\nb: *x\n---", 2, "aliases"),
        ("---\nname: a\nnumber: .nan\n---", 2, "JSON cannot represent"),
        ('---\nname: a\nmetadata:\n  a: "\\ud800"\n---', 2, "JSON cannot represent"),
        ("---\nname: a\nx: " + "y" * 70_000 + "\n---", 1, "more than 65536"),
        ("---\ndescription: b\n---", 2, "has no name"),
        ("---\nname: a\n---", 2, "has no description"),
        (f"{GOOD.replace('pdf-tools', 'PDF')}---", 2, "use lowercase"),
        (f"{GOOD.replace('pdf-tools', 'a--b')}---", 2, "use lowercase"),
        (f"{GOOD.replace('pdf-tools', 'other')}---", 2, "both must be the same"),
        (f"{GOOD.replace('pdf-tools', '5')}---", 2, "a name that is not a string"),
        ("---\nname: pdf-tools\ndescription: " + "x" * 1025 + "\n---", 3, "at most 1024"),
        (f"{GOOD}compatibility: {'x' * 501}\n---", 4, "at most 500"),
        (
            '---\nname: pdf-tools\ndescription: "a\\u202eb"\n---',
            3,
            "hides something in its front matter: description has",
        ),
        (f"{GOOD}metadata:\n  a: x\u200b\n---", 3, "hides something in its front matter: metadata.a has"),
    ],
)
def test_what_breaks_the_format_is_named_with_its_line(text: str, line: int, reason: str) -> None:
    """So that it can be mended."""
    _, problems = read_front_matter(text.encode(), "pdf-tools")
    assert any((line, True) == (each.line, each.fatal) and reason in each.reason for each in problems), problems


def test_what_is_only_odd_is_told_and_offered_all_the_same() -> None:
    """Unknown fields pass through, as the extension wants it."""
    fields, problems = read_front_matter(f"{GOOD}author: me\nmetadata: 5\nlicense: 5\n---".encode(), "pdf-tools")
    assert "me" == fields["author"]
    assert [(4, False), (5, False), (6, False)] == sorted((each.line, each.fatal) for each in problems)
    assert "is not UTF-8" in read_front_matter(b"\xff", "a")[1][0].reason
    _, problems = read_front_matter(f"{GOOD}author: me\n1: one\n~: none\n---".encode(), "pdf-tools")
    assert [(4, False), (5, False), (2, False)] == [
        (each.line, each.fatal)
        for name in ("'author'", "1", "None")
        for each in problems
        if f"field {name}," in each.reason
    ], "YAML has fields whose names are not texts"


def test_a_broken_skill_is_told_and_not_offered(tmp_path: Path) -> None:
    """The others are."""
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text("---\nname: good\ndescription: d\n---\n")
    (tmp_path / "linked").symlink_to(tmp_path / "good")
    index = look(FileSources(tmp_path, {}, (tmp_path, tmp_path / "nowhere")))
    assert ["skill://good/SKILL.md"] == list(index.skills)
    assert [True] == [
        str(problem).startswith(f"{tmp_path / 'bad/SKILL.md'}:2 has the name") for problem in index.problems
    ]


def test_a_fault_of_ours_costs_one_skill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the others are served."""
    for name in ("good", "odd"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n")

    def read(text: bytes, folder: str) -> object:
        if folder == "odd":
            raise TypeError("a fault")
        return read_front_matter(text, folder)

    monkeypatch.setattr(served_files, "read_front_matter", read)
    index = look(FileSources(tmp_path, {"odd": "odd/*"}, (tmp_path,)))
    assert (["skill://good/SKILL.md"], ["odd://SKILL.md"]) == (list(index.skills), list(index.files)[:1])
    (problem,) = index.failures
    assert "could not be read: TypeError: a fault; the skill is not offered to clients" in str(problem)


def test_a_skill_that_clients_would_refuse_is_not_offered(tmp_path: Path) -> None:
    """There are limits for all."""
    (tmp_path / "many").mkdir()
    (tmp_path / "many/SKILL.md").write_text("---\nname: many\ndescription: d\n---\n")
    for number in range(512):
        (tmp_path / f"many/{number}.md").touch()
    index = look(FileSources(tmp_path, {}, (tmp_path,)))
    assert {} == index.skills
    assert "more than 512 files" in str(index.problems[0])


@pytest.mark.parametrize(
    ("scheme", "pattern", "reason"),
    [
        ("Docs", "docs/*", "lowercase"),
        ("1docs", "docs/*", "lowercase"),
        ("d_s", "docs/*", "lowercase"),
        ("file", "docs/*", "mean something else"),
        ("skill", "docs/*", "mean something else"),
        ("docs", "../*", "must not contain .. or name hidden files"),
        ("docs", "out/*", "leads out of the project"),
        ("docs", "docs/[z-a].md", "cannot be matched"),
        ("docs", "docs/[!]", "cannot be matched"),
    ],
)
def test_a_setting_that_serves_nothing_says_why(tmp_path: Path, scheme: str, pattern: str, reason: str) -> None:
    """With the setting."""
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "good").mkdir()
    (tmp_path / "good/a.md").touch()
    index = look(FileSources(tmp_path, {scheme: pattern, "good": "good/*"}))
    assert ["good://a.md"] == list(index.files), "the others are served all the same"
    (problem,) = index.problems
    assert str(problem).startswith(f"[resources] {scheme} = {pattern!r} serves nothing: ")
    assert reason in str(problem)


async def until_listed(host: Client, names: list[str]) -> None:
    """Until these tools are listed; each other list is followed by news."""
    count = 0
    while names != await host.tools():
        count += 1
        await host.noted("notifications/tools/list_changed", count)


async def test_a_broken_skill_folder_is_a_failure_until_it_is_mended(tmp_path: Path) -> None:
    """In the diagnostics of a running host, and for the doctor."""
    project = make_project(tmp_path / "p", plain="@skill_command\ndef one() -> int:\n    return 1\n")
    write_skill(project, "pdf-tools/SKILL.md", "")
    file = project / "skills" / "pdf-tools" / "SKILL.md"
    file.write_text("---\nname: other\ndescription: d\n---\n")
    patient = CheckedProject(project, Machine("linux", tmp_path, {"PATH": os.environ["PATH"]}), {}, live=False)
    found = [each async for each in examine(patient) if "SKILL.md" in each.message]
    assert [("skills", "error")] == [(each.area, each.level) for each in found]
    async with hosted(project, forked=True) as host:
        await until_listed(host, ["plain_one", "prowess_diagnostics"])
        assert f"pdf-tools ({file}:2): SKILL.md has the name 'other'" in await host.text("prowess_diagnostics")
        file.write_text("---\nname: pdf-tools\ndescription: d\n---\n")
        await until_listed(host, ["plain_one"])
