"""Read web pages. Refuses private networks, and connects to the very address that it has checked.

Built on `http.client`, because that lets us open the connection ourselves. Most libraries, `urllib.request` among them, look
a name up again when they connect, so a name whose answers change gets past the check. They also use the proxies that the
environment names, and then the proxy chooses the address.

HTML pages need the package lxml (`pip install "lxml>=6"`); everything else works without it.
"""

from __future__ import annotations

import codecs
import contextlib
import fnmatch
import functools
import http.client
import importlib
import io
import ipaddress
import math
import re
import socket
import ssl
import threading
import time
import urllib.parse
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, Final, Literal, NamedTuple, NotRequired, TypeAlias, TypedDict

import anyio.to_thread
from pydantic import Field

from prowess import Settings, SkillError, skill_command

MOST_BYTES: Final = 2_000_000  # of one page, unpacked; the setting fetch.max_bytes changes it
MOST_OVERHEAD: Final = 1_000_000  # bytes that may come besides the page: headers, and the frames of chunked bodies
MOST_REDIRECTS: Final = 5
MOST_URL: Final = 8000  # characters
MOST_ADDRESSES: Final = 8  # of one host, to try one after the other
SECONDS: Final = 30.0  # for one attempt, redirects and conversion included; the setting fetch.seconds changes it
SILENCE: Final = 10.0  # seconds to wait for a connection, or for the next piece of an answer
CHUNK: Final = 16 * 1024
GZIP: Final = 0x1F  # the first byte of a gzip file
MOST_DEPTH: Final = 1_000  # elements within elements; browsers stop nesting at 512
MOST_REPORTS: Final = 500_000  # beginnings and ends of elements, and texts: a second or two of work
MOST_TEXT: Final = 5_000_000  # characters
MOST_KEPT: Final = 10_000_000  # characters of all long pages together, which are kept for the calls that read on
KEPT_FOR: Final = timedelta(minutes=10)  # twice the time of cached results, so that a page outlives its first part
MOST_WORDS: Final = 500  # characters of a title, a type or a reason, which a server may make as long as it likes
MOST_WAIT: Final = 31_536_000.0  # seconds; what a server says beyond a year means "never"
USER_AGENT: Final = "prowess-fetch/1.0"
ACCEPTED: Final = "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,*/*;q=0.5"
TEXTUAL: Final = re.compile(
    r"text/.*|image/svg\+xml|application/(.+\+)?(x-)?(json|jsonl|ndjson|xml|javascript|typescript|yaml|toml|sh|sql|graphql|python)"
)
NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
GLOBAL_IPV6: Final = ipaddress.ip_network("2000::/3")  # all that is given out for the public internet so far
# Ports of services that mistake a request for one of theirs. The list that browsers go by: https://fetch.spec.whatwg.org/#port-blocking
BAD_PORTS: Final = frozenset(
    int(port)
    for port in (
        "0 1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 113 115 117 119 123 135 137 "
        "139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554 556 563 587 601 636 989 990 993 995 1719 1720 "
        "1723 2049 3659 4045 4190 5060 5061 6000 6566 6665 6666 6667 6668 6669 6679 6697 10080"
    ).split()
)

Resolve: TypeAlias = Callable[..., list[Any]]


class Page(TypedDict):
    """A page as text. `url` is where redirects have led; `note` says what is left out of the text."""

    url: str
    type: str
    title: NotRequired[str]
    text: str
    note: NotRequired[str]


class Reading(NamedTuple):
    """The whole text of a page, and when it was read."""

    url: str
    type: str
    text: str
    title: str
    note: str
    at: datetime


_kept: Final[dict[Hashable, Reading]] = {}
"""Long pages, the oldest first. Only the event loop uses them."""


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
    rules = Rules.of(settings)
    wanted = (rules, url, format, links)
    kept = _kept_reading(wanted) if start else None
    reading = kept or await _read_page(Exchange(rules), url, raw=format == "raw", links=links)
    text = reading.text
    result = Page(url=reading.url, type=reading.type, text=text[start : start + max_chars])
    if reading.title:
        result["title"] = _brief(reading.title)
    notes = _notes(len(text), start, max_chars)
    if kept:
        notes.append(f"the page as it was at {reading.at:%H:%M:%S} UTC, so that its parts fit together")
    elif start + max_chars < len(text):
        _keep(wanted, reading)
    if reading.note:
        notes.append(reading.note)
    if notes:
        result["note"] = "; ".join(notes)
    return result


async def _read_page(exchange: Exchange, url: str, *, raw: bool, links: bool) -> Reading:
    """The whole page as text."""
    try:
        read = functools.partial(_read, exchange, url, raw=raw, links=links)
        answer, text, title, note = await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
    finally:
        exchange.stop()  # a cancelled call must not leave a thread behind that waits for a server
    cut = f"only the first {len(answer.body):,} bytes of the page were read" if answer.cut else ""
    return Reading(answer.url, answer.type, text, title, "; ".join(filter(None, [cut, note])), datetime.now(UTC))


def _read(exchange: Exchange, url: str, *, raw: bool, links: bool) -> tuple[Answer, str, str, str]:
    """The answer, its text, its title, and a note on what the text leaves out."""
    answer = exchange.get(url)
    text, note = _decoded(answer)
    if raw or answer.type not in ("text/html", "application/xhtml+xml"):
        return answer, text, "", note
    reader = HtmlReader(answer.url, links=links)
    for at in range(0, len(text), CHUNK):
        exchange.check()
        reader.feed(text[at : at + CHUNK])
    reader.close()
    found = reader.text()
    if text.strip() and not found:
        note = 'the HTML has no text outside of scripts, drawings and frames; format "raw" shows all of it'
    return answer, found, reader.title, "; ".join(filter(None, [reader.note, note]))


def _kept_reading(wanted: Hashable) -> Reading | None:
    """A long page that was read a short while ago."""
    reading = _kept.get(wanted)
    if reading is None or datetime.now(UTC) - reading.at > KEPT_FOR:
        return None
    return reading


def _keep(wanted: Hashable, reading: Reading) -> None:
    """Keep a long page for the calls that read on. The oldest ones go when there is no room."""
    _kept.pop(wanted, None)
    _kept[wanted] = reading
    while sum(len(each.text) for each in _kept.values()) > MOST_KEPT:
        del _kept[next(iter(_kept))]


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
    seconds: float = SECONDS
    user_agent: str = USER_AGENT

    @classmethod
    def of(cls, settings: Settings) -> Rules:
        """As configured. From the environment every setting is a text, a list too."""
        hosts: Any = settings.get("fetch.private_hosts", ())
        return cls(
            tuple(hosts.split(",") if isinstance(hosts, str) else hosts),
            int(settings.get("fetch.max_bytes", MOST_BYTES)),
            float(settings.get("fetch.seconds", SECONDS)),
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
        if ip not in GLOBAL_IPV6:
            return False
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
        """Take an address apart. Refuses everything but plain http and https addresses."""
        if len(url) > MOST_URL:
            raise SkillError(f"an address of {len(url):,} characters is not fetched; {MOST_URL:,} are the most")
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
        port = (443 if secure else 80) if port is None else port
        if port in BAD_PORTS:
            raise SkillError(f"port {port} is not fetched from: it belongs to another service than the web")
        shown = urllib.parse.urlunsplit(parts._replace(fragment=""))
        return cls(shown, secure, host.lower(), port, path)

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
    _host: str = ""
    _deadline: float = math.inf
    _socket: socket.socket | None = None
    _stopped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, url: str) -> Answer:
        """Ask for a page, and follow where it has moved to."""
        self._deadline = time.monotonic() + self.rules.seconds
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

    def check(self) -> float:
        """The seconds that are left. Raises if there are none, or if the exchange was stopped."""
        if self._stopped:
            raise Unavailable("stopped")
        left = self._deadline - time.monotonic()
        if left <= 0:  # no `Unavailable`: further attempts would take as long
            raise SkillError(
                f"{self._host} is too slow: reading the page took more than {self.rules.seconds:g} s "
                "(the user can raise seconds under [fetch] in prowess.toml)",
                retryable=True,
            )
        return left

    def _ask(self, target: Target) -> Answer | str:
        """One request: the answer, or the address to ask instead."""
        self._host = target.host
        try:
            with self._connected(target) as connection:
                return self._asked(target, connection)
        except ssl.SSLError as error:
            raise SkillError(f"no secure connection to {target.host}: {error.reason or error}") from error
        except (OSError, http.client.IncompleteRead, http.client.BadStatusLine) as error:
            self.check()
            told = _brief(str(error)) or type(error).__name__
            raise Unavailable(f"{target.host} did not answer: {told}", retryable=True) from error
        except (
            http.client.HTTPException,
            ValueError,
        ) as error:  # `http.client` lets some nonsense through to `int` and `read`
            raise SkillError(f"{target.host} did not answer as a web server does: {type(error).__name__}") from error

    def _asked(self, target: Target, connected: socket.socket) -> Answer | str:
        connection = http.client.HTTPConnection(target.host, target.port)
        connection.sock = Wire(connected, self.check, self.rules.max_bytes + MOST_OVERHEAD)
        headers = {"Host": target.authority, "User-Agent": self.rules.user_agent, "Accept": ACCEPTED}
        connection.request("GET", target.path, headers={**headers, "Accept-Encoding": "gzip", "Connection": "close"})
        with connection.getresponse() as response:
            moved = response.headers["Location"]
            if response.status in (301, 302, 303, 307, 308) and moved:
                return _as_utf8(moved)
            _check_status(target, response)
            body, cut = self._body(target, response)
        kind = response.headers.get_content_type() if "Content-Type" in response.headers else ""
        is_part = cut or response.status == 206
        return Answer(target.url, _brief(kind), response.headers.get_content_charset(), body, is_part)

    def _connected(self, target: Target) -> socket.socket:
        """A connection to one of the addresses of the host, all of them checked."""
        self.check()
        addresses = self._addresses(target)
        for *_, address in addresses:
            self.rules.check(target.host, address[0])
        failure: OSError = OSError("it has no address")
        for family, kind, protocol, _, address in addresses[:MOST_ADDRESSES]:
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
            raise SkillError(f"{target.host} cannot be the name of a host: check the address") from error

    def _connect(self, plain: socket.socket, address: Any, target: Target) -> socket.socket:
        wire = plain
        try:
            self._watch(plain)
            plain.settimeout(min(SILENCE, self.check()))
            plain.connect(address)
            if target.secure:
                context = ssl.create_default_context()
                wire = context.wrap_socket(plain, server_hostname=target.host, do_handshake_on_connect=False)
                self._watch(wire)
                wire.settimeout(min(SILENCE, self.check()))
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
        packed = Packed(target.url, response.headers.get("Content-Encoding", ""))
        most, body = self.rules.max_bytes, bytearray()
        while chunk := response.read(CHUNK):
            self.check()
            for piece in packed.unpack(chunk, CHUNK):
                body += piece
                if len(body) > most:
                    return bytes(body[:most]), True
        if response.length or not packed.ended:
            raise http.client.IncompleteRead(bytes(body))
        return bytes(body), False


def _hang_up(wire: socket.socket) -> None:
    try:
        wire.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it; closing would not
    except OSError:
        return  # it was closed already


class Wire:
    """What `http.client` takes for a socket. Bounds all that is read from it: each wait, the time of all, the bytes of all.

    Headers come through here too, so a server that sends them drop by drop, or never ends them, meets the same bounds.
    """

    def __init__(self, connected: socket.socket, check: Callable[[], float], most: int) -> None:
        self._socket = connected
        self._check = check
        self._most = most

    def sendall(self, data: bytes) -> None:
        """Send a request."""
        self._socket.settimeout(min(SILENCE, self._check()))
        self._socket.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """The answer."""
        return io.BufferedReader(Bounded(self.receive))

    def receive(self, into: memoryview) -> int:
        """Read what is there, or wait for it."""
        self._socket.settimeout(min(SILENCE, self._check()))
        count = self._socket.recv_into(into)
        self._most -= count
        if self._most < 0:
            raise SkillError("the server sends far more than a page; reading it was given up")
        return count

    def close(self) -> None:
        """Leave the socket open: `http.client` closes its own while it still reads the body. `Exchange` closes ours."""


class Bounded(io.RawIOBase):
    """A stream to read, made of a function."""

    def __init__(self, receive: Callable[[memoryview], int]) -> None:
        self._receive = receive

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """As the function does."""
        return self._receive(buffer)


class Packed:
    """Unpacks a body piece by piece: a few bytes can unpack to more than fits into memory."""

    def __init__(self, url: str, coding: str) -> None:
        self._url = url
        self._coding = coding.strip().lower().removeprefix("x-")
        if self._coding not in ("", "identity", "gzip", "deflate"):
            raise SkillError(f"{url} is packed with {coding[:100]!r}, which nobody asked for")
        self._unpacker: Any = None

    @property
    def ended(self) -> bool:
        """Whether nothing is missing."""
        return self._unpacker is None or self._unpacker.eof

    def unpack(self, chunk: bytes, most: int) -> Iterator[bytes]:
        """The content of a piece, in parts that are not larger than asked for."""
        if self._coding in ("", "identity"):
            yield chunk
            return
        try:
            while chunk:
                if self._unpacker is None or (self._unpacker.eof and chunk[0] == GZIP and self._coding == "gzip"):
                    self._unpacker = zlib.decompressobj(wbits=self._window(chunk))
                elif self._unpacker.eof:
                    return  # some servers send a few bytes after the end
                yield self._unpacker.decompress(chunk, most)
                # A gzip file may consist of several, one after the other.
                chunk = self._unpacker.unconsumed_tail or self._unpacker.unused_data
        except zlib.error as error:
            raise SkillError(f"{self._url} is not packed as its server says ({error})") from error

    def _window(self, chunk: bytes) -> int:
        """How to read it. Servers send "deflate" with a header, as the standard says, or without, as some always did."""
        if self._coding == "gzip":
            return zlib.MAX_WBITS | 16
        return zlib.MAX_WBITS if chunk[0] & 0x0F == 8 else -zlib.MAX_WBITS


def _check_status(target: Target, response: http.client.HTTPResponse) -> None:
    """Refuse every answer that is not the page."""
    status, told = response.status, _brief(f"{response.status} {response.reason}".strip())
    if 200 <= status < 300:
        return
    if status == 429 or status >= 500:
        wait = _seconds(response.headers.get("Retry-After", ""))
        if wait:  # the server has said when; asking earlier, as a retry would, is what it does not want
            raise SkillError(
                f"{target.host} answered {told}: try again in {wait:.0f} s", retryable=True, retry_after=wait
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
    if re.fullmatch(r"[0-9]+", retry_after.strip()):
        return min(float(retry_after), MOST_WAIT)
    try:
        until = parsedate_to_datetime(retry_after)
        return min(max(0.0, round((until - datetime.now(UTC)).total_seconds())), MOST_WAIT)
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _brief(words: str) -> str:
    """The beginning of what a server says."""
    return words if len(words) <= MOST_WORDS else f"{words[: MOST_WORDS - 1]}…"


def _as_utf8(location: str) -> str:
    """An address in a header: `http.client` reads its bytes as Latin-1, and what is not ASCII there is UTF-8."""
    with contextlib.suppress(UnicodeError):
        return location.encode("latin-1").decode()
    return location


# --- from bytes to text ---------------------------------------------------------------------------

CHARSETS: Final = re.compile(
    r"ascii|utf-?(8|16|32)([-_][bl]e)?|iso-?8859-\d+|cp\d+|koi8-[rutk]|mac-\w+|gb\w+|big5\w*|euc_\w+|shift_jis\w*|iso2022_\w+"
)
META: Final = re.compile(
    rb"""(?:<meta[^>]{0,200}?charset|<\?xml[^>]{0,200}?encoding)\s{0,9}=\s{0,9}["']?([\w-]{1,40})""", re.IGNORECASE
)
MARKS: Final = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def _decoded(answer: Answer) -> tuple[str, str]:
    """The body as text, by what it begins with, what the server says, what the page says; else UTF-8. And a note on that."""
    sample = answer.body[:8192]
    marked = next((name for mark, name in MARKS if sample.startswith(mark)), None)
    binary = b"\0" in sample and not marked and not (answer.charset or "").startswith(("utf-16", "utf-32"))
    typed = not answer.type or answer.type == "application/octet-stream" or TEXTUAL.fullmatch(answer.type)
    if binary or not typed:
        size = f"{len(answer.body):,} bytes" if not answer.cut else f"more than {len(answer.body):,} bytes"
        raise SkillError(f"{answer.url} is no text: {answer.type or 'data'}, {size}")
    meta = META.search(sample)
    said = meta[1].decode() if meta else "utf-8"
    if said.lower().startswith("utf-16"):
        said = "utf-8"  # or nobody could have read that; browsers do the same
    charset = _charset(marked or answer.charset or said)
    try:
        return codecs.getincrementaldecoder(charset)().decode(answer.body, final=not answer.cut), ""
    except UnicodeError:
        note = f"the page is not {charset} throughout: what could not be read is shown as \N{REPLACEMENT CHARACTER}"
        return answer.body.decode(charset, "replace"), note


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
GAPS: Final = re.compile(r"\n{3,}")
SPACE: Final = re.compile(r"\s+")
UNLINKED: Final = ("#", "javascript:", "data:")


class Enough(Exception):
    """Ends the conversion of a page early. The message says why."""


class HtmlReader:
    """Readable text of a page: headings, paragraphs, lists, tables row by row, code as it is.

    The parser of lxml reports the elements one by one and builds no tree. A tree as the HTML standard wants it is not safe
    to build: the standard repeats unclosed formatting elements in every paragraph, so that 100 kB of HTML become 18 GB.
    """

    def __init__(self, url: str, *, links: bool) -> None:
        self._page = PageText(url, links=links)
        self._lxml: Any = _lxml()
        self._parser: Any = self._lxml.HTMLParser(target=self._page)
        self.note = ""

    @property
    def title(self) -> str:
        """The title of the page, or an empty string."""
        return SPACE.sub(" ", "".join(self._page.titles)).strip()

    def feed(self, text: str) -> None:
        """Convert a further part of the page. Once a limit is reached, the rest of the page is ignored."""
        if self.note:
            return
        try:
            self._parser.feed(text)
        except Enough as reason:
            self.note = str(reason)
        except self._lxml.LxmlError as error:
            self.note = f"the page is broken HTML ({error}); only the part before the fault was converted"

    def close(self) -> None:
        """Convert what the parser has kept back."""
        if not self.note:
            # An empty page is an error to lxml. A limit that the last few characters exceed makes no difference.
            with contextlib.suppress(self._lxml.LxmlError, Enough):
                self._parser.close()

    def text(self) -> str:
        """The text so far."""
        lines = "".join(self._page.pieces).split("\n")
        return GAPS.sub("\n\n", "\n".join(line.rstrip(" \t") for line in lines)).strip()


def _lxml() -> Any:
    """The parser library. Imported at the first HTML page, since everything else works without it."""
    try:
        return importlib.import_module("lxml.etree")
    except ImportError as error:
        raise SkillError(
            "fetch.get needs the package lxml to convert HTML, and it is not installed: "
            'run `pip install "lxml>=6"` in the environment of Prowess, or use format "raw"'
        ) from error


class PageText:
    """Collects the text of a page from what the parser reports. Every report costs the same, however large the page is."""

    def __init__(self, url: str, *, links: bool) -> None:
        self.pieces: list[str] = []
        self.titles: list[str] = []
        self._url = url
        self._links = links
        self._reports = 0
        self._chars = 0
        self._depth = 0
        self._skipped = 0
        self._code = 0
        self._in_title = False
        self._link: tuple[str, int] | None = None

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """An element begins."""
        self._count()
        self._depth += 1
        if self._depth > MOST_DEPTH:  # each end tag makes the parser search all the elements that are open
            raise Enough(f"elements are nested more than {MOST_DEPTH:,} deep there; the rest of the page was left out")
        if tag in SKIPPED:
            self._skipped += 1
        elif tag == "title":
            self._in_title = not self.titles and not self._skipped
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
            self._begin_link(attributes.get("href", ""))
        elif tag == "img":
            self.data(attributes.get("alt", ""))

    def end(self, tag: str) -> None:
        """An element ends. The parser reports this for every element, also where the page forgot to."""
        self._count()
        self._depth -= 1
        if tag in SKIPPED:
            self._skipped -= 1
        elif tag == "title":
            self._in_title = False
        elif tag == "pre":
            self._code -= 1
            self._add("\n```\n\n")
        elif tag == "a":
            self._end_link()
        elif tag in HEADINGS or tag == "p":
            self._add("\n\n")
        elif tag in BLOCKS:
            self._add("\n")

    def data(self, text: str) -> None:
        """Text, with its white space as a browser would show it."""
        self._count()
        if self._in_title:
            self.titles.append(text)
        elif self._code:
            self._add(text)
        else:
            text = SPACE.sub(" ", text)
            begins = not self.pieces or self.pieces[-1].endswith(("\n", " "))
            self._add(text.lstrip() if begins else text)

    def close(self) -> None:
        """The page ends."""

    def _count(self) -> None:
        self._reports += 1
        if self._reports > MOST_REPORTS:
            raise Enough(f"the page has more than {MOST_REPORTS:,} elements and texts; the rest of it was left out")

    def _add(self, piece: str) -> None:
        if not piece or self._skipped:
            return
        self._chars += len(piece)
        if self._chars > MOST_TEXT:  # addresses of links make the text longer than the page
            raise Enough(f"the page has more than {MOST_TEXT:,} characters of text; the rest of it was left out")
        self.pieces.append(piece)

    def _begin_link(self, href: str) -> None:
        self._end_link()
        if self._links and href and not self._skipped and not href.startswith(UNLINKED):
            with contextlib.suppress(ValueError):  # an address that cannot be used: only its text is shown
                self._link = (urllib.parse.urljoin(self._url, href), len(self.pieces))

    def _end_link(self) -> None:
        """Put brackets around what was added since the link began, unless that is only white space."""
        if self._link is None:
            return
        address, begin = self._link
        self._link = None
        inside = range(begin, len(self.pieces))
        first = next((at for at in inside if not self.pieces[at].isspace()), None)
        last = next((at for at in reversed(inside) if not self.pieces[at].isspace()), None)
        if first is None or last is None:
            return
        self.pieces[first] = _wrapped(self.pieces[first], "[", "")
        self.pieces[last] = _wrapped(self.pieces[last], "", f"]({address})")
        self._chars += len(address)


def _wrapped(piece: str, before: str, after: str) -> str:
    """A text with something put around it, inside of the white space at its ends."""
    core = piece.strip()
    begin = piece.index(core)
    return piece[:begin] + before + core + after + piece[begin + len(core) :]
