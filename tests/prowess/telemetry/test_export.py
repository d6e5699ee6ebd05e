"""Where traces and metrics go: a real process, configured by variables and settings, and a receiver on loopback."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import PATIENCE

from prowess.errors import install_command

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from otlp import Received, attributes, receiver

PROGRAM = """
import asyncio, sys
from pathlib import Path
from prowess import Runtime
from prowess.calls.channel import Channel

async def main():
    async with Runtime.open(Path.cwd()) as runtime:
        channel = Channel(wire={"protocol": "2025-11-25", "transport": "pipe"})
        print((await runtime.call("demo.hello", channel=channel)).text)
        print(*sorted({name.partition(".")[0] for name in sys.modules} & {"opentelemetry"}))

asyncio.run(main())
"""
ON = "[otel]\non = true\n"
PATIENT = f"from prowess.telemetry import spans\nspans._FLUSHING = {PATIENCE}\n"
"""A busy machine may need more than a second for the last export."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "town"
    (folder / "skills").mkdir(parents=True)
    (folder / "skills" / "demo.py").write_text(
        "from prowess import skill_command\n@skill_command\ndef hello() -> str:\n    return 'hello'\n"
    )
    return folder


def run(
    root: Path, settings: str = ON, *, head: str = "", program: str = PROGRAM, **variables: str
) -> tuple[list[str], str]:
    """Run a program, by default one that calls the command: what it prints, and its stderr."""
    (root / "prowess.toml").write_text(settings)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environ = {**kept, "OTEL_METRIC_EXPORT_INTERVAL": "3600000", **variables}
    done = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(program)],
        cwd=root,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout.splitlines(), done.stderr


def check_arrived(received: Received, service: str) -> None:
    span = received.span("tools/call demo_hello")
    assert "pipe" == attributes(span)["network.transport"]
    assert [("demo_hello", 1)] == [(facts["gen_ai.tool.name"], count) for facts, count in received.durations()[:1]]
    assert {service} == {each["service.name"] for each in received.resources}
    assert 1 == len({each["service.instance.id"] for each in received.resources})


def test_traces_and_metrics_go_to_the_endpoint_of_the_settings(root: Path):
    """They arrive before the runtime has closed. The service is called like the folder."""
    with receiver() as received:
        printed, _ = run(root, f'{ON}endpoint = "{received.url}"\n', head=PATIENT)

    assert ["hello", "opentelemetry"] == printed
    check_arrived(received, "town")


def test_the_standard_variables_win(root: Path):
    """Over the endpoint and the name in the settings."""
    settings = f'{ON}endpoint = "http://127.0.0.1:9"\nservice_name = "mine"\n'
    with receiver() as received:
        run(root, settings, head=PATIENT, OTEL_EXPORTER_OTLP_ENDPOINT=received.url, OTEL_SERVICE_NAME="theirs")
        check_arrived(received, "theirs")
    with receiver() as received:
        run(root, settings, head=PATIENT, OTEL_EXPORTER_OTLP_ENDPOINT=received.url)
        check_arrived(received, "mine")


def test_the_console_is_an_exporter_too_and_none_is_none(root: Path):
    """`OTEL_TRACES_EXPORTER` and `OTEL_METRICS_EXPORTER` take names."""
    printed, _ = run(root, head=PATIENT, OTEL_TRACES_EXPORTER="console", OTEL_METRICS_EXPORTER="none")

    assert '"name": "tools/call demo_hello",' in [line.strip() for line in printed]


@pytest.mark.parametrize("name", ["OTEL_SDK_DISABLED", "PROWESS_OTEL__ON"])
def test_off_imports_nothing(root: Path, name: str):
    """Neither where it is not on, nor where the SDK is disabled."""
    settings, value = ("[otel]\n", "false") if name == "PROWESS_OTEL__ON" else (ON, "TRUE")

    assert ["hello", ""] == run(root, settings, **{name: value})[0]


def test_a_missing_package_is_said_and_the_commands_run(root: Path):
    """With the command that installs it, quoted for a shell."""
    printed, complaints = run(root, head="import sys\nsys.modules['opentelemetry.sdk.trace'] = None\n")

    assert "hello" == printed[0]
    assert "otel.on is set, but calls are not traced, because OpenTelemetry is not installed" in complaints
    command = complaints.rpartition("Install it: ")[2]
    assert shlex.split(install_command("prowess-core[otel]")) == shlex.split(command)


def test_a_missing_exporter_is_said_and_the_other_one_works(root: Path):
    """The name that was asked for, by whatever variable, and what to install."""
    with receiver() as received:
        _, complaints = run(
            root,
            f'{ON}endpoint = "{received.url}"\n',
            head=PATIENT,
            OTEL_EXPORTER_OTLP_METRICS_PROTOCOL="grpc",
            OTEL_TRACES_EXPORTER="otlp,zipkin",
        )

    assert received.span("tools/call demo_hello")
    assert [] == received.metrics
    assert "OTEL_METRICS_EXPORTER: metrics are not exported to 'otlp': no exporter 'otlp_proto_grpc'" in complaints
    assert "OTEL_TRACES_EXPORTER: traces are not exported to 'zipkin': no exporter 'zipkin' is installed" in complaints
    assert install_command("opentelemetry-exporter-otlp-proto-grpc") in complaints


def test_a_receiver_that_is_not_there_costs_no_call(root: Path):
    """The calls are answered; the SDK says on stderr what could not be sent."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        printed, _ = run(root, f'{ON}endpoint = "{url}"\n', OTEL_EXPORTER_OTLP_TIMEOUT="1")

    assert "hello" == printed[0]


@contextmanager
def hanging() -> Iterator[str]:
    """A receiver that reads and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_receiver_that_hangs_holds_one_thread_and_no_exit(root: Path):
    """However many calls are cancelled or time out, and however long the SDK would wait at the exit."""
    program = """
        import asyncio, threading
        from pathlib import Path
        from prowess import Runtime

        async def main():
            async with Runtime.open(Path.cwd()) as runtime:
                await runtime.call("demo.hello")
                for _ in range(50):
                    calling = asyncio.ensure_future(runtime.call("demo.forever"))
                    await asyncio.sleep(0)
                    while not [each for each in asyncio.all_tasks() if each.get_name() == "inside"]:
                        await asyncio.sleep(0)
                    calling.cancel()
                    await asyncio.wait([calling])
                print(sum(each.name == "prowess-telemetry" for each in threading.enumerate()))

        asyncio.run(main())
    """
    (root / "skills" / "demo.py").write_text(
        "import asyncio\nfrom prowess import skill_command\n@skill_command\ndef hello() -> str:\n    return 'hello'\n"
        "@skill_command\nasync def forever() -> None:\n    asyncio.current_task().set_name('inside')\n    await asyncio.sleep(3600)\n"
    )
    with hanging() as url:
        printed, _ = run(
            root, f'{ON}endpoint = "{url}"\n', program=program, OTEL_EXPORTER_OTLP_TIMEOUT=str(10 * PATIENCE)
        )

    assert ["1"] == printed


def test_direct_calls_are_traced_where_no_thread_can_be_started_at_the_exit(root: Path):
    """As on Python 3.12. What is left is sent when the implicit runtime closes."""
    program = """
        import threading
        from prowess import skill_command

        @skill_command
        def hello() -> str:
            return "hello"

        print(hello()["content"][0]["text"])

        def refuse(thread):
            raise RuntimeError("can't create new thread at interpreter shutdown")

        threading.Thread.start = refuse
    """
    with receiver() as received:
        printed, complaints = run(root, f'{ON}endpoint = "{received.url}"\n', head=PATIENT, program=program)

    assert (["hello"], "") == (printed, complaints)
    assert received.spans


def test_an_export_that_fails_is_told_and_the_next_one_works(root: Path):
    """A program may have set a provider of another make, which raises anything."""
    head = """
from opentelemetry import trace
class Own(trace.NoOpTracerProvider):
    left = 1
    def force_flush(self):
        Own.left -= 1
        if Own.left == 0:
            raise ZeroDivisionError("no export")
        print("exported")
trace.set_tracer_provider(Own())
"""
    again = "\nasyncio.run(main())\n"
    printed, complaints = run(root, head=head, program=PROGRAM + again)

    assert ["exported"] == [line for line in printed if line == "exported"]
    assert "traces or metrics could not be exported: ZeroDivisionError: no export" in complaints


def test_a_provider_that_cannot_be_flushed_is_left_alone(root: Path):
    """A program may have set one of another make: what it has stays."""
    head = (
        "from opentelemetry import trace\n"
        "class Own(trace.NoOpTracerProvider): pass\n"
        "trace.set_tracer_provider(Own())\n"
        "import atexit\n"
        "atexit.register(lambda: print(type(trace.get_tracer_provider()).__name__))\n"
    )

    assert ["hello", "opentelemetry", "Own"] == run(root, head=head)[0]
