"""Parsing without warnings."""

from __future__ import annotations

import subprocess
import sys

PARSING = r"""
from prowess.skills.parsing import parse
print(parse(rb'a = "\d"').body[0].targets[0].id)
"""


def test_parsing_warns_of_nothing():
    """Importing the file warns. A second warning would name no file, or make an error of a file that can be imported."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", PARSING], capture_output=True, text=True, check=False)
    assert ("a\n", "") == (done.stdout, done.stderr)
