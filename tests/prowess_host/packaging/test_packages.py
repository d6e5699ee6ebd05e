"""`prowess package`: what is made of a project can be installed, and serves the same commands."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, FormatChecker
from patience import PATIENCE

from prowess.errors import ProwessError
from prowess.settings.settings import Settings
from prowess_host.cli.commands import run
from prowess_host.packaging.archives import SERVER_SCHEMA, bundle, server_json, wheel
from prowess_host.packaging.source import ProjectSource, read_source

HERE = Path(__file__).parent
SERVER = Draft7Validator(
    json.loads((HERE / "server-2025-12-11.schema.json").read_text()), format_checker=FormatChecker()
)
MANIFEST = Draft7Validator(json.loads((HERE / "mcpb-manifest-v0.4.schema.json").read_text()))
SKILL = '''
from prowess import skill_command


@skill_command(read_only=True, inject_settings=["sums.offset"])
def add(a: int, b: int, sums_offset: int = 0) -> int:
    """Add two numbers."""
    return a + b + sums_offset
'''
FOLDER = '''
from .words import WORD

from prowess import skill_command


@skill_command(read_only=True)
def say() -> str:
    """Say a word."""
    return WORD
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "Sums & Words"
    (root / "skills/words/tests").mkdir(parents=True)
    (root / "skills/words/.hidden").mkdir()
    (root / "skills/sums.py").write_text(SKILL)
    (root / "skills/words/say.py").write_text(FOLDER)
    (root / "skills/words/words.py").write_text('WORD = "word"\n')
    (root / "skills/words/SKILL.md").write_text("---\nname: words\ndescription: Says words.\n---\n")
    (root / "skills/words/tests/test_say.py").write_text("")
    (root / "skills/words/.hidden/note").write_text("")
    (root / ".env").write_text("SECRET=hush\n")
    (root / "prowess.toml").write_text('timeout = 20\n[identity]\nname = "sums-and-words"\n[sums]\noffset = 100\n')
    return root


def source_of(root: Path, **options: Any) -> ProjectSource:
    return read_source(Settings.load(root, environ={}), **options)


def unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def asked(command: list[str], env: dict[str, str]) -> dict[Any, Any]:
    """What a server answers to a handshake, a list and a call, by id."""
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    lines = [
        {"id": 0, "method": "initialize", "params": info},
        {"method": "notifications/initialized"},
        {"id": 1, "method": "tools/list"},
        {"id": 2, "method": "tools/call", "params": {"name": "sums_add", "arguments": {"a": 1, "b": 2}}},
        {"id": 3, "method": "tools/call", "params": {"name": "words_say", "arguments": {}}},
    ]
    text = "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE, env=env, check=False)
    answers = {told["id"]: told for told in map(json.loads, done.stdout.splitlines()) if "id" in told}
    assert {0, 1, 2, 3} <= answers.keys(), done.stderr
    return {number: told["result"] for number, told in answers.items()}


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PROWESS_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": ""}


# The wheel


def test_a_wheel_can_be_installed_and_its_command_serves_its_skills(project: Path, tmp_path: Path) -> None:
    """In a fresh environment. Its settings come along; another project that allows it has its skills beside its own."""
    name, data = wheel(source_of(project))
    assert "sums_and_words-0.1.0-py3-none-any.whl" == name
    (tmp_path / name).write_bytes(data)
    fresh = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(fresh)], check=True)
    [packages] = (fresh / "lib").glob("python*/site-packages")
    ours = sysconfig.get_paths()["purelib"]  # Prowess itself, and what it needs
    (packages / "prowess.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    installing = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--offline"]
    subprocess.run([*installing, "--python", str(fresh / "bin/python"), str(tmp_path / name)], check=True)
    served = asked([str(fresh / "bin/sums-and-words")], environment(tmp_path))
    assert "sums-and-words" == served[0]["serverInfo"]["name"]
    assert ["sums_add", "words_say"] == [tool["name"] for tool in served[1]["tools"]]
    assert ["103", "word"] == [served[number]["content"][0]["text"] for number in (2, 3)]
    (tmp_path / "other/skills").mkdir(parents=True)
    (tmp_path / "other/skills/mine.py").write_text(SKILL.replace("add", "subtract").replace("sums", "mine"))
    host = [str(fresh / "bin/python"), "-m", "prowess_host", "--project", str(tmp_path / "other")]
    (tmp_path / "other/prowess.toml").write_text("[sandbox]\nsums-and-words = false\n")  # what `prowess trust` asks
    served = asked(host, environment(tmp_path))
    assert ["mine_subtract", "sums_add", "words_say"] == [tool["name"] for tool in served[1]["tools"]]
    assert ["3", "word"] == [served[number]["content"][0]["text"] for number in (2, 3)]


def test_the_record_of_a_wheel_lists_what_is_in_it(project: Path) -> None:
    """With sizes and digests, as installers check them."""
    files = unzipped(wheel(source_of(project))[1])
    record = files["sums_and_words-0.1.0.dist-info/RECORD"].decode().splitlines()
    listed = dict(line.split(",", 1) for line in record)
    assert listed.keys() == files.keys()
    for path, data in files.items():
        if not path.endswith("RECORD"):
            digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert f"sha256={digest},{len(data)}" == listed[path]


def test_the_metadata_of_a_wheel_are_those_of_the_project(project: Path) -> None:
    """And the README proves to a registry whose the package is."""
    (project / "README.md").write_text("# Sums\n")
    (project / "pyproject.toml").write_text(
        '[project]\nname = "Ada.Sums"\nversion = "1.2"\ndescription = "Adds\\n things"\nlicense = "MIT"\n'
        'authors = [{name = "Ada"}]\ndependencies = ["httpx>=0.27", "prowess==0.1.0"]\nrequires-python = ">=3.12"\n'
        "[project.urls]\nHomepage = 'https://example.org'\n"
    )
    files = unzipped(wheel(source_of(project), "io.github.ada/sums")[1])
    metadata = files["ada_sums-1.2.dist-info/METADATA"].decode()
    assert (
        "Name: ada-sums\nVersion: 1.2\nSummary: Adds things\nHome-page: https://example.org\nAuthor: Ada\nLicense: MIT\n"
        "Requires-Python: >=3.12\nRequires-Dist: httpx>=0.27\nRequires-Dist: prowess==0.1.0\n"
    ) in metadata
    assert metadata.endswith("# Sums\n\n<!-- mcp-name: io.github.ada/sums -->\n")


# The bundle and the registry


def test_a_bundle_is_a_project_with_a_valid_manifest(project: Path, tmp_path: Path) -> None:
    """Its server serves the project that the bundle is unpacked to."""
    name, data = bundle(source_of(project), [])
    files = unzipped(data)
    assert "sums-and-words-0.1.0.mcpb" == name
    manifest = json.loads(files["manifest.json"])
    assert [] == [error.message for error in MANIFEST.iter_errors(manifest)]
    assert ("0.4", "uv") == (manifest["manifest_version"], manifest["server"]["type"])
    assert manifest["server"]["entry_point"] in files
    described = tomllib.loads(files["pyproject.toml"].decode())["project"]
    assert "prowess" in " ".join(described["dependencies"])
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(tmp_path / "unpacked")
    served = asked([sys.executable, str(tmp_path / "unpacked/server.py")], environment(tmp_path))
    assert ["103", "word"] == [served[number]["content"][0]["text"] for number in (2, 3)]


def test_the_entry_of_a_registry_keeps_its_rules(project: Path) -> None:
    """A description of 100 characters at most, an exact version, a transport, and secrets that are marked."""
    (project / "pyproject.toml").write_text(f'[project]\ndescription = "{"long " * 50}"\nversion = "1.2.0"\n')
    entry = json.loads(server_json(source_of(project), "io.github.ada/sums", ["API_KEY"]))
    assert (SERVER_SCHEMA, "io.github.ada/sums", "1.2.0") == (entry["$schema"], entry["name"], entry["version"])
    assert 100 == len(entry["description"])
    assert SERVER.schema["$id"] == SERVER_SCHEMA
    assert [] == [error.message for error in SERVER.iter_errors(entry)]
    [package] = entry["packages"]
    assert {
        "registryType": "pypi",
        "identifier": "sums-and-words",
        "version": "1.2.0",
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
        "environmentVariables": [{"name": "API_KEY", "description": "Needed by the tools: API_KEY", "isSecret": True}],
    } == package
    for wrong in ("sums", "a/b/c", "a b/c", "", "a/" + "b" * 200):
        with pytest.raises(ProwessError, match="is not a registry name"):
            server_json(source_of(project), wrong)


@pytest.mark.parametrize(
    "identity", ['title = "  "', f'title = "{"t" * 300}"', 'description = " "', 'website_url = "http://x.example.com"']
)
def test_an_entry_is_valid_whatever_the_settings_say(project: Path, identity: str) -> None:
    """The registry checks it against its schema."""
    (project / "prowess.toml").write_text(f"[identity]\n{identity}\n")
    entry = json.loads(server_json(source_of(project, name="sums"), "io.github.ada/sums"))
    assert [] == [error.message for error in SERVER.iter_errors(entry)]


def test_skills_beside_the_settings_meet_no_file_of_the_package(project: Path, tmp_path: Path) -> None:
    """The folder of skills may be the project itself. Earlier packages in it are no part of the next ones."""
    (project / "prowess.toml").write_text('skills = [".", "skills"]\n[identity]\nname = "sums"\n[sums]\noffset = 100\n')
    (project / "server.py").write_text(SKILL)
    (project / "manifest.json").write_text("{}")
    (project / "pyproject.toml").write_text('[project]\nname = "sums"\ndependencies = []\n')
    first = bundle(source_of(project, output=project / "dist"), [])[1]
    (project / "dist").mkdir()
    (project / "dist/sums-0.1.0.mcpb").write_bytes(first)

    assert first == bundle(source_of(project, output=project / "dist"), [])[1]
    files = unzipped(first)
    assert "0.4" == json.loads(files["manifest.json"])["manifest_version"]
    assert "prowess" in files["pyproject.toml"].decode()
    assert files["project/server.py"] == SKILL.encode()
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        archive.extractall(tmp_path / "unpacked")
    served = asked([sys.executable, str(tmp_path / "unpacked/server.py")], environment(tmp_path))
    assert {"server_add", "sums_add"} <= {tool["name"] for tool in served[1]["tools"]}


def test_programs_stay_executable(project: Path) -> None:
    """A command may start a script beside it."""
    (project / "skills/words/count.sh").write_text("#!/bin/sh\n")
    (project / "skills/words/count.sh").chmod(0o755)
    for _, data in (wheel(source_of(project)), bundle(source_of(project), [])):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            modes = {each.filename.rpartition("/")[2]: each.external_attr >> 16 for each in archive.infolist()}
        assert (0o755, 0o644) == (modes["count.sh"], modes["say.py"])


# What is packaged


def test_only_skills_and_settings_are_packaged(project: Path) -> None:
    """No tests, nothing hidden, and above all not the secrets."""
    assert [
        "prowess.toml",
        "skills/sums.py",
        "skills/words/SKILL.md",
        "skills/words/say.py",
        "skills/words/words.py",
    ] == sorted(source_of(project).files)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[api]\nkey = "x"\ntoken = "hush"', "api.token"),
        ('[[auth.credentials]]\ntype = "bearer"\ntoken = "hush"', "auth.credentials.token"),
        ('[api]\npasswords = ["hush"]', "api.passwords"),
        ('[environments]\nindex = "https://ada:hush@index.example.com/simple"', "environments.index"),
        ('[environments]\nfind_links = ["https://hush@wheels.example.com/a"]', "environments.find_links"),
    ],
)
def test_settings_with_secrets_are_not_packaged(project: Path, text: str, key: str) -> None:
    """A package is given away. The message names the key, and never the value."""
    (project / "prowess.toml").write_text(text)
    with pytest.raises(ProwessError, match=rf"looks like a secret: {re.escape(key)}\.") as caught:
        source_of(project, name="sums")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"name": "sums & words"}, "is not a package name"),
        ({"name": "../sums"}, "is not a package name"),
        ({"name": "7sums"}, "cannot be imported"),
        ({"name": "Calendar"}, "is the name of a module of Python or Prowess"),
        ({"name": "prowess-host"}, "is the name of a module of Python or Prowess"),
        ({"name": "Prowess"}, "is the name of a module of Python or Prowess"),
        ({"name": "httpx"}, "or of a dependency"),
        ({"version": "latest"}, "is not a version"),
        ({"version": "1.0\nName: other"}, "is not a version"),
    ],
)
def test_a_wrong_name_or_version_is_refused(project: Path, options: dict[str, str], why: str) -> None:
    """With the option that helps."""
    (project / "pyproject.toml").write_text('[project]\ndependencies = ["HTTPX[http2]>=0.27"]\n')
    with pytest.raises(ProwessError, match=why):
        source_of(project, **options)


def test_settings_with_a_byte_order_mark_are_packaged(project: Path) -> None:
    """As editors of Windows write it. Secrets are found all the same."""
    mark, settings = "\ufeff", project / "prowess.toml"
    settings.write_text(mark + settings.read_text())
    (project / "pyproject.toml").write_text(f'{mark}[project]\nversion = "1.2.3"\n')
    assert "1.2.3" == source_of(project, name="sums").version
    settings.write_text(f'{mark}[api]\ntoken = "hush"\n')
    with pytest.raises(ProwessError, match=r"looks like a secret: api\.token"):
        source_of(project, name="sums")


@pytest.mark.parametrize(
    ("text", "why"), [(f"x = {'[' * 5000}", "pyproject.toml:1: not valid TOML"), ("project = 5", "must be a table")]
)
def test_a_pyproject_that_cannot_be_read_is_named(project: Path, text: str, why: str) -> None:
    (project / "pyproject.toml").write_text(text)
    with pytest.raises(ProwessError, match=why):
        source_of(project, name="sums")


def test_settings_in_pyproject_are_refused(project: Path) -> None:
    """A package has a pyproject.toml of its own, or none."""
    (project / "prowess.toml").unlink()
    (project / "pyproject.toml").write_text("[tool.prowess]\ntimeout = 5\n")
    with pytest.raises(ProwessError, match=r"\[tool\.prowess\]"):
        source_of(project, name="sums")


def test_skills_from_outside_are_refused(project: Path) -> None:
    """A package holds what is in the project."""
    (project.parent / "shared").mkdir()
    (project / "prowess.toml").write_text('skills = ["skills", "../shared"]\n')
    with pytest.raises(ProwessError, match="outside the project"):
        source_of(project, name="sums")


@pytest.mark.parametrize(
    ("link", "target", "why"),
    [
        ("skills/notes.txt", "../../secret", "outside the project"),
        ("skills/words/more.py", "{}/secret", "outside the project"),
        ("skills/more", "../../shared", None),
        ("skills/env.txt", "../.env", "hidden file"),
        ("skills/gone.txt", "nowhere", "not a file"),
        ("skills/loop.txt", "loop.txt", "not a file"),
        ("README.md", "../secret", "outside the project"),
        ("icon.png", "../secret", "outside the project"),
        ("skills/copy.txt", "words/words.py", None),
    ],
)
def test_links_lead_to_files_of_the_project_only(project: Path, link: str, target: str, why: str | None) -> None:
    """A package is published. Links to folders are not followed."""
    outside = project.parent
    (outside / "shared").mkdir()
    (outside / "shared/other.py").write_text("HUSH = 1")
    (outside / "secret").write_text("hush")
    if link == "icon.png":
        (project / "prowess.toml").write_text('[identity]\nname = "sums"\nicons = ["icon.png"]\n')
    (project / link).symlink_to(target.format(outside))
    if why is None:
        source = source_of(project)
        assert not any(b"HUSH" in text for text in source.files.values())
        assert ("skills/copy.txt" in source.files) == (link == "skills/copy.txt")
        return
    with pytest.raises(ProwessError, match=why):
        source_of(project)


def test_a_folder_of_skills_that_is_a_link_to_outside_is_refused(project: Path) -> None:
    """Its files are those of another place."""
    (project / "skills").rename(project.parent / "moved")
    (project / "skills").symlink_to("../moved")
    with pytest.raises(ProwessError, match="outside the project"):
        source_of(project)


def test_a_project_without_skills_is_refused(tmp_path: Path) -> None:
    """There is nothing to hand on."""
    with pytest.raises(ProwessError, match="no skills to package"):
        source_of(tmp_path, name="empty")


def test_the_same_project_gives_the_same_bytes(project: Path) -> None:
    """So that whoever builds can compare."""
    assert wheel(source_of(project)) == wheel(source_of(project))
    assert bundle(source_of(project), []) == bundle(source_of(project), [])


def test_the_command_writes_all_three(project: Path, tmp_path: Path) -> None:
    """The bundle names the tools."""
    command = [
        sys.executable,
        "-c",
        "from prowess_host.cli.main import main; main()",
        "package",
        "--project",
        str(project),
    ]
    done = subprocess.run(
        [*command, "--registry", "io.github.ada/sums"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(tmp_path),
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    made = sorted(path.name for path in (project / "dist").iterdir())
    assert ["server.json", "sums-and-words-0.1.0.mcpb", "sums_and_words-0.1.0-py3-none-any.whl"] == made
    manifest = json.loads(unzipped((project / "dist" / made[1]).read_bytes())["manifest.json"])
    assert ["sums_add", "words_say"] == [tool["name"] for tool in manifest["tools"]]
    assert 3 == len(re.findall(r"\d bytes", done.stdout))


def packed(root: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    code = run(["package", "--project", str(root), "--output", "made", *options])
    told = capsys.readouterr()
    return code, told.out + told.err


def test_a_command_makes_all_three(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The entry of the registry only where the project has a name there."""
    code, told = packed(project, capsys, "--registry", "io.github.me/sums")
    assert 0 == code, told
    assert {".json", ".mcpb", ".whl"} == {file.suffix for file in (project / "made").iterdir()}
    code, told = packed(project, capsys, "--only", "server.json")
    assert (2, True) == (code, "--registry io.github.you/name" in told)


def test_a_project_that_does_not_load_is_not_packed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever installs it would only learn then."""
    (project / "skills/broken.py").write_text(f"import nothing_like_this\n{SKILL}")
    code, told = packed(project, capsys)
    assert (1, True) == (code, "nothing_like_this" in told)
    assert not (project / "made").exists()
