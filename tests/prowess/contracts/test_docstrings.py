"""Docstrings in every style that authors write, and in some that they do not mean to."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.contracts.docstrings import Docstring, parse


def test_no_docstring_says_nothing():
    """A function without a docstring has an empty text and no descriptions."""
    assert Docstring(text="", summary="", parameters={}) == parse(None)
    assert Docstring() == parse("")


def test_the_text_is_the_whole_docstring_cleaned():
    """Indentation is taken off, inner lines and sections that are not about parameters stay."""
    found = parse("""Add numbers.

        They may be large.

        Returns:
            The sum.

        Raises:
            ValueError: if there are none.
        """)
    assert (
        "Add numbers.\n\nThey may be large.\n\nReturns:\n    The sum.\n\nRaises:\n    ValueError: if there are none."
        == found.text
    )
    assert {} == found.parameters


@pytest.mark.parametrize(
    "doc, summary",
    [
        ("Add.", "Add."),
        ("Add numbers\nof any size.\nOr none.", "Add numbers of any size."),
        ("Add. Then stop.\nNext line.", "Add. Then stop."),
        ("Add numbers\n\nParagraph.", "Add numbers"),
        ("Add numbers\n- one\n- two", "Add numbers"),
        ("Add numbers\nReturns:\n    One.", "Add numbers"),
        ("Title\n=====\nText", "Title"),
        ("Args:\n    x: text", ""),
    ],
)
def test_the_summary_is_the_first_line_with_the_rest_of_its_sentence(doc: str, summary: str):
    """A first sentence that was wrapped is not cut in two."""
    assert summary == parse(doc).summary


GOOGLE = """Search.

    Args:
        query: What to look for.
        limit (int, optional): How many,
            at most.
        style (dict[str, (int)]): How: nicely
        `mode`: One of

            - fast
            - slow

            and nothing else.
        *paths, **options: The rest.

    Returns:
        int: a number.
    """


def test_google_style_with_and_without_types_is_read():
    """M-12: plain Google `x: text` is supported; continuation lines belong to their parameter."""
    assert {
        "query": "What to look for.",
        "limit": "How many, at most.",
        "style": "How: nicely",
        "mode": "One of\n\n- fast\n- slow\n\nand nothing else.",
        "paths": "The rest.",
        "options": "The rest.",
    } == parse(GOOGLE).parameters


def test_a_parameter_section_is_left_out_of_the_text():
    """What the schema shows is not said twice, and no gap remains."""
    assert "Search.\n\nReturns:\n    int: a number." == parse(GOOGLE).text


@pytest.mark.parametrize("header", ["Args", "Arguments", "Parameters", "Params", "Keyword Args", "Other Parameters"])
def test_all_usual_names_of_the_section_are_known(header: str):
    """Authors name the section in many ways."""
    assert {"x": "text"} == parse(f"Do.\n\n{header}:\n    x: text").parameters


def test_numpy_style_is_read():
    """M-12: NumPy sections are supported, with several names on one line."""
    found = parse("""Search.

        Parameters
        ----------
        query : str
            What to look for.
        low, high : int, optional
            The bounds.

            Both count.
        size : the number of things
        flag : bool
        *rest
            More.

        Returns
        -------
        int
            A number.
        """)
    assert {
        "query": "What to look for.",
        "low": "The bounds.\n\nBoth count.",
        "high": "The bounds.\n\nBoth count.",
        "size": "the number of things",
        "rest": "More.",
    } == found.parameters
    assert "Search.\n\nReturns\n-------\nint\n    A number." == found.text


@pytest.mark.parametrize("after", ["Prose goes on.", "Returns:\n    int", "Lonely"])
def test_a_numpy_section_ends_where_its_entries_end(after: str):
    """What follows at the margin and is no entry belongs to the text."""
    found = parse(f"Do.\n\nParameters\n----------\nx : int\n    The x.\n\n{after}")
    assert {"x": "The x."} == found.parameters
    assert f"Do.\n\n{after}" == found.text


def test_sphinx_fields_are_read():
    """M-11: `:param x: text`, with a type, and with continuation lines; `:type:` is dropped, the rest stays."""
    found = parse("""Search.

        :param x: the sphinx x
        :param int y: the y,
            and more
        :param dict[str, int] z: the z
        :type x: int
        :returns: a number
        """)
    assert {"x": "the sphinx x", "y": "the y, and more", "z": "the z"} == found.parameters
    assert "Search.\n\n:returns: a number" == found.text


def test_google_with_a_type_gives_the_text_alone():
    """M-11: the type in parentheses is not part of the description."""
    assert {"x": "The x value"} == parse("Args:\n  x (int): The x value").parameters


def test_the_dash_list_gives_the_whole_text_after_the_type():
    """M-10, superseded: the ancestor cut at the last dash ("with dash inside"); the author meant all of the text."""
    found = parse("Args:\n - x: int - the dash - with dash inside")
    assert {"x": "the dash - with dash inside"} == found.parameters
    assert "" == found.text


@pytest.mark.parametrize(
    "line, description",
    [
        ("- x: int - text", "text"),
        ("- x: Optional[dict[str, int]] = None - text", "text"),
        ("- x: str | None - text", "text"),
        ("- x: int or float \N{EM DASH} text", "text"),
        ("- x (int): text", "text"),
        ("* `x`: text", "text"),
        ("- x - text", "text"),
        ("- x: the path - absolute - or not", "the path - absolute - or not"),
        ("- x: text", "text"),
        ("- x: Literal['a - b'] - text", "text"),
    ],
)
def test_dash_lists_come_in_many_forms(line: str, description: str):
    """Only what can be read as a type is taken off, and a dash in prose is prose."""
    assert {"x": description} == parse(f"Do.\n\nArgs:\n    {line}").parameters


def test_a_dash_list_may_stand_at_the_margin_of_its_header():
    """Markdown does not indent lists; the list ends the section."""
    found = parse("Do.\n\nArgs:\n- x: int - the x\n  goes on\n\n- y: the y\nDone.")
    assert {"x": "the x goes on", "y": "the y"} == found.parameters
    assert "Do.\n\nDone." == found.text


def test_items_below_a_plain_entry_are_no_parameters():
    """In a section of plain entries, a list at the same depth belongs to the entry above it."""
    found = parse("Do.\n\nArgs:\n    mode: One of\n    - fast: quick\n    - slow: careful")
    assert {"mode": "One of\n- fast: quick\n- slow: careful"} == found.parameters


def test_a_section_that_is_not_understood_stays_in_the_text():
    """No word of the author gets lost: prose before the first entry keeps the section where it is."""
    google = "Do.\n\nArgs:\n    All of them:\n    x: the x"
    numpy = "Do.\n\nParameters\n----------\n    All of them.\nx : int\n    The x."
    assert Docstring(google, "Do.", {"x": "the x"}) == parse(google)
    assert Docstring(numpy, "Do.", {"x": "The x."}) == parse(numpy)


@pytest.mark.parametrize(
    "doc",
    [
        "Do.\n\nArgs:",
        "Do.\n\nArgs:\n\n",
        "Do.\n\nArgs:\n    none to speak of",
        "Do.\n\nArgs:\nnothing",
        "Do.\n\nParameters\n----------",
        "Do.\n\nParameters\n----------\nReturns\n-------\nint",
        "Parameters",
        "Do: this\n\nThings:\n    x: not a parameter",
    ],
)
def test_what_only_looks_like_a_section_is_text(doc: str):
    """A header without entries is kept as it stands."""
    assert Docstring(inspect.cleandoc(doc).strip(), parse(doc).summary, {}) == parse(doc)


def test_a_header_on_the_first_line_needs_no_indented_entries():
    """Cleaning takes the indentation off everything below the first line; the next section ends it."""
    assert {"x": "the x", "y": "the y"} == parse("Args:\n    x: the x\n    y: the y").parameters
    found = parse("Args:\n  x: the x\n  Returns:\n    a thing")
    assert {"x": "the x"} == found.parameters
    assert "Returns:\n  a thing" == found.text


def test_the_first_word_on_a_parameter_wins_and_an_empty_one_is_none():
    """Two styles in one docstring do not fight."""
    assert {"x": "first"} == parse(":param y:\n:param x: first\n:param x: second").parameters


def test_fields_without_a_gap_before_them_leave_the_text_together():
    """Only the blank lines that a section leaves behind are closed."""
    assert "Do.\n\nMore." == parse("Do.\n:param x: the x\n\nMore.").text


FRAGMENTS = st.sampled_from(
    "Args:|Parameters|----------|Returns:|:param x: y|:type x: int|x: text|x (int): text|- x: int - y|x : int|word|    |"
    "\n|\n\n|\t|:|(|)|[|]| - |`|*|\r|\x0b|\ud800|é".split("|")
)


@given(st.one_of(st.text(), st.lists(st.one_of(FRAGMENTS, st.text(max_size=3)), max_size=30).map("".join)))
def test_any_text_is_read_and_nothing_is_invented(doc: str):
    """Never raises; every line of the text is a line of the docstring, in order; every name is a bare word."""
    found = parse(doc)
    lines = iter(line.strip() for line in inspect.cleandoc(doc).split("\n"))
    assert all(line.strip() in lines for line in found.text.split("\n") if line.strip())
    assert all(name.isidentifier() and text for name, text in found.parameters.items())
