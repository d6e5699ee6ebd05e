"""Read web pages. Refuses private networks, and connects to the very address that it has checked.

Built on `http.client`, because that lets us open the connection ourselves. `urllib.request`, like most libraries, looks a
name up again when it connects, so that a name with changing answers leads past any check, and it obeys the proxies of
the environment, where the check would be the proxy's to make.
"""

from __future__ import annotations

import codecs
import contextlib
import fnmatch
import functools
import http.client
import ipaddress
import re
import socket
import ssl
import threading
import urllib.parse
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias, TypedDict

import anyio.to_thread
from pydantic import Field

from prowess import Settings, SkillError, skill_command

MOST_BYTES: Final = 5_000_000  # of one page, unpacked; the setting fetch.max_bytes changes it
MOST_REDIRECTS: Final = 5
SECONDS: Final = 15.0  # for connecting, and for each piece that is read; the timeout of the command is for all of it
CHUNK: Final = 64 * 1024
USER_AGENT: Final = "prowess-fetch/1.0"
ACCEPTED: Final = "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,*/*;q=0.5"
TEXTUAL: Final = re.compile(
    r"text/.*|application/(.+\+)?(json|xml|javascript|yaml|toml|x-ndjson|x-yaml)|image/svg\+xml"
)
NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

Resolve: TypeAlias = Callable[..., list[Any]]


class Page(TypedDict):
    """A page as text. `url` is where redirects have led; `note` says what is left out of the text."""

    url: str
    type: str
    title: NotRequired[str]
    text: str
    note: NotRequired[str]


class Unavailable(SkillError):
    """What may work at the next attempt: a lost connection, a server that is overloaded."""


@skill_command(
    title="Fetch a page",
    category="web",
    read_only=True,
    idempotent=True,
    open_world=True,
    retry_on=Unavailable,
    max_attempts=3,
    cache_ttl=300,
    timeout=60,
    concurrency=8,
)
async def get(
    url: Annotated[str, Field(min_length=1, max_length=8000)],
    settings: Settings,
    format: Literal["text", "raw"] = "text",
    *,
    links: bool = False,
    start: Annotated[int, Field(ge=0)] = 0,
    max_chars: Annotated[int, Field(ge=1, le=200_000)] = 20_000,
) -> Page:
    """Read a page of the web, or any other text that an http or https address leads to.

    Args:
        url: The address, beginning with http:// or https://.
        format: "text" makes readable text of HTML; "raw" gives what the server sent.
        links: Whether the text of an HTML page shows where its links lead.
        start: The first character to give, to go on with a long page.
        max_chars: How many characters to give at most.
    """
    exchange = Exchange(Rules.of(settings))
    try:
        read = functools.partial(_read, exchange, url, raw=format == "raw", links=links)
        answer, text, title = await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
    finally:
        exchange.stop()  # so that a call that is cancelled leaves no thread behind that waits for a server
    result = Page(url=answer.url, type=answer.type, text=text[start : start + max_chars])
    if title:
        result["title"] = title
    notes = _notes(len(text), start, max_chars)
    if answer.cut:
        notes.append(f"only the first {len(answer.body):,} bytes of the page were read")
    if notes:
        result["note"] = "; ".join(notes)
    return result


def _read(exchange: Exchange, url: str, *, raw: bool, links: bool) -> tuple[Answer, str, str]:
    """What came back, its text, and its title."""
    answer = exchange.get(url)
    text = _decoded(answer)
    if raw or answer.type not in ("text/html", "application/xhtml+xml"):
        return answer, text, ""
    reader = HtmlReader(answer.url, links=links)
    try:
        for at in range(0, len(text), CHUNK):
            exchange.check()
            reader.feed(text[at : at + CHUNK])
        reader.close()
    except AssertionError as error:  # what the parser of the standard library says to some broken declarations
        raise SkillError(f"{answer.url} is broken HTML; read it with format raw") from error
    return answer, reader.text(), reader.title


def _notes(length: int, start: int, max_chars: int) -> list[str]:
    if start and start >= length:
        return [f"the page has only {length:,} characters"]
    if start + max_chars < length:
        return [f"the page has {length:,} characters: go on with start={start + max_chars}"]
    return []


# --- where requests may go ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rules:
    """What the user allows, in the table [fetch] of prowess.toml."""

    private_hosts: tuple[str, ...] = ()
    """Hosts that may be in a private network, by the names used in addresses: "localhost", "*.corp.example"."""
    max_bytes: int = MOST_BYTES
    user_agent: str = USER_AGENT

    @classmethod
    def of(cls, settings: Settings) -> Rules:
        """As configured. From the environment every setting is a text, a list too."""
        hosts: Any = settings.get("fetch.private_hosts", ())
        return cls(
            tuple(hosts.split(",") if isinstance(hosts, str) else hosts),
            int(settings.get("fetch.max_bytes", MOST_BYTES)),
            str(settings.get("fetch.user_agent", USER_AGENT)),
        )

    def check(self, host: str, address: str) -> None:
        """Refuse an address that only this machine or its network can reach."""
        if is_public(address) or any(fnmatch.fnmatch(host, pattern.strip().lower()) for pattern in self.private_hosts):
            return
        raise SkillError(
            f"{host} is in a private network ({address}), which is off limits; "
            "the user can allow this host in prowess.toml, in private_hosts under [fetch]"
        )


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet; one that wraps another counts as that other."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        teredo = ip.teredo
        inner = ip.ipv4_mapped or ip.sixtofour or (teredo and teredo[1])
        if ip in NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
        if inner:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


@dataclass(frozen=True, slots=True)
class Target:
    """An address, taken apart."""

    url: str
    secure: bool
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str, base: str = "") -> Target:
        """Refuses what is no plain http or https address."""
        try:
            parts = urllib.parse.urlsplit(urllib.parse.urljoin(base, url.strip()))
            host, port = (parts.hostname or "").encode("idna").decode(), parts.port
            query = f"?{parts.query}" if parts.query else ""
            path = urllib.parse.quote(f"{parts.path or '/'}{query}", safe="/?%:@!$&'()*+,;=~[]|")
        except ValueError as error:
            raise SkillError(f"{url!r} is not a usable address: {error}") from error
        if parts.scheme not in ("http", "https") or not host:
            raise SkillError(f"{url!r} is not a usable address: give one that begins with http:// or https://")
        if parts.username is not None:
            raise SkillError("an address with a user name or a password in it is not fetched; leave that out")
        secure = parts.scheme == "https"
        shown = urllib.parse.urlunsplit(parts._replace(fragment=""))
        return cls(shown, secure, host.lower(), port or (443 if secure else 80), path)

    @property
    def authority(self) -> str:
        """What stands in the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


# --- one exchange ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back in the end."""

    url: str
    type: str
    charset: str | None
    body: bytes
    cut: bool


@dataclass
class Exchange:
    """One page, redirects included. Runs in a thread, and can be stopped from another."""

    rules: Rules
    resolve: Resolve = socket.getaddrinfo
    _socket: socket.socket | None = None
    _stopped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, url: str) -> Answer:
        """Ask for a page, and follow where it has moved to."""
        target = Target.of(url)
        for _ in range(MOST_REDIRECTS + 1):
            answer = self._ask(target)
            if isinstance(answer, Answer):
                return answer
            target = Target.of(answer, target.url)
        raise SkillError(f"{url} was redirected more than {MOST_REDIRECTS} times, the last time to {target.url}")

    def stop(self) -> None:
        """Break off whatever is under way."""
        with self._lock:
            self._stopped = True
            if self._socket is not None:
                _hang_up(self._socket)

    def check(self) -> None:
        """Raise if stopped."""
        if self._stopped:
            raise Unavailable("stopped")

    def _ask(self, target: Target) -> Answer | str:
        """One request: the answer, or the address to ask instead."""
        try:
            with self._connected(target) as connection:
                return self._asked(target, connection)
        except ssl.SSLError as error:
            raise SkillError(f"no secure connection to {target.host}: {error.reason or error}") from error
        except (OSError, http.client.IncompleteRead, http.client.BadStatusLine) as error:
            raise Unavailable(
                f"{target.host} did not answer: {error or type(error).__name__}", retryable=True
            ) from error
        except http.client.HTTPException as error:
            raise SkillError(f"{target.host} did not answer as a web server does: {type(error).__name__}") from error

    def _asked(self, target: Target, connected: socket.socket) -> Answer | str:
        connection = http.client.HTTPConnection(target.host, target.port)
        connection.sock = connected
        headers = {"Host": target.authority, "User-Agent": self.rules.user_agent, "Accept": ACCEPTED}
        connection.request("GET", target.path, headers={**headers, "Accept-Encoding": "gzip", "Connection": "close"})
        with connection.getresponse() as response:
            moved = response.headers["Location"]
            if response.status in (301, 302, 303, 307, 308) and moved:
                return moved
            _check_status(target, response)
            body, cut = self._body(target, response)
        kind = response.headers.get_content_type() if "Content-Type" in response.headers else ""
        return Answer(target.url, kind, response.headers.get_content_charset(), body, cut)

    def _connected(self, target: Target) -> socket.socket:
        """A connection to one of the addresses of the host, all of them checked."""
        addresses = self._addresses(target)
        for *_, address in addresses:
            self.rules.check(target.host, address[0])
        failure: OSError = OSError("it has no address")
        for family, kind, protocol, _, address in addresses:
            try:
                return self._connect(socket.socket(family, kind, protocol), address, target)
            except ssl.SSLError:
                raise
            except OSError as error:
                failure = error
        raise failure

    def _addresses(self, target: Target) -> list[Any]:
        try:
            return self.resolve(target.host, target.port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno == socket.EAI_AGAIN:
                raise
            raise SkillError(f"there is no host {target.host}: check the address") from error
        except UnicodeError as error:
            raise SkillError(f"{target.host} is no name of a host") from error

    def _connect(self, plain: socket.socket, address: Any, target: Target) -> socket.socket:
        wire = plain
        try:
            plain.settimeout(SECONDS)
            self._watch(plain)
            plain.connect(address)
            if target.secure:
                context = ssl.create_default_context()
                wire = context.wrap_socket(plain, server_hostname=target.host, do_handshake_on_connect=False)
                self._watch(wire)
                wire.do_handshake()
        except BaseException:
            wire.close()
            raise
        return wire

    def _watch(self, wire: socket.socket) -> None:
        with self._lock:
            self.check()
            self._socket = wire

    def _body(self, target: Target, response: http.client.HTTPResponse) -> tuple[bytes, bool]:
        """The body, unpacked, and whether it was longer than allowed."""
        unpack = _unpacking(target, response.headers.get("Content-Encoding", ""))
        most, body = self.rules.max_bytes, bytearray()
        while chunk := response.read(CHUNK):
            self.check()
            body += unpack(chunk, most + 1 - len(body))
            if len(body) > most:
                return bytes(body[:most]), True
        if response.length:
            raise http.client.IncompleteRead(bytes(body), response.length)
        return bytes(body), False


def _hang_up(wire: socket.socket) -> None:
    try:
        wire.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it, which closing would not
    except OSError:
        return  # it was closed already


def _unpacking(target: Target, coding: str) -> Callable[[bytes, int], bytes]:
    """A function that unpacks a piece to at most so many bytes: a few bytes can be packed that fill the memory."""
    if coding.lower() in ("", "identity"):
        return lambda chunk, _: chunk
    if coding.lower() not in ("gzip", "x-gzip", "deflate"):
        raise SkillError(f"{target.url} is packed with {coding!r}, which nobody asked for")
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)

    def unpack(chunk: bytes, most: int) -> bytes:
        try:
            return unpacker.decompress(chunk, most)
        except zlib.error as error:
            raise SkillError(f"{target.url} is not packed as its server says ({error})") from error

    return unpack


def _check_status(target: Target, response: http.client.HTTPResponse) -> None:
    """Refuse every answer that is not the page."""
    status, told = response.status, f"{response.status} {response.reason}".strip()
    if 200 <= status < 300:
        return
    if status == 429 or status >= 500:
        wait = _seconds(response.headers.get("Retry-After", ""))
        if wait:  # the server has said when; asking earlier, as a retry would, is what it does not want
            raise SkillError(
                f"{target.host} answered {told}: try again in {wait:g} s", retryable=True, retry_after=wait
            )
        raise Unavailable(f"{target.host} answered {told}", retryable=True)
    hints = {
        401: "it wants a login",
        403: "it does not let us in",
        404: "check the address",
        410: "it is gone for good",
    }
    raise SkillError(f"{target.url} answered {told}: {hints.get(status, 'there is no page to read')}")


def _seconds(retry_after: str) -> float:
    """How long a server asks us to wait: seconds, or a date."""
    if retry_after.strip().isdigit():
        return float(retry_after)
    try:
        until = parsedate_to_datetime(retry_after)
        return max(0.0, round((until - datetime.now(UTC)).total_seconds()))
    except (TypeError, ValueError):
        return 0.0


# --- from bytes to text ---------------------------------------------------------------------------

CHARSETS: Final = re.compile(
    r"ascii|utf-?(8|16|32)([-_][bl]e)?|iso-?8859-\d+|cp\d+|koi8-[rutk]|mac-\w+|gb\w+|big5\w*|euc_\w+|shift_jis\w*|iso2022_\w+"
)
META: Final = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([\w-]{1,40})""", re.IGNORECASE)
MARKS: Final = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def _decoded(answer: Answer) -> str:
    """The body as text, by what it begins with, what the server says, what the page says; else UTF-8."""
    sample = answer.body[:8192]
    marked = next((name for mark, name in MARKS if sample.startswith(mark)), None)
    binary = b"\0" in sample and not marked and not (answer.charset or "").startswith(("utf-16", "utf-32"))
    typed = not answer.type or answer.type == "application/octet-stream" or TEXTUAL.fullmatch(answer.type)
    if binary or not typed:
        size = f"{len(answer.body):,} bytes" if not answer.cut else f"more than {len(answer.body):,} bytes"
        raise SkillError(f"{answer.url} is no text: {answer.type or 'data'}, {size}")
    meta = META.search(sample)
    named = marked or answer.charset or (meta[1].decode() if meta else "utf-8")
    return answer.body.decode(_charset(named), "replace")


def _charset(name: str) -> str:
    """A codec of Python for a charset: only those for text, since some others take for ever or are none."""
    try:
        known = codecs.lookup(name).name
    except LookupError:
        return "utf-8"
    if known in ("iso8859-1", "ascii"):
        return "cp1252"  # as browsers do
    return known if CHARSETS.fullmatch(known) or known == "utf-8-sig" else "utf-8"


SKIPPED: Final = frozenset("script style noscript template svg iframe object canvas".split())
BLOCKS: Final = frozenset(
    "address article aside blockquote body dd details div dl dt fieldset figcaption figure footer form header hr main nav "
    "ol p pre section summary table tr ul".split()
)
HEADINGS: Final = {f"h{level}": "#" * level for level in range(1, 7)}
CLOSING: Final = re.compile(r"[ \t]+\n")
GAPS: Final = re.compile(r"\n{3,}")
SPACE: Final = re.compile(r"\s+")


class HtmlReader(HTMLParser):
    """Readable text of a page: headings, paragraphs, lists, tables row by row, code as it is."""

    def __init__(self, url: str, *, links: bool) -> None:
        super().__init__()
        self._url = url
        self._links = links
        self._pieces: list[str] = []
        self._skipped = 0
        self._code = 0
        self._in_title = False
        self._title: list[str] = []
        self._anchors: list[tuple[str, int]] = []

    @property
    def title(self) -> str:
        """The title of the page, or nothing."""
        return SPACE.sub(" ", "".join(self._title)).strip()

    def text(self) -> str:
        """What was read."""
        return GAPS.sub("\n\n", CLOSING.sub("\n", "".join(self._pieces))).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note where something begins."""
        if tag in SKIPPED:
            self._skipped += 1
        elif tag == "title":
            self._in_title = not self._title
        elif tag in HEADINGS:
            self._add(f"\n\n{HEADINGS[tag]} ")
        elif tag == "pre":
            self._code += 1
            self._add("\n\n```\n")
        elif tag in BLOCKS:
            self._add("\n\n" if tag == "p" else "\n")
        elif tag in ("li", "br", "td", "th"):
            self._add({"li": "\n- ", "br": "\n"}.get(tag, " | "))
        elif tag == "a":
            self._anchors.append((dict(attrs).get("href") or "", len(self._pieces)))
        elif tag == "img":
            self.handle_data(dict(attrs).get("alt") or "")

    def handle_endtag(self, tag: str) -> None:
        """Note where something ends."""
        if tag in SKIPPED:
            self._skipped = max(0, self._skipped - 1)
        elif tag == "title":
            self._in_title = False
        elif tag == "pre" and self._code:
            self._code -= 1
            self._add("\n```\n\n")
        elif tag == "a" and self._anchors:
            self._link(*self._anchors.pop())
        elif tag in HEADINGS or tag == "p":
            self._add("\n\n")
        elif tag in BLOCKS:
            self._add("\n")

    def handle_data(self, data: str) -> None:
        """Add text, with its white space as a browser would show it."""
        if self._in_title:
            self._title.append(data)
        elif self._code:
            self._add(data)
        else:
            data = SPACE.sub(" ", data)
            begins = not self._pieces or self._pieces[-1].endswith(("\n", " "))
            self._add(data.lstrip() if begins else data)

    def _add(self, piece: str) -> None:
        if piece and not self._skipped:
            self._pieces.append(piece)

    def _link(self, href: str, begin: int) -> None:
        """Make `[text](address)` of what was added since the link began."""
        text = "".join(self._pieces[begin:]).strip()
        if not self._links or not text or not href or href.startswith(("#", "javascript:", "data:")):
            return
        with contextlib.suppress(ValueError):  # what is no address stays a text
            self._pieces[begin:] = [f"[{text}]({urllib.parse.urljoin(self._url, href)})"]
