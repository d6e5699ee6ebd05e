"""The examples and tables of the four documents about schemas, under the profile that serves each.

Where a document contradicts itself or another, README.md says which side is taken. Envelopes are tested elsewhere.
"""

import dataclasses
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict, Union

import pytest
from mcp_types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    ServerResult,
    TextContent,
)
from pydantic import BaseModel, Field
from tests.contracts.conftest import Bench, Project, meets, returning, taking, text

from prowess import (
    ConfigPaths,
    Settings,
    get_script_config,
    get_tool_annotations,
    is_skill_command,
    mcp_schema,
    skill_command,
)
from prowess.jsontypes import Json, Schema
from prowess.profiles.profile import BUILT_IN
from prowess.schemas.steps import inline_refs, prune_titles
from prowess.schemas.walk import rewrite

NUMBER = {"type": "number"}
STRING = {"type": "string"}
INTEGER = {"type": "integer"}
BOOLEAN = {"type": "boolean"}


# --- OpenMCP: schema inference --------------------------------------------------------------------


def described(**properties: Schema) -> dict[str, Schema]:
    """Parameters with the description that they have at least."""
    return {name: {"description": f"Parameter {name}", **schema} for name, schema in properties.items()}


def as_printed(schema: Schema) -> Schema:
    """Without what the document's output examples leave out: `required` and defaults, inside of boxes and objects."""

    def change(node: Schema) -> Schema:
        dropped = {"default"} if "x-dedalus-box" in node else {"default", "required"}
        return {keyword: held for keyword, held in node.items() if keyword not in dropped}

    return rewrite(schema, change)


def boxed(schema: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
        "x-dedalus-box": {"field": "result"},
    }


def closed(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


@dataclasses.dataclass
class Address:
    street: str
    city: str
    postal_code: int


@dataclasses.dataclass
class Profile:
    name: str
    address: Address
    tags: list[str]


@dataclasses.dataclass
class ChatAction:
    kind: Literal["chat"]
    message: str


@dataclasses.dataclass
class NavigateAction:
    kind: Literal["navigate"]
    url: str


@dataclasses.dataclass
class Location:
    latitude: float
    longitude: float


@dataclasses.dataclass
class WeatherReport:
    temperature: float
    location: Location
    humidity: Optional[float] = None


class User(BaseModel):
    username: str = Field(..., min_length=3, max_length=20)
    email: str = Field(..., pattern=r"^[\w\.-]+@[\w\.-]+\.\w+$")
    age: int = Field(..., ge=0, le=120)


class CreateUserRequest(BaseModel):
    username: str = Field(..., min_length=3, max_length=20, pattern=r"^[a-zA-Z0-9_]+$")
    email: Annotated[str, Field(json_schema_extra={"format": "email"})]
    age: int = Field(..., ge=13, le=120)
    bio: Optional[str] = Field(None, max_length=500)


class SearchParams(TypedDict):
    query: str
    max_results: NotRequired[int]


def greet(name: str, age: int, active: bool = True) -> str:
    return f"Hello {name}, age {age}"


def analyze(values: list[int], metadata: dict[str, str]) -> dict[str, float]:
    return {"mean": sum(values) / len(values)}


def set_mode(mode: Literal["fast", "accurate", "balanced"]) -> str:
    return f"Mode set to {mode}"


def find(query: str, limit: Optional[int] = None) -> list[str]:
    return []


def search(params: SearchParams) -> list[str]:
    return []


def create_profile(name: str, street: str, city: str) -> Profile:
    return Profile(name, Address(street, city, 94107), ["new"])


def register_user(user: User) -> str:
    return f"Registered {user.username}"


def choose_action(chat: bool) -> Union[ChatAction, NavigateAction]:
    return ChatAction("chat", "hi") if chat else NavigateAction("navigate", "https://example.com")


async def analyze_dataset(dataset: str, limit: int = 100, filters: Optional[dict[str, str]] = None) -> dict[str, int]:
    return {"records": 42, "filtered": 10}


async def get_temperature(city: str) -> float:
    return 72.5


async def weather(city: str) -> WeatherReport:
    return WeatherReport(72.5, Location(37.7749, -122.4194))


async def create_user(request: CreateUserRequest) -> dict[str, str]:
    return {"user_id": "usr_123", "status": "created"}


STRINGS = {"type": "array", "items": STRING}
STRING_MAP = {"type": "object", "additionalProperties": STRING}


@pytest.mark.parametrize(
    "function, properties, required",
    [
        (greet, described(name=STRING, age=INTEGER, active={**BOOLEAN, "default": True}), ["name", "age"]),
        (analyze, described(values={"type": "array", "items": INTEGER}, metadata=STRING_MAP), ["values", "metadata"]),
        (set_mode, described(mode={"enum": ["fast", "accurate", "balanced"], "type": "string"}), ["mode"]),
        (
            find,
            described(query=STRING, limit={"anyOf": [INTEGER, {"type": "null"}], "default": None}),
            ["query"],
        ),
        (
            search,
            described(
                params={
                    "type": "object",
                    "properties": {"query": STRING, "max_results": INTEGER},
                    "required": ["query"],
                }
            ),
            ["params"],
        ),
        (
            register_user,
            described(
                user={
                    "type": "object",
                    "properties": {
                        "username": {**STRING, "minLength": 3, "maxLength": 20},
                        "email": {**STRING, "pattern": r"^[\w\.-]+@[\w\.-]+\.\w+$"},
                        "age": {**INTEGER, "minimum": 0, "maximum": 120},
                    },
                    "required": ["username", "email", "age"],
                }
            ),
            ["user"],
        ),
        (
            analyze_dataset,
            described(
                dataset=STRING,
                limit={**INTEGER, "default": 100},
                filters={"anyOf": [STRING_MAP, {"type": "null"}], "default": None},
            ),
            ["dataset"],
        ),
        (
            create_user,
            described(
                request={
                    "type": "object",
                    "properties": {
                        "username": {**STRING, "minLength": 3, "maxLength": 20, "pattern": "^[a-zA-Z0-9_]+$"},
                        "email": {**STRING, "format": "email"},
                        "age": {**INTEGER, "minimum": 13, "maximum": 120},
                        "bio": {"anyOf": [{**STRING, "maxLength": 500}, {"type": "null"}], "default": None},
                    },
                    "required": ["username", "email", "age"],
                }
            ),
            ["request"],
        ),
    ],
)
def test_input_examples_of_openmcp(bench: Bench, function: Any, properties: Schema, required: list[str]) -> None:
    """Word for word; a model stands under the name of its parameter."""
    expected = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    assert expected == bench.inputs("openmcp", function)


LOCATION = closed(latitude=NUMBER, longitude=NUMBER)
ADDRESS = closed(street=STRING, city=STRING, postal_code=INTEGER)
CHAT = closed(kind={"enum": ["chat"], "type": "string"}, message=STRING)
NAVIGATE = closed(kind={"enum": ["navigate"], "type": "string"}, url=STRING)


@pytest.mark.parametrize(
    "function, arguments, expected, structured",
    [
        (greet, {"name": "n", "age": 1}, boxed(STRING), {"result": "Hello n, age 1"}),
        (
            analyze,
            {"values": [1, 2], "metadata": {}},
            {"type": "object", "additionalProperties": NUMBER},
            {"mean": 1.5},
        ),
        (find, {"query": "q"}, boxed(STRINGS), {"result": []}),
        (
            create_profile,
            {"name": "n", "street": "s", "city": "c"},
            closed(name=STRING, address=ADDRESS, tags=STRINGS),
            {"name": "n", "address": {"street": "s", "city": "c", "postal_code": 94107}, "tags": ["new"]},
        ),
        (
            register_user,
            {"user": {"username": "abc", "email": "a@b.c", "age": 1}},
            boxed(STRING),
            {"result": "Registered abc"},
        ),
        (
            choose_action,
            {"chat": True},
            {"type": "object", "anyOf": [CHAT, NAVIGATE]},
            {"kind": "chat", "message": "hi"},
        ),
        (
            analyze_dataset,
            {"dataset": "d"},
            {"type": "object", "additionalProperties": INTEGER},
            {"records": 42, "filtered": 10},
        ),
        (get_temperature, {"city": "c"}, boxed(NUMBER), {"result": 72.5}),
        (
            weather,
            {"city": "c"},
            closed(temperature=NUMBER, location=LOCATION, humidity={"anyOf": [NUMBER, {"type": "null"}]}),
            {"temperature": 72.5, "location": {"latitude": 37.7749, "longitude": -122.4194}, "humidity": None},
        ),
    ],
)
def test_output_examples_of_openmcp(
    bench: Bench, function: Any, arguments: Any, expected: Schema, structured: Json
) -> None:
    """As printed, and the result meets the whole schema."""
    shown = bench.outputs("openmcp", function)
    assert expected == as_printed(shown)
    assert structured == bench.call(function, arguments).payload("openmcp")["structuredContent"]
    assert meets(shown, structured)


BLOCKLIST = [CallToolResult, ServerResult, TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource]


@pytest.mark.parametrize("annotation", [*BLOCKLIST, *(Union[str, item] for item in BLOCKLIST)])
def test_the_blocklist_of_openmcp(bench: Bench, annotation: Any) -> None:
    """Types that a client knows already have no output schema, alone or in a union."""
    assert bench.outputs("openmcp", returning(annotation, None)) is None


def test_the_explicit_schema_of_openmcp(bench: Bench) -> None:
    """It is used as it is, and arguments are checked against it."""
    schema = {
        "type": "object",
        "properties": {"custom_field": {"type": "string", "enum": ["a", "b", "c"]}},
        "required": ["custom_field"],
        "additionalProperties": False,
    }

    async def custom_tool(**kwargs) -> str:
        return kwargs.get("custom_field", "default")

    assert schema == bench.inputs("openmcp", custom_tool, input_schema=schema)
    assert "a" == bench.call(custom_tool, {"custom_field": "a"}, input_schema=schema).value
    for arguments in ({}, {"custom_field": "d"}, {"custom_field": "a", "other": 1}):
        assert "input" == bench.call(custom_tool, arguments, input_schema=schema).kind


def test_the_permissive_schema_of_openmcp(bench: Bench) -> None:
    """Only for who asks for it: what cannot be inferred is an error else."""
    expected = {"type": "object", "additionalProperties": True}
    assert expected == bench.inputs("openmcp", lambda_like, input_schema="any")


def lambda_like(**kwargs): ...


def test_the_titles_of_openmcp() -> None:
    """They are pruned, at every depth."""
    before = {
        "title": "AnalyticsTool",
        "type": "object",
        "properties": {"count": {"title": "Count", "type": "integer"}},
    }
    assert {"type": "object", "properties": {"count": {"type": "integer"}}} == prune_titles(before)


async def test_schemas_are_made_once(project: Project) -> None:
    """Every look at the catalog shows the same contract."""
    project.write("skills/a.py", "from prowess import skill_command\n\n@skill_command\ndef one(x: int): ...\n")
    async with project.open() as runtime:
        assert runtime.catalog()["a.one"] is runtime.catalog()["a.one"]


# --- omni: the developer guide --------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation, expected",
    [
        (str, STRING),
        (int, INTEGER),
        (float, NUMBER),
        (bool, BOOLEAN),
        (list[str], STRINGS),
        (dict, {"type": "object"}),
        (dict[str, str], {"type": "object"}),
        (Literal["pending", "done"], {"type": "string", "enum": ["pending", "done"]}),
    ],
)
def test_the_type_table_of_omni(bench: Bench, annotation: Any, expected: Schema) -> None:
    """Word for word."""
    schema = bench.inputs("omni", taking(annotation))
    assert {"type": "object", "properties": {"x": expected}, "required": ["x"]} == schema


def test_a_bare_list_in_omni(bench: Bench) -> None:
    """An array always says what it holds: clients drop a tool that does not."""
    assert {"type": "array", "items": {}} == bench.inputs("omni", taking(list))["properties"]["x"]


def search_code(  # noqa: PLR0917 - as the guide has it
    query: str,
    file_pattern: str = "*.py",
    case_sensitive: bool = False,
    max_results: int = 100,
    encoding: Literal["utf-8", "gbk"] = "utf-8",
    exclude_patterns: list[str] | None = None,
) -> str:
    """Search for patterns in code.

    Args:
        query: Search query string
        file_pattern: File match pattern
        case_sensitive: Whether to be case-sensitive
        max_results: Maximum number of results
        encoding: File encoding
        exclude_patterns: List of exclude patterns
    """


def run_command(cmd: str, ensure_structured: bool | None = None) -> dict:
    """Execute Nushell command, returns structured JSON.

    Args:
        cmd: Nushell command to execute
        ensure_structured: Force JSON output for observation commands
    """


def example(required_param: str, optional_param: str = "default", optional_list: list[str] | None = None) -> str: ...


@pytest.mark.parametrize(
    "function, properties, required",
    [
        (
            search_code,
            {
                "query": {"type": "string", "description": "Search query string"},
                "file_pattern": {"type": "string", "description": "File match pattern", "default": "*.py"},
                "case_sensitive": {
                    "type": "boolean",
                    "description": "Whether to be case-sensitive",
                    "default": False,
                },
                "max_results": {"type": "integer", "description": "Maximum number of results", "default": 100},
                "encoding": {"type": "string", "enum": ["utf-8", "gbk"], "description": "File encoding"},
                "exclude_patterns": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "List of exclude patterns",
                },
            },
            ["query"],
        ),
        (
            run_command,
            {
                "cmd": {"type": "string", "description": "Nushell command to execute"},
                "ensure_structured": {
                    "type": "boolean",
                    "description": "Force JSON output for observation commands",
                },
            },
            ["cmd"],
        ),
        (
            example,
            {
                "required_param": {"type": "string"},
                "optional_param": {"type": "string", "default": "default"},
                "optional_list": {"type": "array", "items": {"type": "string"}},
            },
            ["required_param"],
        ),
    ],
)
def test_input_examples_of_omni(bench: Bench, function: Any, properties: Schema, required: list[str]) -> None:
    """Word for word. A parameter that may be None is shown: the guide's list of what is left out forgets its examples."""
    assert {"type": "object", "properties": properties, "required": required} == bench.inputs("omni", function)
    assert bench.outputs("omni", function) is None


def test_what_omni_leaves_out(bench: Bench) -> None:
    """Injected parameters and variadics."""

    def f(message: str, settings: Settings, paths: ConfigPaths, project_root: str, *args, **kwargs): ...

    expected = {"type": "object", "properties": {"message": STRING}, "required": ["message"]}
    assert expected == bench.inputs("omni", f, inject_root=True)


async def test_a_whole_definition_of_omni(project: Project) -> None:
    """The name with a dot is one setting away; hints are sent as they were declared."""
    project.write("prowess.toml", 'names = "dotted"')
    project.write(
        "skills/omnicell.py",
        """
        from prowess import skill_command

        @skill_command(
            title="OmniCell Command", read_only=True, destructive=False, idempotent=True, open_world=False
        )
        def run_command(cmd: str, ensure_structured: bool | None = None):
            '''Execute Nushell command, returns structured JSON'''
        """,
    )
    annotations = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
    async with project.open() as runtime:
        contract = runtime.catalog()["omnicell.run_command"]
        assert "omnicell.run_command" == contract.wire_name
        assert "Execute Nushell command, returns structured JSON" == contract.description
        assert ("OmniCell Command", annotations) == (contract.title, contract.hints.to_mcp())


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, {}),
        ({"title": "T"}, {"title": "T"}),
        ({"read_only": True, "idempotent": True}, {"readOnlyHint": True, "idempotentHint": True}),
        ({"destructive": True}, {"destructiveHint": True}),
        ({"open_world": True}, {"openWorldHint": True}),
        ({"destructive": False}, {"destructiveHint": False}),
    ],
)
def test_the_annotations_of_omni(options: Any, expected: Json) -> None:
    """A hint that nobody declared is not sent, since to a client its absence means the worst."""
    assert expected == get_tool_annotations(skill_command(**options)(taking(int)))


async def test_the_defaults_of_omni(project: Project) -> None:
    """Each row of the table of parameters. Undeclared hints are absent, and the description is the whole docstring."""

    @skill_command
    def my_tool(param: str) -> str:
        """Do it.

        At length.
        """

    async with project.open():
        config = get_script_config(my_tool)
    assert ("my_tool", "Do it.\n\nAt length.", "general") == (
        config["name"],
        config["description"],
        config["category"],
    )
    execution = config["execution"]
    assert {} == config["annotations"]
    assert (False, True, 1, 0.0) == tuple(
        execution[key] for key in ("inject_root", "autowire", "max_attempts", "cache_ttl")
    )
    assert not execution["inject_settings"]
    assert not execution["retry_on"]


async def test_the_check_of_a_schema_in_omni(project: Project) -> None:
    """As the guide tells authors to look at their schema."""

    @skill_command(name="my_tool")
    def my_tool(param: str) -> str: ...

    async with project.open():
        config = get_script_config(my_tool)
    assert {"param": {"type": "string"}} == config["input_schema"]["properties"]
    assert is_skill_command(my_tool)
    assert not is_skill_command(my_tool.raw)
    assert get_script_config(my_tool.raw) is None


async def test_the_injection_of_omni(project: Project) -> None:
    """The guide's example, run."""
    project.write("prowess.toml", '[api]\nkey = "k3y"\n')
    project.write(
        "skills/mine.py",
        """
        from prowess import ConfigPaths, Settings, skill_command

        @skill_command(name="my_command", autowire=True)
        async def my_command(message: str, settings: Settings, paths: ConfigPaths) -> str:
            api_key = settings.get("api.key")
            log_dir = paths.get_log_dir()
            return f"{message} with {api_key} in {log_dir}"
        """,
    )
    async with project.open() as runtime:
        outcome = await runtime.call("mine.my_command", {"message": "hi"})
        assert f"hi with k3y in {runtime.paths.get_log_dir()}" == outcome.value


def test_the_result_contract_of_omni(bench: Bench) -> None:
    """Success and failure alike are payloads that the shared schema admits, and content is never null."""

    def fails():
        raise ValueError("no")

    for function, is_error in ((returning(..., None), False), (returning(..., "x"), False), (fails, True)):
        payload = bench.call(function).payload("omni")
        assert is_error is payload["isError"]
        mcp_schema.validate(payload)
        mcp_schema.validate(payload, mcp_schema.MCP_TOOL_RESULT_TEXT_SCHEMA_V1)


def test_the_functions_of_omni() -> None:
    """The names that the guide gives."""
    built = mcp_schema.build_result("x", is_error=True)
    assert {"content": [text("x")], "isError": True} == built
    assert mcp_schema.is_canonical(built)
    assert mcp_schema.get_schema_path().is_file()
    assert mcp_schema.get_schema_path().name == mcp_schema.MCP_TOOL_RESULT_SCHEMA_V1
    assert mcp_schema.get_validator().is_valid(built)
    assert built == mcp_schema.normalize_mcp_tool_result(built)
    with pytest.raises(ValueError, match="MCP tool result schema violation at"):
        mcp_schema.validate({"content": [{"type": "text", "text": None}], "isError": False})


# --- turul: the two decisions ---------------------------------------------------------------------


@dataclasses.dataclass
class CalculationResult:
    sum: float
    operation: str
    timestamp: int


@dataclasses.dataclass
class Coordinates:
    lat: float
    lng: float


def another_address() -> Any:
    """An `Address` as turul's document has it; OpenMCP's has the name in this module."""

    @dataclasses.dataclass
    class Address:
        street: str
        city: str
        coordinates: Coordinates

    return Address


TurulAddress = another_address()


@dataclasses.dataclass
class Output:
    required_field: str
    optional_field: str | None = None


class CalculationOutput(BaseModel):
    result: float = Field(description="Calculation result")
    operation: str = Field(description="Operation performed")


CALCULATED = CalculationResult(42.0, "addition", 1234567890)
PLACE = TurulAddress("s", "c", Coordinates(1.0, 2.0))


def needed(**properties: Schema) -> Schema:
    """An object whose every property is required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


@pytest.mark.parametrize(
    "annotation, value, options, schema, structured",
    [
        (float, 42.5, {}, needed(output=NUMBER), {"output": 42.5}),
        (int, 42, {}, needed(output=INTEGER), {"output": 42}),
        (str, "Hello, Alice!", {}, needed(output=STRING), {"output": "Hello, Alice!"}),
        (bool, True, {}, needed(output=BOOLEAN), {"output": True}),
        (list[int], [1, 2, 3], {}, needed(output={"type": "array", "items": INTEGER}), {"output": [1, 2, 3]}),
        (float, 3.0, {"output_field": "sum"}, needed(sum=NUMBER), {"sum": 3.0}),
        (float, 3.0, {"output_field": "result"}, needed(result=NUMBER), {"result": 3.0}),
        (
            CalculationResult,
            CALCULATED,
            {},
            needed(calculationResult=needed(sum=NUMBER, operation=STRING, timestamp=INTEGER)),
            {"calculationResult": {"sum": 42.0, "operation": "addition", "timestamp": 1234567890}},
        ),
        (
            TurulAddress,
            PLACE,
            {},
            needed(address=needed(street=STRING, city=STRING, coordinates=needed(lat=NUMBER, lng=NUMBER))),
            {"address": {"street": "s", "city": "c", "coordinates": {"lat": 1.0, "lng": 2.0}}},
        ),
        (
            CalculationOutput,
            CalculationOutput(result=1.0, operation="o"),
            {},
            needed(
                calculationOutput=needed(
                    result={**NUMBER, "description": "Calculation result"},
                    operation={**STRING, "description": "Operation performed"},
                )
            ),
            {"calculationOutput": {"result": 1.0, "operation": "o"}},
        ),
        (
            Output,
            Output("r"),
            {},
            needed(
                output={
                    "type": "object",
                    "properties": {"required_field": STRING, "optional_field": STRING},
                    "required": ["required_field"],
                }
            ),
            {"output": {"required_field": "r"}},
        ),
    ],
)
def test_examples_of_turul(
    bench: Bench, annotation: Any, value: Any, *, options: Any, schema: Schema, structured: Json
) -> None:
    """Types, field names and nesting, word for word; also where the type is declared by `output=`."""
    assert schema == bench.outputs("turul", returning(annotation, value), **options)
    assert schema == bench.outputs("turul", returning(..., value), output=annotation, **options)
    assert structured == bench.returned("turul", value, annotation, **options)["structuredContent"]
    assert meets(schema, structured)


@pytest.mark.parametrize("keyword", ["$defs", "definitions"])
def test_the_conversion_of_turul(keyword: str) -> None:
    """The example of the second decision, for both drafts."""
    statistics = {"type": "object", "properties": {"min": {"type": "number"}, "max": {"type": "number"}}}
    before = {
        "type": "object",
        "properties": {"stats": {"$ref": f"#/{keyword}/Statistics"}},
        keyword: {"Statistics": statistics},
    }
    assert {"type": "object", "properties": {"stats": statistics}} == inline_refs(before)


async def test_schemas_are_there_before_any_call(project: Project) -> None:
    """By the signature alone: nothing is run to find out."""
    project.write(
        "skills/a.py",
        """
        from prowess import skill_command

        @skill_command
        def one(a: float, b: float) -> float:
            raise AssertionError
        """,
    )
    async with project.open() as runtime:
        contract = runtime.catalog()["a.one"]
        assert needed(a=NUMBER, b=NUMBER) == BUILT_IN["turul"].input_schema(contract)
        assert needed(output=NUMBER) == BUILT_IN["turul"].output_schema(contract)
