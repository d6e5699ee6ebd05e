"""Layers, own keys and free tables of the settings."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from prowess.errors import SettingsError
from prowess.settings.files import Written, is_configured, read_toml
from prowess.settings.keys import OwnSettings, RetrySettings, own_keys
from prowess.settings.limits import Limits
from prowess.settings.settings import Settings


def load(root: Path, toml: str = "", environ: dict[str, str] | None = None, **flags: Any) -> Settings:
    if toml:
        (root / "prowess.toml").write_text(toml)
    return Settings.load(root, environ=environ or {}, flags=flags)


def refusal(root: Path, toml: str = "", environ: dict[str, str] | None = None, **flags: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load(root, toml, environ, **flags)
    return str(caught.value).replace(f"{root}/", "")


# --- layers ---------------------------------------------------------------------------------------


def test_without_any_layer_everything_has_its_default(tmp_path: Path):
    """A project needs no settings at all."""
    settings = load(tmp_path)
    assert OwnSettings() == settings.own
    assert 300.0 == settings.get("timeout")
    assert settings.config_file is None
    assert [] == settings.keys()


def test_later_layers_win(tmp_path: Path):
    """The file, then the environment, then flags."""
    toml = "timeout = 1\nthreads = 1\nnames = 'dotted'"
    environ = {"PROWESS_TIMEOUT": "2", "PROWESS_THREADS": "2"}
    settings = load(tmp_path, toml, environ, timeout=3)
    assert (3.0, 2, "dotted") == (settings.own.timeout, settings.own.threads, settings.own.names)
    assert tmp_path / "prowess.toml" == settings.config_file


def test_tables_of_several_layers_are_merged(tmp_path: Path):
    """An environment variable replaces one key, not the table that it is in."""
    toml = '[api]\nurl = "u"\nkey = "file"\n[api.deep]\na = 1\n[host]\nworkers = 2\n[wire_names]\n"a.b" = "x"'
    environ = {
        "PROWESS_API__KEY": "env",
        "PROWESS_API__DEEP__B": "2",
        "PROWESS_HOST__GRACE": "1",
        "PROWESS_WIRE_NAMES__C__D": "y",
    }
    settings = load(tmp_path, toml, environ)
    assert {"url": "u", "key": "env", "deep": {"a": 1, "b": "2"}} == settings.get("api")
    assert (2, 1.0) == (settings.own.host.workers, settings.own.host.grace)
    assert {"a.b": "x", "c.d": "y"} == settings.own.wire_names


def test_a_table_replaces_a_value_and_a_value_replaces_a_table(tmp_path: Path):
    """The last layer decides what a key is."""
    environ = {"PROWESS_API__KEY__PART": "p", "PROWESS_API__URL": "u"}
    settings = load(tmp_path, '[api]\nkey = "k"\nurl = {host = "h"}', environ)
    assert {"key": {"part": "p"}, "url": "u"} == settings.get("api")


def test_pyproject_holds_the_same_settings(tmp_path: Path):
    """`[tool.prowess]` reads like prowess.toml."""
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text('[tool.prowess]\ntimeout = 5\n[tool.prowess.api]\nkey = "k"\n[tool.ruff]\nselect = []')
    settings = load(tmp_path)
    assert (5.0, "k") == (settings.own.timeout, settings.get("api.key"))
    assert pyproject == settings.config_file


@pytest.mark.parametrize(
    "text", ["[project]\nname = 'x'", "[project]\ndependencies = ['prowess']", "tool = 1\nx = 'prowess'", "broken ="]
)
def test_a_pyproject_without_our_table_is_no_settings(tmp_path: Path, text: str):
    """A stranger's pyproject.toml is left alone, and not even parsed where it never mentions Prowess."""
    (tmp_path / "pyproject.toml").write_text(text)
    assert load(tmp_path).config_file is None


def test_another_toml_file_is_read_like_those_of_settings(tmp_path: Path):
    """Also with a byte order mark; a broken one is named."""
    file = tmp_path / "other.toml"
    file.write_text("\ufeffx = 1\n")
    assert {"x": 1} == read_toml(file)
    file.write_text("x")
    with pytest.raises(SettingsError, match=r"other\.toml:1: not valid TOML"):
        read_toml(file)


def test_two_configuration_files_are_refused(tmp_path: Path):
    """Which one counts would be a guess."""
    (tmp_path / "pyproject.toml").write_text("[tool.prowess]\n")
    assert "prowess.toml and [tool.prowess] in pyproject.toml both hold settings: remove one of them" == refusal(
        tmp_path, "timeout = 1"
    )


def test_a_broken_pyproject_does_not_spoil_prowess_toml(tmp_path: Path):
    """A file that need not hold our settings is not a reason to refuse those that are there."""
    (tmp_path / "pyproject.toml").write_text("[tool.prowess")
    assert 1.0 == load(tmp_path, "timeout = 1").own.timeout


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["api.max-size", "api.max_size", "API.Max_Size"])
def test_a_key_may_be_written_as_in_the_file_or_as_in_the_environment(tmp_path: Path, key: str):
    """Case and dashes do not count, since environment variables have neither lower case nor dashes."""
    assert 1 == load(tmp_path, "[api]\nmax-size = 1").get(key)
    assert "2" == load(tmp_path, environ={"prowess_api__max_size": "2"}).get(key)


def test_the_exact_spelling_comes_first(tmp_path: Path):
    """Free tables keep their keys as they were written."""
    settings = load(tmp_path, '[fetch.headers]\nx_a = "1"\nX-A = "2"')
    assert ("1", "2") == (settings.get("fetch.headers.x_a"), settings.get("fetch.headers.X-A"))
    settings = load(tmp_path, "[Fetch]\nUser-Agent = '1'", {"PROWESS_FETCH__USER_AGENT": "2"})
    assert {"User-Agent": "2"} == settings.get("fetch")


@pytest.mark.parametrize("key", ["", ".", "api", "api.key", "timeout.x", "api..key", "python"])
def test_what_is_not_set_gives_the_default(tmp_path: Path, key: str):
    """Also `None`, and also for keys that are no keys."""
    assert "d" == load(tmp_path).get(key, "d")
    assert load(tmp_path).get(key, None) is None


def test_an_own_key_is_there_although_nobody_has_set_it(tmp_path: Path):
    """Its default may be `None`."""
    assert (None, 1) == (load(tmp_path).get("python"), load(tmp_path).get("host.workers"))


def test_a_table_that_was_read_can_be_changed_without_harm(tmp_path: Path):
    """Two skills that read the same table do not share it."""
    settings = load(tmp_path, "[api]\nurls = ['a']")
    settings.get("api")["urls"].append("b")
    assert ["a"] == settings.get("api.urls")


def test_own_tables_are_read_with_their_defaults(tmp_path: Path):
    """A table that was set in part is whole."""
    assert {"initial": 0.5, "maximum": 9.0} == load(tmp_path, "retry.maximum = 9").get("retry")


def test_a_required_setting_is_given(tmp_path: Path):
    """What is set is returned, be it false."""
    assert load(tmp_path, "[api]\non = false").get("api.on") is False


@pytest.mark.parametrize(
    "toml, key, message",
    [
        (
            "",
            "api.key",
            (
                "setting 'api.key' is not set. "
                "Set key under [api] in {root}/prowess.toml, or PROWESS_API__KEY in the environment, or in {root}/.env."
            ),
        ),
        (
            "[api]\nkye = 'secret'",
            "api.key",
            (
                "setting 'api.key' is not set; did you mean \"api.kye\". "
                "Set key under [api] in {root}/prowess.toml, or PROWESS_API__KEY in the environment, or in {root}/.env."
            ),
        ),
        (
            "env_file = ''",
            "api.key",
            (
                "setting 'api.key' is not set. "
                "Set key under [api] in {root}/prowess.toml, or PROWESS_API__KEY in the environment."
            ),
        ),
        (
            "",
            "token",
            (
                "setting 'token' is not set. "
                "Settings of skills are in tables: add a table [token] to {root}/prowess.toml, or ask for a key in a "
                'table, like "my_skill.token".'
            ),
        ),
    ],
)
def test_a_missing_setting_is_named_with_the_ways_to_set_it(tmp_path: Path, toml: str, key: str, message: str):
    """The person who reads this can act on it at once."""
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, toml).get(key)
    assert message.format(root=tmp_path) == str(caught.value)


def test_a_missing_setting_belongs_into_the_file_that_is_there(tmp_path: Path):
    """A project with [tool.prowess] is not told to write a second file."""
    (tmp_path / "pyproject.toml").write_text("[tool.prowess]\n")
    with pytest.raises(SettingsError, match=r"under \[tool\.prowess\.api\] in .*/pyproject\.toml"):
        load(tmp_path).get("api.key")


def test_no_value_shows_in_a_repr(tmp_path: Path):
    """Settings end up in logs and tracebacks, secrets must not."""
    assert f"<Settings of {str(tmp_path)!r}: nothing set>" == repr(load(tmp_path))
    settings = load(tmp_path, "timeout = 5\n[api]\nkey = 'hush'\n[api.more]\ntoken = 'hush'")
    assert f"<Settings of {str(tmp_path)!r}: timeout, api.key, api.more.token>" == repr(settings)
    assert ["timeout", "api.key", "api.more.token"] == settings.keys()


# --- own keys -------------------------------------------------------------------------------------


def test_every_own_key_is_documented():
    """The table names all keys, their types and what they are for."""
    rows = {row.name: row for row in own_keys()}
    assert (
        "timeout skills hide profile describe_results names python threads cache_bytes cache_dir env_file allow_outside_root max_result "
        "kept_results token_budget retry.initial retry.maximum inject.container host.workers host.grace host.cancel_grace "
        "host.stall_limit host.import_limit host.shared_memory host.max_waiting host.max_line host.drain host.restart_limit "
        "host.restart_window host.pool_idle record.on record.max_bytes record.max_days record.max_value record.arguments "
        "record.results record.output record.secrets otel.on otel.endpoint otel.service_name serve.host serve.port "
        "serve.workers serve.url serve.allowed_hosts serve.allowed_origins serve.trusted_proxies serve.tls_cert serve.tls_key serve.sessions "
        "serve.max_sessions serve.max_client_sessions serve.session_idle serve.kept_events serve.poll serve.max_body serve.max_header "
        "serve.max_connections serve.max_calls serve.max_client_calls serve.patience serve.drain serve.oauth_issuer serve.oauth_audience "
        "serve.oauth_jwks serve.oauth_scopes "
        "identity.name identity.title identity.description identity.instructions identity.website_url identity.icons "
        "skill_files resources environments.uv environments.prowess environments.index environments.find_links "
        "environments.offline environments.python_downloads environments.build_timeout cluster.url cluster.name "
        "cluster.credentials cluster.token cluster.user cluster.password cluster.tls_ca cluster.tls_cert cluster.tls_key "
        "cluster.silence cluster.patience cluster.workers cluster.files agent.name agent.labels agent.slots agent.drain agent.keys "
        "run_on wire_names sandbox"
    ).split() == list(rows)
    assert ("a number > 0", 300.0) == (rows["timeout"].type, rows["timeout"].default)
    assert ('"flat" or "dotted"', {}) == (rows["names"].type, rows["wire_names"].default)
    assert all(row.help for row in rows.values())


def test_own_keys_arrive_typed(tmp_path: Path):
    """An integer is good enough for a number, a list becomes a tuple."""
    settings = load(
        tmp_path,
        'timeout = 5\nskills = ["a", "b"]\nhide = ["x.*", "!x.y"]\npython = "python3"\nallow-outside-root = true\n'
        "cache-bytes = 0\n[retry]\ninitial = 0\n[wire_names]\ngit.status = 'status'\n\"git.log\" = 'log'",
    )
    assert (
        OwnSettings(
            timeout=5.0,
            skills=("a", "b"),
            hide=("x.*", "!x.y"),
            python="python3",
            allow_outside_root=True,
            cache_bytes=0,
            retry=RetrySettings(initial=0.0),
            wire_names={"git.status": "status", "git.log": "log"},
        )
        == settings.own
    )
    assert isinstance(settings.own.timeout, float)


def test_a_timeout_may_be_infinite(tmp_path: Path):
    """`inf` is TOML, and says that there is no limit."""
    assert float("inf") == load(tmp_path, "timeout = inf").own.timeout


@pytest.mark.parametrize(
    "toml, message",
    [
        ("timeout = 'soon'", 'prowess.toml:1: timeout must be a number > 0, not "soon"'),
        ("timeout = 0", "prowess.toml:1: timeout must be a number > 0, not 0"),
        ("timeout = nan", "prowess.toml:1: timeout must be a number > 0, not NaN"),
        ("timeout = true", "prowess.toml:1: timeout must be a number > 0, not true"),
        (f"timeout = 1{'0' * 400}", f"prowess.toml:1: timeout must be a number > 0, not 1{'0' * 58}…"),
        ("\nthreads = 1.5", "prowess.toml:2: threads must be an integer >= 1, not 1.5"),
        ("threads = 0", "prowess.toml:1: threads must be an integer >= 1, not 0"),
        ("names = 'curly'", 'prowess.toml:1: names must be "flat" or "dotted", not "curly"'),
        ("python = 3", "prowess.toml:1: python must be a string, not 3"),
        ("skills = 'skills'", 'prowess.toml:1: skills must be a list of strings, not "skills"'),
        ("hide = [1]", "prowess.toml:1: hide must be a list of strings, not [1]"),
        ("allow_outside_root = 1", "prowess.toml:1: allow_outside_root must be true or false, not 1"),
        ("retry = 3", "prowess.toml:1: retry must be a table"),
        ("[retry]\n# so\ninitial = -1", "prowess.toml:3: retry.initial must be a number >= 0, not -1"),
        ("host = { workers = 0 }", "prowess.toml:1: host.workers must be an integer >= 1, not 0"),
        ("wire_names = 3", "prowess.toml:1: wire_names must be a table of strings, not 3"),
        ("[wire_names]\na = 3", "prowess.toml:1: wire_names must be a table of strings, not a table"),
        ("[profile]\ntoken = 'hush'", "prowess.toml:1: profile must be a string, not a table"),
        ("[[profile]]\ntoken = 'hush'", "prowess.toml:1: profile must be a string, not a table"),
        ("timeout = 2020-01-01", 'prowess.toml:1: timeout must be a number > 0, not "2020-01-01"'),
    ],
)
def test_a_wrong_value_is_named_with_its_place_and_what_was_expected(tmp_path: Path, toml: str, message: str):
    """A table in the wrong place may hold a skill's secrets: its content is not shown."""
    assert message == refusal(tmp_path, toml)


ZEBRA = (
    "prowess.toml:1: unknown setting 'zebra'. Settings of skills are in tables: if a skill is to read this one, "
    'write my_skill.zebra and read it with settings.get("my_skill.zebra")'
)


@pytest.mark.parametrize(
    "toml, message",
    [
        ("timeuot = 3", "prowess.toml:1: unknown setting 'timeuot'; did you mean \"timeout\"?"),
        ("Timeouts = 3", "prowess.toml:1: unknown setting 'Timeouts'; did you mean \"timeout\"?"),
        ("hots = 3", "prowess.toml:1: unknown setting 'hots'; did you mean \"host\"?"),
        (
            "zebra = 'hush'",
            ZEBRA,
        ),
        ("zebra = []", ZEBRA),
        (
            "[api]\nworkrs = 1\n[host]\nworkrs = 1",
            "prowess.toml:4: unknown setting 'host.workrs'; did you mean \"host.workers\"?",
        ),
        (
            "otel = {\tzebra = 1 }",
            "prowess.toml:1: unknown setting 'otel.zebra'; [otel] has endpoint, on, service_name",
        ),
        (
            "[hots]\nworkers = 1",
            ("prowess.toml:1: unknown table 'hots'; did you mean 'host'? If this is your own table, rename it"),
        ),
        (
            "[[wire-name]]\n",
            (
                "prowess.toml:1: unknown table 'wire-name'; did you mean 'wire_names'? "
                "If this is your own table, rename it"
            ),
        ),
        (
            "[skills]\nfolders = ['x']",
            (
                "prowess.toml:2: as a table, skills holds one table for each skill, but 'folders' is a plain value; "
                'write folders as a list: skills = ["skills"]'
            ),
        ),
    ],
)
def test_an_unknown_key_is_an_error_with_the_nearest_one(tmp_path: Path, toml: str, message: str):
    """A typing error is never silently the default."""
    assert message == refusal(tmp_path, toml)


def test_a_line_is_left_out_where_it_cannot_be_found(tmp_path: Path):
    """Escapes in a key would need a parser; the file is named all the same."""
    assert "prowess.toml: unknown setting 'zebra'" in refusal(tmp_path, '# a comment\n"\\u007aebra" = 1')


def test_lines_count_in_pyproject_too(tmp_path: Path):
    """The table of another tool may hold the same key."""
    (tmp_path / "pyproject.toml").write_text("[tool.other]\ntimeout = 0\n[tool.prowess]\ntimeout = 0")
    assert "pyproject.toml:4: timeout must be a number > 0, not 0" == refusal(tmp_path)


def test_free_tables_are_free(tmp_path: Path):
    """Any other table belongs to skills, with whatever it holds; so do arrays of tables."""
    settings = load(
        tmp_path,
        "[api]\nkey = 1979-05-27\n[fetch]\nhosts = ['a']\n[skills.x]\ny = 1\n[hooks]\n[post]\n[[servers]]\nname = 'a'",
    )
    assert (["a"], 1, {}, [{"name": "a"}]) == tuple(
        map(settings.get, ["fetch.hosts", "skills.x.y", "hooks", "servers"])
    )
    assert ("skills",) == settings.own.skills


def test_folders_may_come_from_another_layer_than_the_tables_of_skills(tmp_path: Path):
    """`skills` is a list of folders and, as a table, a place for skills; one does not hide the other."""
    settings = load(tmp_path, "[skills.x]\ny = 1", {"PROWESS_SKILLS": '["more"]'})
    assert (("more",), 1) == (settings.own.skills, settings.get("skills.x.y"))
    settings = load(tmp_path, "skills = ['more']", {"PROWESS_SKILLS__X__Y": "1"})
    assert (("more",), "1") == (settings.own.skills, settings.get("skills.x.y"))


# --- the environment, and flags ---------------------------------------------------------------------


def test_own_keys_in_the_environment_are_read_as_toml(tmp_path: Path):
    """A text stays a text where a text is wanted, quoted or not."""
    settings = load(
        tmp_path,
        environ={
            "PROWESS_TIMEOUT": "2.5",
            "PROWESS_SKILLS": '["a"]',
            "PROWESS_ALLOW_OUTSIDE_ROOT": "true",
            "PROWESS_PYTHON": "3.11",
            "PROWESS_PROFILE": '"full"',
            "PROWESS_CACHE_DIR": "/tmp/it's",
            "PROWESS_RETRY": "{ initial = 1 }",
            "PROWESS_WIRE_NAMES": '{ "a.b" = "c" }',
            "Prowess_Host__Max-Line": "2048",
        },
    )
    own = settings.own
    assert (2.5, ("a",), True, "3.11", "full") == (
        own.timeout,
        own.skills,
        own.allow_outside_root,
        own.python,
        own.profile,
    )
    assert ("/tmp/it's", 1.0, {"a.b": "c"}, 2048) == (
        own.cache_dir,
        own.retry.initial,
        own.wire_names,
        own.host.max_line,
    )


def test_free_keys_in_the_environment_stay_strings(tmp_path: Path):
    """A key that looks like a number is still a key."""
    assert "0123" == load(tmp_path, environ={"PROWESS_API__KEY": "0123"}).get("api.key")


def test_foreign_private_and_empty_variables_are_no_settings(tmp_path: Path):
    """Clients hand on unset variables as empty ones; PROWESS__* is kept for Prowess itself."""
    settings = load(tmp_path, environ={"PATH": "/bin", "PROWESSX": "1", "PROWESS__LINK": "3", "PROWESS_TIMEOUT": ""})
    assert [] == settings.keys()


@pytest.mark.parametrize(
    "variable, text, message",
    [
        ("PROWESS_TIMEOUT", "soon", 'environment variable PROWESS_TIMEOUT: timeout must be a number > 0, not "soon"'),
        (
            "PROWESS_THREADS",
            "1\nx=2",
            'environment variable PROWESS_THREADS: threads must be an integer >= 1, not "1\\nx=2"',
        ),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, variable: str, text: str, message: str):
    """The place of an error is the variable, and so is the way out."""
    assert message == refusal(tmp_path, environ={variable: text})


@pytest.mark.parametrize(
    "variable, reason",
    [
        ("PROWESS_TIMEUOT", "unknown setting 'timeuot'; did you mean \"PROWESS_TIMEOUT\"?"),
        ("PROWESS_HOST__WORKRS", "unknown setting 'host.workrs'; did you mean \"PROWESS_HOST__WORKERS\"?"),
        ("PROWESS_HOST_TIMEOUT", "unknown setting 'host_timeout'; did you mean \"PROWESS_TIMEOUT\"?"),
        ("PROWESS_HOST_DRAINS", "unknown setting 'host_drains'; did you mean \"PROWESS_HOST__DRAIN\"?"),
        ("PROWESS_HOST", "host must be a table"),
        ("PROWESS_API__", "part of the name is empty; write PROWESS_TABLE__KEY"),
        ("PROWESS_HOTS__X", "unknown table 'hots'; did you mean 'host'? If this is your own table, rename it"),
        (
            "PROWESS_HOME",
            (
                "unknown setting 'home'. Settings of skills are in tables: if a skill is to read this one, "
                'write PROWESS_MY_SKILL__HOME and read it with settings.get("my_skill.home")'
            ),
        ),
        (
            "PROWESS_API_KEY",
            (
                "unknown setting 'api_key'. Settings of skills are in tables: if a skill is to read this one, "
                'write PROWESS_API__KEY and read it with settings.get("api.key")'
            ),
        ),
    ],
)
def test_a_variable_that_is_no_setting_is_warned_of_and_stops_nothing(tmp_path: Path, variable: str, reason: str):
    """It may be somebody else's, in the environment as in `.env`; its value is not shown."""
    settings = load(tmp_path, environ={variable: "hush", "PROWESS_THREADS": "3"})
    assert (f"environment variable {variable} is ignored: {reason}",) == settings.warnings
    assert 3 == settings.own.threads
    (tmp_path / ".env").write_text(f"{variable}=hush\nPROWESS_THREADS=4")
    settings = load(tmp_path)
    assert (f"{tmp_path}/.env: {variable} is ignored: {reason}",) == settings.warnings
    assert 4 == settings.own.threads


def test_one_underscore_is_as_good_as_two_for_our_own_keys(tmp_path: Path):
    """If both are set, the right one wins."""
    environ = {"PROWESS_HOST_WORKERS": "2", "PROWESS_RETRY_INITIAL": "3", "PROWESS_HOST_DRAIN": "1"}
    own = load(tmp_path, environ={**environ, "PROWESS_HOST__DRAIN": "9"}).own
    assert (2, 3.0, 9.0) == (own.host.workers, own.retry.initial, own.host.drain)


@pytest.mark.parametrize("where", ["environ", "dotenv"])
def test_a_skills_setting_with_one_underscore_is_found_by_the_error(tmp_path: Path, where: str):
    """Whoever set it reads what to change."""
    if where == "dotenv":
        (tmp_path / ".env").write_text("PROWESS_API_KEY=hush")
    settings = load(tmp_path, environ={"PROWESS_API_KEY": "hush"} if where == "environ" else {})
    with pytest.raises(SettingsError, match="rename it to PROWESS_API__KEY") as caught:
        settings.get("api.key")
    assert "hush" not in str(caught.value)


# --- .env -----------------------------------------------------------------------------------------


def test_dotenv_stands_between_the_file_and_the_environment(tmp_path: Path):
    """In each layer a key that no later one has."""
    (tmp_path / ".env").write_text(
        "PROWESS_THREADS=2\nPROWESS_API__KEY=two\nPROWESS_API__MORE=two\nFOREIGN=hush\nBOTH=dotenv"
    )
    toml = "threads = 1\ntimeout = 1\n[api]\nkey = 'one'\nless = 'one'"
    settings = load(tmp_path, toml, environ={"PROWESS_API__KEY": "three", "BOTH": "environ"})
    assert (2, 1.0) == (settings.own.threads, settings.own.timeout)
    assert {"key": "three", "more": "two", "less": "one"} == settings.get("api")
    assert ("hush", "environ") == (settings.variable("FOREIGN"), settings.variable("BOTH"))
    assert "hush" not in repr(settings)


@pytest.mark.parametrize(
    ("toml", "flags", "threads"),
    [("env_file = ''", {}, 256), ("", {"env_file": ""}, 256), ("", {"env_file": "other"}, 3), ("", {}, 2)],
)
def test_dotenv_can_be_turned_off_or_be_another_file(tmp_path: Path, toml: str, flags: dict[str, str], threads: int):
    """By any layer that is not `.env` itself."""
    (tmp_path / "prowess.toml").write_text(toml)
    (tmp_path / ".env").write_text("PROWESS_THREADS=2\nPROWESS_ENV_FILE=more")
    (tmp_path / "other").write_text("PROWESS_THREADS=3\nPROWESS_ENV_FILE=more")
    assert threads == Settings.load(tmp_path, environ={}, flags=flags).own.threads


def test_a_broken_dotenv_stops_nothing(tmp_path: Path):
    """It may be another program's. Lines are named without what stands in them; a folder of that name is left alone."""
    (tmp_path / ".env").write_bytes(b"A=1\nhush hush\nPROWESS_THREADS=2\n'hush\n")
    settings = load(tmp_path)
    wrong = 'this line is ignored: write NAME=value, or NAME="value with spaces"'
    assert (f"{tmp_path}/.env:2: {wrong}", f"{tmp_path}/.env:4: {wrong}") == settings.warnings
    assert 2 == settings.own.threads
    (tmp_path / ".env").write_bytes(b"A=1\nB=\xff")
    assert (f"{tmp_path}/.env:2: not UTF-8; the file is ignored",) == load(tmp_path).warnings
    (tmp_path / ".env").unlink()
    (tmp_path / ".env").mkdir()
    assert () == load(tmp_path).warnings


@pytest.mark.parametrize("file, head", [("prowess.toml", ""), ("pyproject.toml", "[tool.prowess]\n")])
def test_byte_order_mark_is_no_part_of_the_settings(file: str, head: str, tmp_path: Path):
    """Editors of Windows write one."""
    (tmp_path / file).write_text(f"{head}threads = 3\n", "utf-8-sig")
    assert 3 == load(tmp_path).own.threads


def test_dotenv_is_read_again_as_it_was(tmp_path: Path):
    """In the workers, whatever the file says by now; `written` tells that it was saved."""
    (tmp_path / ".env").write_text("A=1\nPROWESS_THREADS=2")
    before = load(tmp_path)
    (tmp_path / ".env").write_text("A=2")
    again = Settings.read_again(tmp_path, before.written, environ={}, flags={})
    assert ({"A": "1", "PROWESS_THREADS": "2"}, 2) == (again.dotenv, again.own.threads)
    assert before.written == again.written != load(tmp_path).written


def test_a_missing_variable_is_named_with_the_ways_to_set_it(tmp_path: Path):
    """An empty one is missing: some clients hand on what they do not have."""
    for environ in ({}, {"API_KEY": ""}):
        with pytest.raises(SettingsError) as caught:
            load(tmp_path, environ=environ).variable("API_KEY")
        assert (
            "the environment variable API_KEY is not set. Set it where your client starts the host, or in "
            f"{tmp_path}/.env"
        ) == str(caught.value)
        assert "d" == load(tmp_path, environ=environ).variable("API_KEY", "d")


def test_flags_are_dotted_keys(tmp_path: Path):
    """Typed values are taken as they are, text as in the environment; a flag of None was not given."""
    flags = {"timeout": "5", "host.workers": 2, "profile": None, "api.key": "k", "hide": ("a",), "api.more": {"x": 1}}
    settings = Settings.load(tmp_path, environ={}, flags=flags)
    assert (5.0, 2, "portable", ("a",)) == (
        settings.own.timeout,
        settings.own.host.workers,
        settings.own.profile,
        settings.own.hide,
    )
    assert {"key": "k", "more": {"x": 1}} == settings.get("api")


def test_the_place_of_a_key_is_known(tmp_path: Path):
    """For errors that only the program around can find; the last layer counts."""
    (tmp_path / "prowess.toml").write_text('timeout = 5\nprofile = "a"\nnames = "flat"\n', "utf-8")
    settings = Settings.load(tmp_path, environ={"PROWESS_PROFILE": "b"}, flags={"names": "dotted"})
    assert f"{tmp_path / 'prowess.toml'}:1" == settings.origin_of("timeout")
    assert "environment variable PROWESS_PROFILE" == settings.origin_of("profile")
    assert "--set names=dotted" == settings.origin_of("names")
    assert "" == settings.origin_of("skills")


def test_a_wrong_flag_is_named(tmp_path: Path):
    """The place of an error is the flag as typed; a value that may belong to a skill is not shown."""
    assert "--set timeout=-1: timeout must be a number > 0, not -1" == refusal(tmp_path, timeout=-1)
    wrong = refusal(tmp_path, **{"host.workers": "many"})
    assert '--set host.workers=many: host.workers must be an integer >= 1, not "many"' == wrong
    assert refusal(tmp_path, tokn="s3cret").startswith("--set tokn=…: unknown setting 'tokn'")
    assert "--set host.wrkers=…: " in refusal(tmp_path, **{"host.wrkers": "2"})


# --- files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "toml, line",
    [
        (b"timeout = 1\nbroken", 2),
        (b"a = [\n1,\n", 2),
        (b"a = " + b"9" * 5000, 1),
        (b"a = " + b"[" * 5000, 1),
        (b"timeout = 1\na = '\xff'", 2),
    ],
    ids=["statement", "end of file", "overlong number", "nesting", "encoding"],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, toml: bytes, line: int):
    """An editor can jump to the place."""
    (tmp_path / "prowess.toml").write_bytes(toml)
    assert refusal(tmp_path).startswith(f"prowess.toml:{line}: not ")


def test_a_broken_pyproject_with_our_name_in_it_is_an_error(tmp_path: Path):
    """Our settings may be in there, and would be missed in silence."""
    (tmp_path / "pyproject.toml").write_text("[tool.prowess]\ntimeout =")
    assert refusal(tmp_path).startswith("pyproject.toml:2: not valid TOML")


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path):
    """The system's reason is given."""
    source = tmp_path / "prowess.toml"
    source.write_text("timeout = 1")

    class Unreadable(type(source)):
        def read_bytes(self) -> bytes:
            raise PermissionError(13, "Permission denied")

    assert "prowess.toml: cannot be read: Permission denied" == refusal(Unreadable(tmp_path))


def test_our_table_in_pyproject_must_be_a_table(tmp_path: Path):
    """`tool.prowess = 3` is a slip, not a setting."""
    (tmp_path / "pyproject.toml").write_text("tool.prowess = 3")
    assert "pyproject.toml: tool.prowess must be a table" == refusal(tmp_path)


@pytest.mark.parametrize(
    "name, text, configured",
    [
        ("prowess.toml", "", True),
        ("pyproject.toml", "[tool.prowess]", True),
        ("pyproject.toml", "[tool.prowess", True),
        ("pyproject.toml", "[tool.other]", False),
        ("other.toml", "", False),
    ],
)
def test_a_folder_is_configured_by_either_file(tmp_path: Path, name: str, text: str, configured: bool):
    """A broken file counts, so that loading it says why."""
    (tmp_path / name).write_text(text)
    assert configured is is_configured(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [("prowess.toml", "timeout = 7\n[mine]\nkey = 1979-05-27\n"), ("pyproject.toml", "[tool.prowess]\ntimeout = 7\n")],
)
def test_settings_can_be_read_again_whatever_the_file_says_by_now(tmp_path: Path, name: str, text: str):
    """Another process goes by the same ones."""
    (tmp_path / name).write_text(text)
    before = Settings.load(tmp_path, environ={}, flags={"threads": "3"})
    (tmp_path / name).write_text("[[")
    again = Settings.read_again(tmp_path, before.written, environ={}, flags={"threads": "3"})
    assert (before.own, before.get("mine", None)) == (again.own, again.get("mine", None))
    assert 7 == again.own.timeout
    assert OwnSettings() == Settings.read_again(tmp_path, Written(), environ={}, flags={}).own


# --- settings from a mapping ----------------------------------------------------------------------


def test_settings_are_made_from_a_mapping(tmp_path: Path):
    """Tables, dotted keys, or both; tuples are lists, and `None` was not given. No file and no environment is read."""
    (tmp_path / "prowess.toml").write_text("timeout = 1")
    values = {"api": MappingProxyType({"key": "5"}), "api.hosts": ("a", {"b": 1}), "timeout": 7, "names": None}
    settings = Settings.of(values, tmp_path)

    assert {"key": "5", "hosts": ["a", {"b": 1}]} == settings.get("api")
    assert (7.0, "flat") == (settings.own.timeout, settings.own.names)
    assert (tmp_path, None) == (settings.root, settings.config_file)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"timeout": "soon"}, 'setting timeout: timeout must be a number > 0, not "soon"'),
        ({"timout": 5}, "setting timout: unknown setting 'timout'; did you mean \"timeout\"?"),
        ({"host.wrkers": 5}, "setting host.wrkers: unknown setting 'host.wrkers'; did you mean \"host.workers\"?"),
    ],
)
def test_mapping_is_checked_like_a_file(values: dict[str, Any], message: str):
    """A test that misspells a setting would test nothing."""
    with pytest.raises(SettingsError) as caught:
        Settings.of(values)
    assert message == str(caught.value)


def test_the_line_of_a_setting_can_be_asked_for(tmp_path: Path):
    """The key's own line, else that of its table; the file alone where neither is written like that."""
    file = tmp_path / "prowess.toml"
    file.write_text("timeout = 5\n\n[record]\non = false\n\n[api]\nkey = 'k'\n")
    settings = Settings.load(tmp_path, environ={})

    assert [f"{file}:1", f"{file}:4", f"{file}:7", f"{file}:3", str(file)] == [
        settings.location_in_file(key) for key in ("timeout", "record.on", "api.key", "record.max_days", "threads")
    ]
    assert "" == Settings.of({"timeout": 5}).location_in_file("timeout")


def test_limits_of_skills_are_a_table_of_their_own(tmp_path: Path):
    """Layers are merged by skill, and what comes as text is read as TOML."""
    (tmp_path / "prowess.toml").write_text("[sandbox.a]\nnetwork = true\n[sandbox]\nb = false\n")
    settings = Settings.load(
        tmp_path, environ={"PROWESS_SANDBOX__C__MEMORY": "1000"}, flags={"sandbox.d.read": '["data"]'}
    )

    assert {"a": False, "b": True, "c": False, "d": False} == settings.sandbox.packages()
    assert Limits(memory=1000) == settings.sandbox.limits("c")
    assert Limits(read=("data",)) == settings.sandbox.limits("d")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sandbox = 3", "sandbox must be a table, not 3"),
        ("[sandbox.a]\nnetwrk = true", r"\[sandbox.a\]: unknown limit 'netwrk'"),
        ("[sandbx.a]\nnetwork = true", "did you mean 'sandbox'"),
    ],
)
def test_wrong_limits_stop_the_start(tmp_path: Path, text: str, words: str):
    """A limit that is overlooked would be none."""
    (tmp_path / "prowess.toml").write_text(text)
    with pytest.raises(SettingsError, match=words) as caught:
        Settings.load(tmp_path, environ={})
    assert str(tmp_path / "prowess.toml") in str(caught.value)
