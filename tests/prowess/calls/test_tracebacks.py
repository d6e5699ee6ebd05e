"""Tracebacks that begin with the author's code."""

from __future__ import annotations

import anyio

from prowess.calls.tracebacks import first_notes, shortened


def caught(function, *args) -> BaseException:
    try:
        function(*args)
    except BaseException as error:  # noqa: BLE001 - whatever it is
        return error.with_traceback(error.__traceback__.tb_next)  # without this function
    raise AssertionError


def test_frames_before_the_author_s_are_dropped():
    """In the exception and in all that it came from; frames after it stay."""

    async def author():
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second") from None

    async def grouped():
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(author)
        except ExceptionGroup as error:
            raise RuntimeError("third") from error

    text = shortened(caught(anyio.run, grouped))
    frames = [line for line in text.splitlines() if "  File " in line]
    assert frames
    assert f'File "{__file__}"' in frames[0]
    assert "RuntimeError: third" in text
    assert "ValueError: second" in text
    assert "asyncio/runners.py" not in text


def test_an_error_without_any_frame_of_the_author_s_is_shown_whole():
    """It may be ours."""
    text = shortened(caught(compile, "1 +", "anyio-none", "eval"))
    assert "SyntaxError" in text

    async def nothing():
        pass

    error = caught(anyio.run, nothing, 1, 2, 3)
    assert "anyio" in shortened(error)


def test_of_many_notes_the_first_are_shown():
    """Since Python 3.14, `json.dumps` of what is nested too deeply adds tens of thousands."""

    def author():
        error = ValueError("deep")
        for level in range(50):
            error.add_note(f"level {level};")
        raise error

    error = caught(author)
    assert ["level 19;", "... and 30 more notes"] == shortened(error).splitlines()[-2:]
    assert 21 == len(first_notes(error))  # as for clients
