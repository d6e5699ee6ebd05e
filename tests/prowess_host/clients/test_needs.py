from __future__ import annotations

from pathlib import Path

from prowess.contracts.contract import Contract
from prowess_host.clients.needs import needed_variables


def command(*settings: str) -> Contract:
    return Contract("a.b", "a_b", "a", "b", "", {}, inject_settings=settings)


def test_variables_that_no_file_gives_are_needed(tmp_path: Path) -> None:
    """Those of parameters, and those that set something in this environment; not those of other programs."""
    (tmp_path / "prowess.toml").write_text("[api]\nurl = 'x'\n[deep-er.table]\na = 1\n")
    (tmp_path / ".env").write_text("IN_FILE=1\nPROWESS_API__KEY=2\n")
    wanted = ["env:IN_FILE", "env:MISSING:x", "api.key", "api.url", "api.other", "deep_er.table", "deep-er.more:y"]
    environ = {
        "PROWESS_TIMEOUT": "3",
        "PROWESS_HOME": "x",
        "PROWESS_TIMOUT": "3",
        "prowess_api__other": "",
        "PATH": "x",
    }

    assert ["MISSING", "PROWESS_DEEP_ER__MORE", "PROWESS_TIMEOUT", "prowess_api__other"] == needed_variables(
        tmp_path, [command(*wanted), command()], environ
    )


def test_variable_with_a_wrong_value_is_no_need(tmp_path: Path) -> None:
    """The host says what is wrong with it."""
    assert [] == needed_variables(tmp_path, [], {"PROWESS_TIMEOUT": "soon"})
