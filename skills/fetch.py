"""Read web pages. Refuses addresses of private networks, and connects to the very address that it has checked.

Built on `http.client`, which lets us open the connection ourselves. `urllib.request` (like most libraries) looks the name
up again when it connects, so that a name whose answer changes in between leads past any check, and it obeys the proxies
of the environment, where the check would be the proxy's to make.
"""

from __future__ import annotations

import codecs
import fnmatch
import http.client
import ipaddress
import re
import socket
import ssl
import urllib.parse
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from typing import Annotated, Final, Literal, NotRequired, TypeAlias, TypedDict

import anyio.to_thread
from pydantic import Field

from prowess import Settings, SkillError, skill_command

MOST_BYTES: Final = 5_000_000  # of one page, also when unpacked; the setting fetch.max_bytes changes it
MOST_REDIRECTS: Final = 5
SECONDS: Final = 15.0  # for each step: connecting, and each piece that is read
CHUNK: Final = 64 * 1024
USER_AGENT: Final = "prowess-fetch/1.0"
NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
TEXTUAL: Final = re.compile(r"text/|application/(.*\+)?(json|xml|javascript|ecmascript|yaml|toml|x-ndjson|graphql|sql)\b|image/svg")
