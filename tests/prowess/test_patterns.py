"""A regular expression that is compiled at its first use is like any other."""

from __future__ import annotations

import re

import pytest

from prowess.patterns import lazy_pattern


def test_lazy_pattern_does_what_a_compiled_one_does():
    """With flags, and from a position."""
    lazy, compiled = lazy_pattern("(?P<word>b+)", re.IGNORECASE), re.compile("(?P<word>b+)", re.IGNORECASE)
    for _ in range(2):
        found, expected = lazy.search("abBbc", 2), compiled.search("abBbc", 2)
        assert found is not None
        assert expected is not None
        assert (expected["word"], expected.span()) == (found["word"], found.span())
        assert compiled.sub("-", "abc") == lazy.sub("-", "abc")
    assert (compiled.pattern, compiled.groupindex) == (lazy.pattern, lazy.groupindex)


def test_wrong_lazy_pattern_fails_at_its_first_use():
    wrong = lazy_pattern("(")
    with pytest.raises(re.error):
        wrong.search("")
