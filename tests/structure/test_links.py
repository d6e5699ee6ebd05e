"""Every link of the documentation leads somewhere: to a file that exists, and to a heading in it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = sorted(ROOT.glob("docs/**/*.md"))
DOCUMENTS = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *SITE]
CODE = re.compile(r"^ *(`{3,}).*?^ *\1`* *$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def prose(text: str) -> str:
    """A text without its code."""
    return CODE.sub("", text)


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    fences = re.sub(r"^ *(`{3,}).*?^ *\1`* *$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {anchor(match[1]) for match in HEADING.finditer(fences)}


def broken(path: Path, text: str) -> list[str]:
    """The links of a document that lead nowhere."""
    found: list[str] = []
    for link in LINK.findall(prose(text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, fragment = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        leaves_site = path in SITE and target.suffix == ".md" and target not in SITE
        if not target.exists() or leaves_site or (fragment and fragment not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_links_lead_somewhere(path: Path) -> None:
    """A page of the site links only to pages of the site."""
    assert [] == broken(path, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("link", ["missing.md", "settings.md#no-such-heading", "#nowhere", "../CONTRIBUTING.md"])
def test_broken_link_is_found(link: str) -> None:
    assert [link] == broken(ROOT / "docs/index.md", f"# Title\n\nSee [this]({link}).")


def test_links_in_code_are_examples() -> None:
    assert [] == broken(ROOT / "docs/index.md", "`[a](b.md)`\n\n```text\n[a](b.md)\n```\n")


def test_every_page_is_in_the_navigation() -> None:
    """A page that the site does not list is lost, and an entry without a page breaks the build."""
    nav = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    entries = [
        page for section in nav for pages in section.values() for page in ([pages] if isinstance(pages, str) else pages)
    ]

    assert sorted(path.name for path in SITE) == sorted(entries)


def test_pictures_load_nothing_from_elsewhere() -> None:
    """A picture works offline, and tells no other host that somebody reads the page."""
    pictures = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("docs/**/*.svg")}

    assert {} == {
        name: found
        for name, text in pictures.items()
        if (found := re.findall(r"(?:url\(|href=)[\"']?http[^\s)\"']*", text))
    }
