"""The fetch skill, against a real server on this machine."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE

from prowess import SkillError

LOCAL = ["127.0.0.1"]


@dataclass
class Reply:
    """What the server says to one request."""

    body: bytes | str = b""
    type: str | None = "text/plain"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None


@dataclass
class Web:
    """A web server of our own: what it replies to which path, and what it was asked."""

    base: str = ""
    replies: dict[str, Reply | list[Reply] | Callable[[Any], Reply]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    def reply(self, handler: BaseHTTPRequestHandler) -> Reply:
        self.asked.append((handler.path, {name.lower(): value for name, value in handler.headers.items()}))
        reply = self.replies.get(handler.path, Reply("nothing here", status=404))
        if callable(reply):
            return reply(handler)
        if isinstance(reply, list):
            return reply.pop(0) if len(reply) > 1 else reply[0]
        return reply


def serve(web: Web, context: ssl.SSLContext | None = None) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reply = web.reply(self)
            body = reply.body.encode() if isinstance(reply.body, str) else reply.body
            self.send_response(reply.status)
            if reply.type is not None:
                self.send_header("Content-Type", reply.type)
            self.send_header("Content-Length", str(len(body) if reply.length is None else reply.length))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Be quiet."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A client that hangs up, or does not trust us, is what some tests are about."""

    server = Server(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    web.base = f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}"
    return server


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    server = serve(web)
    yield web
    server.shutdown()
    server.server_close()


@pytest.fixture
def online(project: Any) -> Any:
    """A project that may reach our server."""
    return lambda **settings: project(fetch__private_hosts=LOCAL, **settings)


# --- pages ----------------------------------------------------------------------------------------

PAGE = """<!doctype html><html><head><title> A  page
</title><style>p {}</style><script>if (a < b) alert("no")</script></head><body><nav><a href="/home">Home</a></nav>
<h1>Fruit &amp; more</h1><p>An   <b>apple</b>, a
<a href="pear?x=1#top">pear</a>.<br>Next line</p><ul><li>one</li><li>two</ul>
<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>
<pre>def f():
    return  1
</pre><noscript>Enable JavaScript</noscript><img alt="a picture" src=x><a href="#top"> </a></body></html>"""

TEXT = """Home

# Fruit & more

An apple, a pear.
Next line

- one
- two

 | a | b

 | 1 | 2

```
def f():
    return  1

```

a picture"""


async def test_html_becomes_readable_text(online: Any, web: Web):
    """Headings, paragraphs, lists, rows and code; no scripts, no styles."""
    web.replies["/"] = Reply(PAGE, "text/html; charset=utf-8")
    async with online() as opened:
        result = await opened.ok("fetch.get", url=web.base)

    assert {"url": web.base, "type": "text/html", "title": "A page", "text": TEXT} == result


async def test_links_are_shown_when_asked(online: Any, web: Web):
    """With the whole address, to go on from there."""
    web.replies["/a/b"] = Reply(PAGE, "text/html")
    async with online() as opened:
        text = (await opened.ok("fetch.get", url=f"{web.base}/a/b", links=True))["text"]

    assert f"[Home]({web.base}/home)" in text
    assert f"a [pear]({web.base}/a/pear?x=1#top)." in text


async def test_raw_is_what_the_server_sent(online: Any, web: Web):
    """Nothing is taken out."""
    web.replies["/"] = Reply(PAGE, "text/html")
    async with online() as opened:
        assert {"url": f"{web.base}/", "type": "text/html", "text": PAGE} == await opened.ok(
            "fetch.get", url=f"{web.base}/#part", format="raw"
        )


async def test_tag_soup_does_no_harm(fetch_module: ModuleType):
    """Whatever ends that never began, or begins and never ends."""
    reader = fetch_module.HtmlReader("http://x/", links=True)
    reader.feed(
        "</a></pre></script></p>one<a href='y'>two<a>three</a></a><a href='javascript:x'>four</a><svg><title>no"
    )
    reader.close()

    assert "one[two](http://x/y)threefour" == reader.text()


TAGS = "<a href=|http://[x|<![|<!--|-->|<pre>|</pre>|<svg>|</svg>|&#|&amp;|<title>|</title>|<table><td>|<script>|</script>|<p>|<b>|</i>|<br/>"
SOUP = st.lists(st.sampled_from([*"<>/!-[]'\"= a&;\n\0é", *TAGS.split("|")]), max_size=40)


def converted(fetch_module: ModuleType, *parts: str) -> Any:
    reader = fetch_module.HtmlReader("http://x/", links=True)
    for part in parts:
        reader.feed(part)
    reader.close()
    return reader


@given(SOUP)
def test_no_page_breaks_the_reader(fetch_module: ModuleType, pieces: list[str]):
    """Any input is converted, with balanced counters, and in no more reports than it has characters."""
    reader = converted(fetch_module, "".join(pieces))

    assert "" == reader.note
    assert isinstance(reader.text(), str)
    assert 0 == reader._page._depth == reader._page._skipped == reader._page._code
    assert reader._page._reports <= 3 * len("".join(pieces)) + 10


def many(piece: str, size: int) -> str:
    return piece * (size // len(piece))


PATHOLOGICAL: dict[str, Callable[[int], str]] = {
    "spaces in pre": lambda size: "<pre>" + " " * size,
    "many pre with spaces": lambda size: many("<pre>" + " " * 95, size),
    "unfinished tags": lambda size: many("<a", size),
    "less than": lambda size: "<" * size,
    "ampersands": lambda size: "&" * size,
    "unfinished references": lambda size: many("&#", size),
    "one long reference": lambda size: "&am" + "p" * size,
    "unfinished comments": lambda size: many("<!--", size),
    "unfinished end tags": lambda size: many("</", size),
    "unfinished values": lambda size: many('<a href="', size),
    "unfinished declarations": lambda size: many("<![CDATA[", size),
    "scripts in a script": lambda size: "<script><!--" + many("<script>", size),
    "attributes": lambda size: "<p " + " ".join(f"a{number}=1" for number in range(size // 9)) + ">",
    "nested divisions": lambda size: many("<div>", size),
    "nested tables": lambda size: many("<table>x", size),
    "ends that never began": lambda size: many("<b>", size // 2) + many("</i>", size // 2),
    "shallow ends that never began": lambda size: "<b>" * 900 + many("</i>", size),
    "formatting to repeat": lambda size: (
        "<p>" + "".join(f"<b id={number}>" for number in range(size // 30)) + "</p>" + many("<p>x", size // 2)
    ),
    "nested links": lambda size: many("<a href=x><b>", size // 2) + "text" + many("</b></a>", size // 2),
    "links of spaces": lambda size: many("<a href=x> ", size),
    "headings": lambda size: many("<h1>", size),
    "line breaks": lambda size: "<pre>" + "\n" * size + "<br>" * 9,
    "zero bytes": lambda size: "\0" * size,
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PATHOLOGICAL)
def test_pathological_page_is_converted(fetch_module: ModuleType, page: str):
    """A page of 1 MB, made to be slow, takes no longer than its size; quadratic work would take hours."""
    text = PATHOLOGICAL[page](1_000_000)
    reader = converted(fetch_module, *[text[at : at + 16384] for at in range(0, len(text), 16384)])

    assert len(reader.text()) <= 2 * fetch_module.MOST_TEXT


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page", ["many pre with spaces", "unfinished tags", "nested divisions", "formatting to repeat"]
)
def test_work_grows_with_the_size_and_no_faster(fetch_module: ModuleType, page: str):
    """Ten times the page makes at most ten times the reports, with some slack, and never more than the bound."""
    small, large = (converted(fetch_module, PATHOLOGICAL[page](size))._page._reports for size in (10_000, 100_000))

    assert large <= 12 * small + 100
    assert large <= fetch_module.MOST_REPORTS


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", ["spaces in pre", "unfinished tags", "ends that never began", "formatting to repeat"])
async def test_pathological_page_is_answered(online: Any, web: Web, page: str):
    """The call that once lost its worker succeeds."""
    web.replies["/"] = Reply("<title>slow</title>" + PATHOLOGICAL[page](300_000), "text/html")
    async with online(fetch__seconds=600) as opened:
        assert "slow" == (await opened.ok("fetch.get", url=web.base))["title"]


@pytest.mark.parametrize(
    "page, limit, note",
    [
        ("<p>begin" + "<div>" * 2_000 + "end", {}, "nested more than 1,000 deep"),
        ("<p>begin" + "<br>" * 100 + "end", {"MOST_REPORTS": 100}, "more than 100 elements and texts"),
        ("<p>begin" + "<a href=1>x</a>" * 100 + "end", {"MOST_TEXT": 1000}, "more than 1,000 characters of text"),
    ],
)
def test_page_that_is_too_much_is_cut_and_says_so(
    fetch_module: ModuleType, monkeypatch: pytest.MonkeyPatch, page: str, limit: dict[str, int], note: str
):
    """What was converted before the limit is there; the note says why the rest is not."""
    for name, value in limit.items():
        monkeypatch.setattr(fetch_module, name, value)
    reader = converted(fetch_module, page, "more")

    assert reader.text().startswith("begin")
    assert "end" not in reader.text()
    assert note in reader.note


async def test_note_says_what_was_not_converted(online: Any, web: Web):
    """A model learns that the text is only the beginning."""
    web.replies["/"] = Reply("<p>begin" + "<div>" * 2_000 + "end", "text/html")
    async with online() as opened:
        result = await opened.ok("fetch.get", url=web.base)

    assert "begin" == result["text"]
    assert "nested more than 1,000 deep" in result["note"]


async def test_missing_html_library_is_a_clear_failure(online: Any, web: Web, monkeypatch: pytest.MonkeyPatch):
    """It says what to install. Everything that is not HTML works without it."""
    monkeypatch.setitem(sys.modules, "lxml.etree", None)
    web.replies["/"] = Reply("<p>x", "text/html")
    async with online() as opened:
        assert 'pip install "lxml>=6"' in await opened.failed("fetch.get", url=web.base)
        assert "<p>x" == (await opened.ok("fetch.get", url=web.base, format="raw"))["text"]


@pytest.mark.parametrize("page", ["", " ", "\n", "<!-- -->", "<", "<!doctype html>"])
async def test_page_without_content_is_an_empty_text(online: Any, web: Web, page: str):
    """An empty page is a page."""
    web.replies["/"] = Reply(page, "text/html")
    async with online() as opened:
        assert (await opened.ok("fetch.get", url=web.base))["text"] in ("", "<")


@pytest.mark.parametrize(
    "body, kind, text",
    [
        ("é".encode(), "text/plain", "é"),
        ("é".encode("latin-1"), "text/plain; charset=ISO-8859-1", "é"),
        ("€".encode("cp1252"), "text/plain; charset=iso-8859-1", "€"),
        ("日本".encode("shift_jis"), "text/plain; charset=Shift_JIS", "日本"),
        ("\ufeffé".encode(), "text/plain; charset=latin-1", "é"),
        ("é".encode("utf-16"), "text/plain", "é"),
        ("é".encode("utf-16-le"), "text/plain; charset=utf-16-le", "é"),
        (b'<meta charset="windows-1252">\xe9', "text/html", "é"),
        (b"<meta http-equiv=x content='text/html; charset=koi8-r'>\xc1", "text/html", "а"),
        (b"\xff", "text/plain; charset=no-such-thing", "\ufffd"),
        (b'<meta charset="utf-16">plain', "text/html", "plain"),
        ('<?xml version="1.0" encoding="ISO-8859-1"?><p>é'.encode("latin-1"), "application/xhtml+xml", "é"),
        (b"abc-", "text/plain; charset=punycode", "abc-"),
        (b"YQ==", "text/plain; charset=base64", "YQ=="),
        (b'{"a": 1}', "application/vnd.api+json", '{"a": 1}'),
        (b"no type", None, "no type"),
        (b"", "text/plain", ""),
    ],
)
async def test_charset_is_found(online: Any, web: Web, body: bytes, kind: str | None, text: str):
    """A mark at the beginning, then the header, then the page itself, else UTF-8; only charsets of texts count."""
    web.replies["/"] = Reply(body, kind)
    async with online() as opened:
        assert text == (await opened.ok("fetch.get", url=web.base))["text"]


@pytest.mark.parametrize(
    "reply, says",
    [
        (Reply(b"\x89PNG\r\n", "image/png"), "is no text: image/png, 6 bytes"),
        (Reply(b"a\0b", "text/plain"), "is no text: text/plain, 3 bytes"),
        (Reply(b"a\0b", None), "is no text: data, 3 bytes"),
        (Reply(b"x" * 200, "video/mp4"), "is no text: video/mp4, more than 100 bytes"),
    ],
)
async def test_what_is_no_text_is_refused(online: Any, web: Web, reply: Reply, says: str):
    """With what it is, and how large."""
    web.replies["/"] = reply
    async with online(fetch__max_bytes=100) as opened:
        assert f"{web.base} {says}" == await opened.failed("fetch.get", url=web.base)


# --- bounds ---------------------------------------------------------------------------------------


async def test_long_page_is_read_in_parts(online: Any, web: Web):
    """The note says how to go on, until the end."""
    web.replies["/"] = Reply("0123456789")
    async with online() as opened:
        begin = await opened.ok("fetch.get", url=web.base, max_chars=6)
        web.replies["/"] = Reply("something else")
        end = await opened.ok("fetch.get", url=web.base, max_chars=6, start=6)
        beyond = await opened.ok("fetch.get", url=web.base, start=10)
        anew = await opened.ok("fetch.get", url=web.base, max_chars=8)

    assert ("012345", "the page has 10 characters: go on with start=6") == (begin["text"], begin["note"])
    assert "6789" == end["text"]
    assert re.fullmatch(r"the page as it was at \d\d:\d\d:\d\d UTC, so that its parts fit together", end["note"])
    assert ("", True) == (beyond["text"], beyond["note"].startswith("the page has only 10 characters; the page as it"))
    assert "somethin" == anew["text"]
    assert 2 == len(web.asked)


async def test_long_pages_are_kept_for_a_while_and_within_bounds(fetch_module: ModuleType):
    """The oldest one goes first, and none is shown as if it were new."""
    keep, kept, now = fetch_module._keep, fetch_module._kept_reading, datetime.now(UTC)
    page = fetch_module.Reading("u", "text/plain", "x" * (fetch_module.MOST_KEPT // 2), "", "", now)
    for name in ("a", "b", "a", "c"):
        keep(name, page)
    assert [True, False, True] == [kept(name) is page for name in ("a", "b", "c")]
    keep("old", page._replace(text="x", at=now - fetch_module.KEPT_FOR - timedelta(seconds=1)))
    assert None is kept("old")


@pytest.mark.parametrize("packed", [False, True])
async def test_page_is_read_up_to_a_limit(online: Any, web: Web, packed: bool):
    """Unpacked: a few bytes can be packed that would fill the memory."""
    body = b"x" * 50_000_000 if packed else b"x" * 5000
    headers = {"Content-Encoding": "gzip"} if packed else {}
    web.replies["/"] = Reply(gzip.compress(body) if packed else body, headers=headers)
    async with online(fetch__max_bytes=1000) as opened:
        result = await opened.ok("fetch.get", url=web.base)

    assert ("x" * 1000, "only the first 1,000 bytes of the page were read") == (result["text"], result["note"])


def packed(data: bytes) -> bytes:
    """The same bytes whenever it is made: they are part of a test's name."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize("coding, pack", [("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)])
async def test_packed_page_is_unpacked(online: Any, web: Web, coding: str, pack: Callable[[bytes], bytes]):
    """Also in the coding that nobody asked for, but some servers love."""
    web.replies["/"] = Reply(pack(b"page" * 50_000), headers={"Content-Encoding": coding})
    async with online() as opened:
        assert "page" * 50_000 == (await opened.ok("fetch.get", url=web.base, max_chars=200_000))["text"]


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    "coding, body",
    [
        ("gzip", packed(b"one") + packed(b"") * 3 + packed(b"two")),
        ("gzip", packed(b"onetwo") + b"\0" * 512),
        ("GZIP", packed(b"onetwo")),
        ("x-gzip", packed(b"onetwo")),
        ("deflate", raw_deflate(b"onetwo")),
        ("deflate", zlib.compress(b"onetwo") + b"more"),
    ],
)
async def test_odd_packings_are_unpacked(online: Any, web: Web, coding: str, body: bytes):
    """Several gzip files in a row, padding behind them, and "deflate" without its header, as browsers read them."""
    web.replies["/"] = Reply(body, headers={"Content-Encoding": coding})
    async with online() as opened:
        assert "onetwo" == (await opened.ok("fetch.get", url=web.base))["text"]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_packed_page_that_breaks_off_is_tried_again(online: Any, web: Web, coding: str):
    """Half of a packed page is not a page, also where the length is right."""
    whole = (gzip.compress if coding == "gzip" else zlib.compress)(bytes(range(32, 127)) * 9)
    headers = {"Content-Encoding": coding}
    web.replies["/"] = [Reply(whole[:-9], headers=headers), Reply(whole, headers=headers)]
    async with online() as opened:
        assert 2 == (await opened.call("fetch.get", url=web.base)).attempts


BOMB = gzip.compress(b"x" * 50_000_000)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "coding, body",
    [
        ("gzip", BOMB),
        ("deflate", zlib.compress(b"x" * 50_000_000)),
        ("deflate", raw_deflate(b"x" * 50_000_000)),
        ("gzip", packed(b"xxxx") * 300_000),
    ],
)
async def test_bomb_is_unpacked_only_as_far_as_allowed(online: Any, web: Web, coding: str, body: bytes):
    """The note says that the page goes on."""
    web.replies["/"] = Reply(body, headers={"Content-Encoding": coding})
    async with online(fetch__max_bytes=100_000, fetch__seconds=600) as opened:
        result = await opened.ok("fetch.get", url=web.base, max_chars=200_000)

    assert ("x" * 100_000, "only the first 100,000 bytes of the page were read") == (result["text"], result["note"])


def test_bomb_is_never_unpacked_into_one_piece(fetch_module: ModuleType):
    """However much a piece unpacks to, it comes in parts of the size asked for."""
    packed = fetch_module.Packed("http://x/", "gzip")
    parts = packed.unpack(BOMB[:16384], 1000)

    assert [1000] * 50 == [len(next(parts)) for _ in range(50)]


async def test_bomb_in_a_bomb_stays_packed(online: Any, web: Web):
    """What is packed twice is not unpacked twice: the inner one is data, or a coding nobody asked for."""
    web.replies["/one"] = Reply(gzip.compress(BOMB), "application/gzip", headers={"Content-Encoding": "gzip"})
    web.replies["/two"] = Reply(gzip.compress(BOMB), headers={"Content-Encoding": "gzip, gzip"})
    async with online() as opened:
        assert "is no text: application/gzip" in await opened.failed("fetch.get", url=f"{web.base}/one")
        assert "which nobody asked for" in await opened.failed("fetch.get", url=f"{web.base}/two")


async def test_page_is_read_up_to_the_default_limit(online: Any, web: Web, fetch_module: ModuleType):
    """Two megabytes, without any setting."""
    web.replies["/"] = Reply("x" * 3_000_000)
    async with online() as opened:
        result = await opened.ok("fetch.get", url=web.base, start=1_999_990, max_chars=100)

    assert ("x" * 10, "only the first 2,000,000 bytes of the page were read") == (result["text"], result["note"])


@pytest.mark.parametrize(
    "coding, says", [("gzip", "is not packed as its server says"), ("br", "which nobody asked for")]
)
async def test_page_that_cannot_be_unpacked_is_refused(online: Any, web: Web, coding: str, says: str):
    """Another attempt would not help."""
    web.replies["/"] = Reply("plain", headers={"Content-Encoding": coding})
    async with online() as opened:
        assert says in await opened.failed("fetch.get", url=web.base)
    assert 1 == len(web.asked)


# --- where requests may go ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    "127.0.0.1 10.1.2.3 192.168.0.1 172.16.0.1 169.254.169.254 0.0.0.0 100.64.0.1 224.0.0.1 255.255.255.255 240.0.0.1 "
    "::1 :: fe80::1 fe80::1%eth0 fc00::1 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::127.0.0.1 2002:7f00:1:: "
    "2001:0:4136:e378:8000:63bf:80ff:fffe 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe ::ffff:0:7f00:1 64:ff9b:1::7f00:1 fec0::1 "
    "100::1 5f00::1".split(),
)
def test_private_address_is_not_public(fetch_module: ModuleType, address: str):
    """Nor is one that wraps a private one."""
    assert not fetch_module.is_public(address)


@pytest.mark.parametrize("address", "1.1.1.1 93.184.216.34 2606:4700::1111 ::ffff:1.1.1.1 64:ff9b::101:101".split())
def test_public_address_is(fetch_module: ModuleType, address: str):
    """Also behind NAT64, where all of IPv4 looks like that."""
    assert fetch_module.is_public(address)


@pytest.mark.parametrize(
    "host",
    "127.0.0.1 localhost 2130706433 0x7f.1 0x7f000001 0177.0.0.1 017700000001 127.1 [::1] [::ffff:127.0.0.1] "
    "[::ffff:7f00:1] [64:ff9b::7f00:1] [::127.0.0.1] 0 127.0.0.1. １２７.0.0.1 127。0。0。1".split(),
)
async def test_private_network_is_off_limits(project: Any, web: Web, host: str):
    """However it is written; the message tells the user what to do."""
    async with project() as opened:
        outcome = await opened.call("fetch.get", url=f"http://{host}:{web.port}/")

    assert "failed" == outcome.kind
    assert "is in a private network" in outcome.text or "there is no host" in outcome.text
    assert [] == web.asked


@pytest.mark.parametrize("hosts", [["127.0.0.1"], ["*"], ["other", "127.*"], "localhost, 127.0.0.1"])
async def test_user_allows_private_hosts(project: Any, web: Web, hosts: Any):
    """By name or pattern; from the environment, which has no lists, by commas."""
    web.replies["/"] = Reply("ok")
    async with project(fetch__private_hosts=hosts) as opened:
        assert "ok" == (await opened.ok("fetch.get", url=web.base))["text"]


async def test_redirect_is_followed(online: Any, web: Web):
    """The page says where it came from in the end."""
    web.replies["/a"] = Reply(status=301, headers={"Location": "b?x=ü"})
    web.replies["/b?x=%C3%BC"] = Reply(status=307, headers={"Location": f"{web.base}/c"})
    web.replies["/c"] = Reply("there")
    async with online() as opened:
        assert {"url": f"{web.base}/c", "type": "text/plain", "text": "there"} == await opened.ok(
            "fetch.get", url=f"{web.base}/a"
        )


@pytest.mark.parametrize(
    "location, says",
    [
        ("http://localhost:{port}/", "localhost is in a private network"),
        ("//localhost:{port}/", "localhost is in a private network"),
        ("http://[::1]/", "::1 is in a private network"),
        ("http://[::ffff:127.0.0.1]:{port}/", "is in a private network"),
        ("http://[64:ff9b::7f00:1]:{port}/", "is in a private network"),
        ("http://0x7f.1:{port}/", "is in a private network"),
        ("http://0177.0.0.1:{port}/", "is in a private network"),
        ("http://2130706433:{port}/", "is in a private network"),
        ("http://127.1:{port}/", "is in a private network"),
        ("http://127.0.0.1:25/", "port 25 is not fetched from"),
        ("http://127.0.0.1:0/", "port 0 is not fetched from"),
        ("gopher://127.0.0.1:{port}/", "is not a usable address"),
        ("data:text/plain,x", "is not a usable address"),
        ("/" + "x" * 9000, "an address of 9,001 characters is not fetched"),
        ("http://169.254.169.254/latest/meta-data/", "is in a private network"),
        ("file:///etc/passwd", "is not a usable address"),
        ("ftp://127.0.0.1/", "is not a usable address"),
        ("http://user:secret@127.0.0.1/", "a user name or a password"),
        ("http://[oops/", "is not a usable address"),
        ("/again", "was redirected more than 5 times"),
    ],
)
async def test_redirect_leads_nowhere_that_is_refused(online: Any, web: Web, location: str, says: str):
    """Every step is checked like the first, and there are five at most."""
    for path in ("/", "/again"):
        web.replies[path] = Reply(status=302, headers={"Location": location.format(port=web.port)})
    async with online() as opened:
        assert says in await opened.failed("fetch.get", url=f"{web.base}/")
    assert (6 if location == "/again" else 1) == len(web.asked)


@pytest.mark.parametrize(
    "url, says",
    [
        ("ftp://example.com/", "give one that begins with http:// or https://"),
        ("file:///etc/passwd", "give one that begins with http:// or https://"),
        ("example.com", "give one that begins with http:// or https://"),
        ("http://", "give one that begins with http:// or https://"),
        ("http://a:99999/", "is not a usable address: Port"),
        ("http://example.com:6000/", "port 6000 is not fetched from"),
        ("https://example.com:22/", "port 22 is not fetched from"),
        ("http://127.0.0.1\\@example.com/", "leave that out"),
        ("http://[::1", "is not a usable address"),
        (f"http://{'a' * 70}.com/", "is not a usable address"),
        ("http://me:secret@example.com/", "leave that out"),
    ],
)
async def test_address_that_is_none_is_refused(project: Any, url: str, says: str):
    """Before anything is sent anywhere. A password is not repeated."""
    async with project() as opened:
        told = await opened.failed("fetch.get", url=url)

    assert says in told
    assert "secret" not in told


def test_address_that_was_checked_is_the_one_connected_to(fetch_module: ModuleType, web: Web):
    """A name is looked up once: an answer that changes in between changes nothing."""
    web.replies["/"] = Reply("ok")
    answers = [[(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", web.port))]]

    def resolve(host: str, *_: Any, **__: Any) -> list[Any]:
        return answers.pop()

    exchange = fetch_module.Exchange(fetch_module.Rules(("rebind.test",)), resolve)

    assert b"ok" == exchange.get(f"http://rebind.test:{web.port}/").body
    assert f"rebind.test:{web.port}" == web.asked[0][1]["host"]


def test_every_redirect_is_looked_up_and_checked_anew(fetch_module: ModuleType, web: Web):
    """A host that may be asked does not vouch for the one it names, though both have the same address."""
    web.replies["/"] = Reply(status=302, headers={"Location": f"http://second.test:{web.port}/"})
    looked_up: list[str] = []

    def resolve(host: str, *_: Any, **__: Any) -> list[Any]:
        looked_up.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", web.port))]

    exchange = fetch_module.Exchange(fetch_module.Rules(("first.test",)), resolve)

    with pytest.raises(SkillError, match=r"second\.test is in a private network"):
        exchange.get(f"http://first.test:{web.port}/")
    assert (["first.test", "second.test"], 1) == (looked_up, len(web.asked))


async def test_proxies_of_the_environment_are_not_used(online: Any, web: Web, monkeypatch: pytest.MonkeyPatch):
    """A proxy would look names up itself, where nothing checks the addresses."""
    proxy = Web()
    server = serve(proxy)
    web.replies["/"] = Reply("direct")
    try:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.base)
        async with online() as opened:
            assert "direct" == (await opened.ok("fetch.get", url=web.base))["text"]
    finally:
        server.shutdown()
        server.server_close()
    assert [] == proxy.asked


def test_host_with_one_private_address_is_refused(fetch_module: ModuleType, web: Web):
    """A public address beside it makes it no better."""
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, web.port)) for ip in ("1.1.1.1", "127.0.0.1")]
    exchange = fetch_module.Exchange(fetch_module.Rules(), lambda *_, **__: addresses)

    with pytest.raises(SkillError, match=r"two\.test is in a private network"):
        exchange.get("http://two.test/")
    assert [] == web.asked


def test_next_address_is_tried(fetch_module: ModuleType, web: Web):
    """A host is there if one of its addresses answers."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", at)) for at in (port, web.port)]
    web.replies["/"] = Reply("ok")
    exchange = fetch_module.Exchange(fetch_module.Rules(("*",)), lambda *_, **__: addresses)

    assert b"ok" == exchange.get("http://two.test/").body


@pytest.mark.parametrize(
    "error, retried",
    [
        (socket.gaierror(socket.EAI_NONAME, "unknown"), False),
        (socket.gaierror(socket.EAI_AGAIN, "later"), True),
        (UnicodeError(), False),
    ],
)
def test_unknown_host(fetch_module: ModuleType, error: Exception, retried: bool):
    """A host that does not exist is not asked for again; a name server that does not answer is."""

    def resolve(*_: Any, **__: Any) -> list[Any]:
        raise error

    with pytest.raises(SkillError) as caught:
        fetch_module.Exchange(fetch_module.Rules(), resolve).get("http://nowhere.test/")
    assert retried == isinstance(caught.value, fetch_module.Unavailable)


def test_host_without_addresses_is_unavailable(fetch_module: ModuleType):
    """Nothing to connect to is no success."""
    with pytest.raises(fetch_module.Unavailable, match="it has no address"):
        fetch_module.Exchange(fetch_module.Rules(), lambda *_, **__: []).get("http://nowhere.test/")


@pytest.mark.parametrize(
    "url, authority, path",
    [
        ("http://EXAMPLE.com", "example.com", "/"),
        ("https://example.com:443/a b?q=x y#f", "example.com", "/a%20b?q=x%20y"),
        ("https://example.com:80/%20", "example.com:80", "/%20"),
        ("http://[::1]:8080/", "[::1]:8080", "/"),
        ("http://bücher.example/ü", "xn--bcher-kva.example", "/%C3%BC"),
    ],
)
def test_address_is_taken_apart(fetch_module: ModuleType, url: str, authority: str, path: str):
    """As a server wants to be asked."""
    target = fetch_module.Target.of(url)

    assert (authority, path) == (target.authority, target.path)


# --- attempts, cache, cancellation ----------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_overloaded_server_is_asked_again(online: Any, web: Web, status: int):
    """Three times at most."""
    web.replies["/"] = [Reply(status=status), Reply(status=status), Reply("at last")]
    async with online() as opened:
        outcome = await opened.call("fetch.get", url=web.base)

    assert ("ok", 3, "at last") == (outcome.kind, outcome.attempts, outcome.value["text"])


async def test_server_that_stays_overloaded_is_retryable(online: Any, web: Web):
    """The caller learns that it may work later."""
    web.replies["/"] = Reply(status=503)
    async with online() as opened:
        outcome = await opened.call("fetch.get", url=web.base)

    assert ("retryable", 3, 3) == (outcome.kind, outcome.attempts, len(web.asked))
    assert "127.0.0.1 answered 503 Service Unavailable" == outcome.text


@pytest.mark.parametrize("as_date", [False, True])
async def test_server_that_says_when_is_not_asked_before(online: Any, web: Web, as_date: bool):
    """`Retry-After` goes to the caller, in the place of attempts of our own."""
    when = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True) if as_date else "86400"
    web.replies["/"] = Reply(status=429, headers={"Retry-After": when})
    async with online() as opened:
        outcome = await opened.call("fetch.get", url=web.base)

    assert ("retryable", 1, 1) == (outcome.kind, outcome.attempts, len(web.asked))
    assert 86400 == pytest.approx(outcome.retry_after, abs=60)


@pytest.mark.parametrize(
    "value, seconds",
    [
        *[("", 0), ("soon", 0), ("-5", 0), ("Mon, 01 Jan 2001 00:00:00 GMT", 0), ("7", 7), ("\N{SUPERSCRIPT TWO}", 0)],
        *[("9" * 400, 31_536_000), ("Fri, 31 Dec 9999 23:59:59 GMT", 31_536_000)],
    ],
)
def test_retry_after_is_read(fetch_module: ModuleType, value: str, seconds: float):
    """Seconds or a date, a year at most; anything else is not there."""
    assert seconds == fetch_module._seconds(value)


@pytest.mark.parametrize(
    "status, hint",
    [
        (404, "check the address"),
        (401, "it wants a login"),
        (410, "gone for good"),
        (304, "no page to read"),
        (300, "no page"),
    ],
)
async def test_refusal_is_final(online: Any, web: Web, status: int, hint: str):
    """What will not change is not asked for again."""
    web.replies["/"] = Reply(status=status)
    async with online() as opened:
        told = await opened.failed("fetch.get", url=web.base)

    assert told.startswith(f"{web.base} answered {status} ")
    assert hint in told
    assert 1 == len(web.asked)


async def test_lost_connection_is_tried_again(online: Any, web: Web):
    """A page that breaks off is none."""
    web.replies["/"] = [Reply("half", length=100), Reply("whole")]
    async with online() as opened:
        outcome = await opened.call("fetch.get", url=web.base)

    assert (2, "whole") == (outcome.attempts, outcome.value["text"])


async def test_server_that_is_down_is_retryable(online: Any):
    """Nobody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    async with online() as opened:
        outcome = await opened.call("fetch.get", url=f"http://127.0.0.1:{port}/")

    assert ("retryable", 3) == (outcome.kind, outcome.attempts)
    assert "127.0.0.1 did not answer: " in outcome.text


@pytest.mark.parametrize(
    "said, kind",
    [
        (b"hello\r\n\r\n", "retryable"),
        (b"HTTP/1.0 200 OK\r\n" + b"a: b\r\n" * 200, "failed"),
        (b"", "retryable"),
        (b"x" * 60_000 + b"\r\n", "retryable"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n", "failed"),
    ],
)
async def test_server_that_speaks_something_else(online: Any, said: bytes, kind: str):
    """Nonsense is a failure with a reason, whatever it is."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            for _ in range(3):
                try:
                    wire, _address = listening.accept()
                except OSError:
                    return
                with wire:
                    wire.recv(65536)
                    wire.sendall(said)

        speaker = threading.Thread(target=answer)
        speaker.start()
        async with online() as opened:
            outcome = await opened.call("fetch.get", url=f"http://127.0.0.1:{listening.getsockname()[1]}/")
        listening.shutdown(socket.SHUT_RDWR)
        speaker.join(PATIENCE)

    assert kind == outcome.kind
    assert "did not answer" in outcome.text
    assert len(outcome.text) < 1000


Script = Callable[[socket.socket, threading.Event], None]


@contextlib.contextmanager
def speaking(script: Script) -> Iterator[tuple[str, list[int]]]:
    """A server that says whatever it likes, for as long as it likes; and how often it was asked."""
    over, asked, speakers = threading.Event(), [0], []

    def speak(wire: socket.socket) -> None:
        with wire, contextlib.suppress(OSError):  # a client that hangs up is what most of these tests are about
            wire.recv(65536)
            script(wire, over)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                wire, _ = listening.accept()
                asked[0] += 1
                speakers.append(threading.Thread(target=speak, args=[wire]))
                speakers[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(target=accept)
        accepting.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/", asked
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        accepting.join()
    for speaker in speakers:
        speaker.join()


def drops(beginning: bytes, drop: bytes) -> Script:
    """Say something, then a little more again and again: every wait is short, and together they never end."""

    def say(wire: socket.socket, over: threading.Event) -> None:
        wire.sendall(beginning)
        while not over.wait(0.01):
            wire.sendall(drop)

    return say


def flood(beginning: bytes, piece: bytes) -> Script:
    """Say something, then the same piece without a pause."""

    def say(wire: socket.socket, over: threading.Event) -> None:
        wire.sendall(beginning)
        while not over.is_set():
            wire.sendall(piece * 100)

    return say


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/plain\r\n\r\n"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(drops(b"HTTP/1.1 200", b"x"), id="status line"),
        pytest.param(drops(b"HTTP/1.1 200 OK\r\nA: ", b"x"), id="header"),
        pytest.param(drops(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"), id="continue"),
        pytest.param(drops(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b"x"), id="body"),
        pytest.param(drops(b"HTTP/1.0 200 OK\r\n\r\n", b"x"), id="body without a length"),
        pytest.param(drops(CHUNKED, b"1\r\nx\r\n"), id="chunks"),
        pytest.param(drops(CHUNKED + b"1;", b"x"), id="extension of a chunk"),
        pytest.param(drops(CHUNKED + b"0\r\n", b"A: b\r\n"), id="trailers"),
        pytest.param(
            drops(CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"), b"1\r\n\x1f\r\n"), id="gzip"
        ),
        pytest.param(lambda _wire, over: over.wait(), id="silence"),
    ],
)
async def test_slow_server_is_given_up(online: Any, script: Script):
    """There is one deadline for all of an answer, and no further attempt after it; the caller may try again later."""
    with speaking(script) as (url, asked):
        async with online(fetch__seconds=0.5) as opened:
            outcome = await opened.call("fetch.get", url=url)

    assert ("retryable", 1) == (outcome.kind, outcome.attempts)
    assert asked[0] <= 1
    assert "127.0.0.1 is too slow: reading the page took more than 0.5 s" in outcome.text


@pytest.mark.timeout(600)
async def test_slow_redirects_share_one_deadline(online: Any):
    """Each step is fast enough; all of them together are not."""

    def redirect(wire: socket.socket, over: threading.Event) -> None:
        over.wait(0.3)
        wire.sendall(b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n")

    with speaking(redirect) as (url, asked):
        async with online(fetch__seconds=1) as opened:
            outcome = await opened.call("fetch.get", url=url)

    assert "is too slow" in outcome.text
    assert asked[0] <= 4


CONTINUED = "as a web server does" if hasattr(http.client, "_MAXINTERIMRESPONSES") else "far more than a page"
"""What is said of answers that announce others for ever: newer patch releases of Python count them."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "script, says",
    [
        pytest.param(flood(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"), "as a web server does", id="headers"),
        pytest.param(flood(b"HTTP/1.1 200 OK\r\nA: ", b"x" * 99), "as a web server does", id="one header"),
        pytest.param(flood(b"", b"x" * 99), "as a web server does", id="status line"),
        pytest.param(flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), CONTINUED, id="continue"),
        pytest.param(flood(CHUNKED, b"1;" + b"x" * 9000 + b"\r\nx\r\n"), "far more than a page", id="extensions"),
    ],
)
async def test_flood_is_given_up(online: Any, script: Script, says: str):
    """What is not a page is bounded too, and not asked for again."""
    with speaking(script) as (url, asked):
        async with online(fetch__seconds=600) as opened:
            outcome = await opened.call("fetch.get", url=url)

    assert ("failed", 1) == (outcome.kind, asked[0]), outcome.text
    assert says in outcome.text


@pytest.mark.timeout(600)
@pytest.mark.parametrize("beginning, piece", [(CHUNKED, b"1\r\nx\r\n"), (b"HTTP/1.0 200 OK\r\n\r\n", b"x" * 99)])
async def test_endless_page_is_cut(online: Any, beginning: bytes, piece: bytes):
    """At the size of a page."""
    with speaking(flood(beginning, piece)) as (url, _):
        async with online(fetch__seconds=600, fetch__max_bytes=20_000) as opened:
            result = await opened.ok("fetch.get", url=url)

    assert ("x" * 20_000, "only the first 20,000 bytes of the page were read") == (result["text"], result["note"])


async def test_page_is_kept_for_a_while(online: Any, web: Web):
    """The same call does not ask again; a failure is not kept."""
    web.replies["/"] = [Reply(status=404), Reply("page")]
    async with online() as opened:
        await opened.failed("fetch.get", url=web.base)
        first = await opened.call("fetch.get", url=web.base)
        second = await opened.call("fetch.get", url=web.base, format="text")

    assert (False, True) == (first.cached, second.cached)
    assert (2, first.value) == (len(web.asked), second.value)


async def test_cancelled_call_hangs_up(online: Any, web: Web):
    """The thread does not wait on for a server that never answers."""
    arrived, hung_up = threading.Event(), threading.Event()

    def never(handler: Any) -> Reply:
        arrived.set()
        assert b"" == handler.rfile.read(1)
        hung_up.set()
        return Reply()

    web.replies["/"] = never
    with anyio.fail_after(PATIENCE):
        async with online() as opened, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: opened.runtime.call("fetch.get", {"url": web.base}))
            await anyio.to_thread.run_sync(arrived.wait)
            tasks.cancel_scope.cancel()
        await anyio.to_thread.run_sync(hung_up.wait)


def test_stopped_exchange_asks_nothing(fetch_module: ModuleType, web: Web):
    """However often it is stopped."""
    exchange = fetch_module.Exchange(fetch_module.Rules(("*",)))
    exchange.stop()

    with pytest.raises(fetch_module.Unavailable, match="stopped"):
        exchange.get(web.base)
    exchange.stop()
    assert [] == web.asked


async def test_server_learns_who_asks(online: Any, web: Web):
    """The user agent is a setting."""
    web.replies["/"] = Reply("ok")
    async with online(fetch__user_agent="mine/1") as opened:
        await opened.ok("fetch.get", url=web.base)

    assert ("mine/1", "close") == tuple(web.asked[0][1][name] for name in ("user-agent", "connection"))


# --- TLS ------------------------------------------------------------------------------------------


async def test_plain_server_is_no_secure_one(online: Any, web: Web):
    """And asking again would not make it one."""
    async with online() as opened:
        told = await opened.failed("fetch.get", url=web.base.replace("http:", "https:"))

    assert "no secure connection to 127.0.0.1: " in told


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    file = tmp_path / "certificate.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:127.0.0.1".split()
    )
    subprocess.run(
        [*command, "-keyout", str(file), "-out", str(tmp_path / "public.pem")], check=True, capture_output=True
    )
    file.write_text(file.read_text() + (tmp_path / "public.pem").read_text())
    return file


async def test_certificates_are_checked(online: Any, certificate: Path, monkeypatch: pytest.MonkeyPatch):
    """One that nobody vouches for is refused; one that the machine trusts is not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    web = Web(replies={"/": Reply("secret")})
    server = serve(web, context)
    try:
        async with online() as opened:
            assert "CERTIFICATE_VERIFY_FAILED" in await opened.failed("fetch.get", url=web.base)
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_name("public.pem")))
            assert "secret" == (await opened.ok("fetch.get", url=web.base))["text"]
    finally:
        server.shutdown()
        server.server_close()


# --- nothing is endless, or left out without a word -----------------------------------------------


@pytest.mark.parametrize(
    "reply, fails",
    [
        (Reply(f"<title>{'t' * 1_000_000}</title>", "text/html"), False),
        (Reply("text", f"text/{'t' * 60_000}"), False),
        (Reply("data", f"image/{'t' * 60_000}"), True),
    ],
)
async def test_words_of_a_server_are_bounded(online: Any, web: Web, reply: Reply, fails: bool):
    web.replies["/"] = reply
    async with online() as opened:
        outcome = await opened.call("fetch.get", url=web.base)
    assert fails == (not outcome.ok)
    assert len(outcome.payload()["content"][0]["text"]) < 2000


async def test_redirect_to_an_address_in_utf8_is_followed(online: Any, web: Web):
    """Servers send it as it is, and not in percents."""
    web.replies["/"] = Reply(status=302, headers={"Location": "/café".encode().decode("latin-1")})
    web.replies["/caf%C3%A9"] = Reply("found")
    async with online() as opened:
        assert "found" == (await opened.ok("fetch.get", url=web.base))["text"]


@pytest.mark.parametrize(
    "reply, note",
    [
        (Reply("é".encode("latin-1"), "text/html; charset=utf-8"), "the page is not utf-8 throughout"),
        (Reply("<script>all()</script><noscript>Turn it on</noscript>", "text/html"), "no text outside of scripts"),
        (Reply("<frameset><frame src=a></frameset>", "text/html"), "no text outside of scripts"),
        (Reply("a part", status=206), "only the first 6 bytes of the page were read"),
    ],
)
async def test_what_a_page_does_not_show_is_noted(online: Any, web: Web, reply: Reply, note: str):
    web.replies["/"] = reply
    async with online() as opened:
        assert note in (await opened.ok("fetch.get", url=web.base))["note"]


async def test_page_that_is_cut_within_a_character_is_fine(online: Any, web: Web):
    web.replies["/"] = Reply("é" * 1000, "text/plain; charset=utf-8")
    async with online(fetch__max_bytes=101) as opened:
        page = await opened.ok("fetch.get", url=web.base)
    assert ("é" * 50, "only the first 101 bytes of the page were read") == (page["text"], page["note"])
