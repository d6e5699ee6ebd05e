"""Builds the documentation site with Zensical, and checks what was built. Run it with `make docs`.

Zensical itself fails on a link to a page or a heading that does not exist. This script adds what Zensical does not
check: nothing is loaded from another host, every local address exists, every code fence became a code block, and every
page stands in the navigation.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "site"
CONFIG = ROOT / "zensical.toml"
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}
LEFT_ALONE = {"404.html"}  # its addresses start at the root of a host


def main() -> None:
    """Build the site; exit with 1 if anything is wrong with it."""
    command = [Path(sys.executable).parent / "zensical", "build", "--strict", "--clean", "--config-file", CONFIG]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        sys.exit("docs: the site was not built")
    problems = [*unlisted_pages(), *(problem for page in sorted(SITE.rglob("*.html")) for problem in problems_of(page))]
    if problems:
        sys.exit("\n".join(["docs: the site has faults", *problems]))
    print(f"docs: {SITE / 'index.html'} is ready")


class Page(HTMLParser):
    """What a built page loads, where it links to, the anchors it has, and its text outside of code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.prose: list[str] = []
        self._in_code = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get("rel") != "canonical" and given.get(LOADED.get(tag, "")):
            self.loaded.append(given[LOADED[tag]])
        if "mermaid" in given.get("class", "").split():
            self.loaded.append("https://unpkg.com/mermaid")  # the theme's script fetches it for such a block
        self._in_code += tag in ("code", "script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._in_code -= tag in ("code", "script", "style")

    def handle_data(self, data: str) -> None:
        if not self._in_code:
            self.prose.append(data)


def problems_of(file: Path) -> Iterator[str]:
    """Everything that is wrong with one built page."""
    name = file.relative_to(SITE)
    page = Page(file.read_text(encoding="utf-8"))
    for address in page.loaded:
        if urlsplit(address).netloc:
            yield f"{name}: loads {address} from another host"
    if "```" in "".join(page.prose):
        yield f"{name}: a code fence was not recognised: its options must be written as key=value"
    if str(name) not in LEFT_ALONE:
        yield from (f"{name}: {link} leads nowhere" for link in page.links + page.loaded if not leads(file, page, link))


def leads(file: Path, page: Page, link: str) -> bool:
    """Whether a link of a page has a target. Links to other hosts are not followed."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return False
    if not parts.fragment or parts.fragment.startswith("__"):  # the theme's own
        return True
    there = page if target == file else Page(target.read_text(encoding="utf-8"))
    return unquote(parts.fragment) in there.anchors


def unlisted_pages() -> Iterator[str]:
    """Pages that no entry of the navigation leads to."""
    listed = set(
        re.findall(r'"([\w-]+\.md)"', str(tomllib.loads(CONFIG.read_text("utf-8"))["project"]["nav"]).replace("'", '"'))
    )
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    yield from (f"docs/{name} is missing from nav in {CONFIG.name}" for name in sorted(pages - listed))


if __name__ == "__main__":
    main()
