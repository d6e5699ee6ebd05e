"""The log on stderr, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import logging
from prowess.logs import log_to_stderr
log_to_stderr()
logging.warning("all is well: %s", "größer")
logging.warning("unknown: %s", "a\\nprowess: forged\\x1b[2J\\u202e")
"""
REPLACED = """
import io, logging, sys
from prowess.logs import log_to_stderr
log_to_stderr()
sys.stderr = drawn = io.StringIO()
logging.warning("above")
print(drawn.getvalue(), end="")
"""


def test_what_draws_on_the_terminal_gets_the_messages_meanwhile():
    done = subprocess.run([sys.executable, "-c", REPLACED], capture_output=True, check=True)
    assert (b"prowess: above\n", b"") == (done.stdout, done.stderr)


def test_a_message_forges_no_line_and_acts_on_no_terminal():
    """Further lines are indented, and hidden characters are escapes."""
    done = subprocess.run([sys.executable, "-X", "utf8", "-c", CODE], capture_output=True, check=True)
    expected = "prowess: all is well: größer\nprowess: unknown: a\n  prowess: forged\\x1b[2J\\u202e\n"
    assert expected == done.stderr.decode()
