"""The log on stderr, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


CONFIGURED = """
import logging.config
from prowess.logs import log_to_stderr
log_to_stderr()
logging.getLogger("library").warning("before")
logging.getLogger("prowess.skill.a.b").warning("before")
try:
    logging.basicConfig(filename="a", handlers=[])
except ValueError:
    logging.warning("still here")
logging.basicConfig(level=logging.INFO, filename="skill.log", format="%(name)s %(message)s")
logging.getLogger("library").info("after")
logging.getLogger("prowess.skill.a.b").info("after")
logging.config.dictConfig({"version": 1})
logging.getLogger("prowess").error("a.b crashed")
log_to_stderr()
logging.info("again")
"""


def test_what_draws_on_the_terminal_gets_the_messages_meanwhile():
    done = subprocess.run([sys.executable, "-c", REPLACED], capture_output=True, check=True)
    assert (b"prowess: above\n", b"") == (done.stdout, done.stderr)


def test_a_message_forges_no_line_and_acts_on_no_terminal():
    """Further lines are indented, and hidden characters are escapes."""
    done = subprocess.run([sys.executable, "-X", "utf8", "-c", CODE], capture_output=True, check=True)
    expected = "prowess: all is well: größer\nprowess: unknown: a\n  prowess: forged\\x1b[2J\\u202e\n"
    assert expected == done.stderr.decode()


def test_a_skill_configures_logging_as_everywhere(tmp_path: Path):
    """Its own messages go where it says, also those of an injected logger; those of Prowess stay on stderr."""
    done = subprocess.run([sys.executable, "-c", CONFIGURED], capture_output=True, check=True, text=True, cwd=tmp_path)
    assert "prowess: before\nprowess: before\nprowess: still here\nprowess: a.b crashed\n" == done.stderr
    assert "library after\nprowess.skill.a.b after\nroot again\n" == (tmp_path / "skill.log").read_text()
