"""The files in `deploy/`: they are valid, name settings that exist, and what they start works. About 5 s of processor time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from piped import make_project
from ruamel.yaml import YAML
from web import served_over_http, until

from prowess.errors import SettingsError
from prowess.settings.settings import Settings
from prowess_host.cluster.local import LocalEngine

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
SECRETS = {"CLUSTER_TOKEN": "engine-token", "AUTH_TOKEN": "caller-token", "STATE_KEY": "k" * 32}
SKILL = """
    @skill_command(run_on="any")
    def where() -> int:
        return os.getppid()
"""


def filled(value: Any) -> Any:
    """A value of the compose file with its secrets."""
    return re.sub(r"\$\{(\w+):\?[^}]*}", lambda found: SECRETS[found[1]], value) if isinstance(value, str) else value


def compose() -> dict[str, Any]:
    return YAML(typ="safe").load(DEPLOY / "compose.yaml")["services"]


def environment(service: str) -> dict[str, str]:
    return {name: filled(value) for name, value in compose()[service]["environment"].items()}


def documents() -> list[dict[str, Any]]:
    return list(YAML(typ="safe").load_all(DEPLOY / "kubernetes.yaml"))


def containers() -> dict[str, dict[str, Any]]:
    specs = [each["spec"]["template"]["spec"] for each in documents() if "template" in each["spec"]]
    return {container["name"]: container for spec in specs for container in spec["containers"]}


def test_manifests_follow_the_schemas_of_kubernetes() -> None:
    """Also where a field has a typing mistake."""
    validate = pytest.importorskip("kubernetes_validate")
    for document in documents():
        validate.validate(document, validate.latest_version(), strict=True)


def test_image_follows_the_rules_of_hadolint() -> None:
    """Each exception has its reason beside it."""
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stdout)


def test_all_pods_are_confined() -> None:
    """No root, no privileges, nothing to write to but temporary files, and a bound on memory."""
    for container in containers().values():
        how = container["securityContext"]
        assert (False, True) == (how["allowPrivilegeEscalation"], how["readOnlyRootFilesystem"])
        assert ["ALL"] == how["capabilities"]["drop"]
        assert "memory" in container["resources"]["limits"]


def test_variables_of_services_are_no_settings(tmp_path: Path) -> None:
    """Kubernetes makes variables of the names of all services, if it is not told otherwise."""
    with pytest.raises(SettingsError, match=r"serve\.port"):
        Settings.load(tmp_path, environ={"PROWESS_SERVE_PORT": "tcp://10.0.0.1:80"}, flags={})
    specs = [each["spec"]["template"]["spec"] for each in documents() if "template" in each["spec"]]
    assert [False] * 3 == [spec["enableServiceLinks"] for spec in specs]


def test_image_can_be_built_from_wheels_and_caches_can_be_loaded_from() -> None:
    """The installation sees the project before it is copied; Docker mounts temporary files without `exec` by itself."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    install = next(number for number, line in enumerate(lines) if "pip install" in line)
    assert "RUN --mount=type=bind,target=/project \\" == lines[install - 1]
    assert lines.index("WORKDIR /project") < install < lines.index("COPY . .")
    for service in ("server", "agent"):
        assert ["/tmp:exec,mode=1777"] == compose()[service]["tmpfs"]


@pytest.mark.parametrize("service", ["server", "agent"])
def test_variables_are_settings_and_both_files_have_the_same(service: str, tmp_path: Path) -> None:
    """Prowess reads each of them in its form."""
    told = environment(service)
    assert set(told) == {each["name"] for each in containers()[service]["env"]}
    settings = Settings.load(make_project(tmp_path), environ=told, flags={})
    assert (told["PROWESS_CLUSTER__URL"], "engine-token") == (settings.own.cluster.url, settings.own.cluster.token)
    if service == "server":
        assert (False, ("server",)) == (settings.own.serve.sessions, settings.own.serve.allowed_hosts)
        assert "caller-token" == settings.get("auth.token", None)


def test_what_compose_starts_answers_calls(tmp_path: Path) -> None:
    """The engine, a server and an agent, with their commands and variables, on this machine."""
    root = make_project(tmp_path / "project", t=SKILL)
    options = [filled(word) for word in compose()["engine"]["command"]][-2:]
    with LocalEngine(tmp_path / "engine", *options) as engine:
        where = {"PROWESS_CLUSTER__URL": engine.url}
        words = [*compose()["agent"]["command"], "--project", str(tmp_path)]
        prowess = [sys.executable, "-c", "from prowess_host.cli.main import main; main()"]
        environ = {**os.environ, **environment("agent"), **where, "PROWESS_CACHE_DIR": str(tmp_path / "cache")}
        with (tmp_path / "agent.log").open("w") as log:
            agent = subprocess.Popen([*prowess, *words], env=environ, stderr=log, stdout=log)
        try:
            assert ["serve", "--host", "0.0.0.0"] == compose()["server"]["command"]
            with served_over_http(root, env={**environment("server"), **where}) as web:
                until(lambda: web.ask("GET", "/readyz").status == 200)
                bearer = {"Authorization": "Bearer caller-token"}
                assert 401 == web.call("t_where").status
                assert web.call("t_where", bearer).text
                assert 200 == web.ask("GET", "/readyz", headers={"Host": "server"}).status
        finally:
            agent.terminate()
            assert agent.wait(60) in (0, 143, -15)
