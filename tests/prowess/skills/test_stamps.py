"""Files by status first, and by content where the status leaves a doubt."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from prowess.skills import stamps
from prowess.skills.stamps import Seen, changed, listing, look, look_again, refreshed

LATER = 3600 * 10**9
LONG_AGO = time.time_ns() - 3600 * 10**9


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that was written an hour ago."""
    path = tmp_path / "a.py"
    path.write_text("one", "utf-8")
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return path


def seen(path: Path, later: int = 0) -> Seen:
    found = look(str(path), time.time_ns() + later)
    assert found is not None
    return found


def test_untouched_file_is_the_same(file: Path) -> None:
    """Its time and size say so."""
    assert look_again(str(file), seen(file))
    assert set() == changed({str(file): seen(file)})


def test_certain_file_is_not_read_again(file: Path) -> None:
    """A status that leaves no doubt is believed: another digest makes no difference."""
    assert look_again(str(file), seen(file, LATER)._replace(digest="other"))
    assert not look_again(str(file), seen(file)._replace(digest="other"))


def test_time_that_was_set_deceives_nobody(file: Path) -> None:
    """Another text of the same size, with the same time: the other time tells."""
    before = seen(file, LATER)
    file.write_text("two", "utf-8")
    os.utime(file, ns=(LONG_AGO, LONG_AGO))
    assert not look_again(str(file), before)


def test_refreshed_sightings_need_no_reading(file: Path, tmp_path: Path) -> None:
    """As far as the files are what they were; the others stay as they were seen."""
    other, gone = tmp_path / "other.py", tmp_path / "gone.py"
    other.write_text("one", "utf-8")
    gone.write_text("one", "utf-8")
    before = {str(path): seen(path) for path in (file, other, gone)}
    other.write_text("two", "utf-8")
    gone.unlink()
    after = refreshed(before, time.time_ns() + LATER)
    assert look_again(str(file), after[str(file)]._replace(digest="read"))
    assert [before[str(path)] for path in (other, gone)] == [after[str(path)] for path in (other, gone)]
    assert after == refreshed(after, time.time_ns() + 2 * LATER)


@pytest.mark.parametrize("text", ["two", "longer"])
def test_changed_file_is_another(file: Path, text: str) -> None:
    """Also one of the same size."""
    before = seen(file)
    file.write_text(text, "utf-8")
    assert {str(file)} == changed({str(file): before})


def test_file_saved_as_it_was_is_the_same(file: Path) -> None:
    """A new time alone changes nothing."""
    before = seen(file)
    file.write_text("one", "utf-8")
    assert look_again(str(file), before)


@pytest.mark.parametrize("shift", [0, 10**9, -(10**9)])
def test_edit_within_the_grain_of_the_clock_is_seen(file: Path, shift: int) -> None:
    """Seen and saved at nearly the same time: the content decides, also after a clock was set back."""
    now = time.time_ns()
    os.utime(file, ns=(now + shift, now + shift))
    before = look(str(file), now)
    assert before is not None
    file.write_text("two", "utf-8")
    os.utime(file, ns=(now + shift, now + shift))
    assert not look_again(str(file), before)


def test_file_that_is_gone_has_changed(file: Path) -> None:
    """And cannot be seen."""
    before = seen(file)
    file.unlink()
    assert not look_again(str(file), before)
    assert look(str(file), 0) is None


def test_folder_in_the_place_of_a_file_is_a_change(file: Path) -> None:
    """Whatever its size is."""
    before = seen(file)
    file.unlink()
    file.mkdir()
    assert not look_again(str(file), before._replace(size=file.stat().st_size))


def test_file_that_changes_while_it_is_read_is_looked_at_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state gets an impossible time."""
    monkeypatch.setattr(stamps, "read", lambda _: b"half of it")
    before = look(str(file), time.time_ns())
    monkeypatch.undo()
    assert before is not None
    assert -1 == before.mtime_ns
    assert not look_again(str(file), before)


def test_listing_tells_what_is_installed(tmp_path: Path) -> None:
    """By the names that hold versions, and by nothing else; a folder that is not there is told from an empty one."""
    empty = listing([str(tmp_path)], (".dist-info",))
    (tmp_path / "other.txt").touch()
    assert empty == listing([str(tmp_path)], (".dist-info",))
    (tmp_path / "a-1.0.dist-info").mkdir()
    assert empty != listing([str(tmp_path)], (".dist-info",)) != listing([str(tmp_path / "x")], (".dist-info",))


def test_listing_tells_of_what_is_installed_anew(tmp_path: Path) -> None:
    """By its time; a link that leads nowhere has none, and is listed all the same."""
    place = tmp_path / "a-1.0.dist-info"
    place.mkdir()
    before = listing([str(tmp_path)], (".dist-info",))
    os.utime(place, ns=(LONG_AGO, LONG_AGO))
    after = listing([str(tmp_path)], (".dist-info",))
    (tmp_path / "b-1.0.dist-info").symlink_to(tmp_path / "nowhere")
    assert 3 == len({before, after, listing([str(tmp_path)], (".dist-info",))})


def test_listing_is_the_same_after_a_file_was_linked_into_another_environment(tmp_path: Path) -> None:
    """As uv does it, which changes the file's ctime; another content counts."""
    place = tmp_path / "a.pth"
    place.write_text("import a\n")
    before = listing([str(tmp_path)], (".pth",))
    changed_at = place.stat().st_ctime_ns
    while place.stat().st_ctime_ns == changed_at:
        other = tmp_path / "other"
        os.link(place, other)
        other.unlink()
    assert before == listing([str(tmp_path)], (".pth",))
    place.write_text("import b\n")
    assert before != listing([str(tmp_path)], (".pth",))


def test_pipe_is_not_waited_for(file: Path) -> None:
    """Whatever has taken the place of a file, looking at it comes to an end."""
    before = seen(file)
    file.unlink()
    os.mkfifo(file)
    assert look(str(file), 0) is None
    assert not look_again(str(file), before)
