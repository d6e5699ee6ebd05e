"""What authors return to show pictures, sounds and files, and what is content in the first place."""

from __future__ import annotations

import base64
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union

import mcp_types
import pytest
import typing_extensions
from pydantic import BaseModel

from prowess import Audio, File, Image, Runtime, skill_command
from prowess.errors import LoadError, OutputError
from prowess.results.content import is_content_type, is_text_type
from prowess.results.normalize import normalize

PNG = b"\x89PNG\r\n\x1a\n" + b"rest"
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt "


async def content(value: Any) -> list[dict[str, Any]]:
    """The content that a command shows for a value."""
    async with Runtime.open("nowhere"):

        @skill_command
        async def show():
            return value

        payload = await show()
    assert not payload["isError"], payload
    mcp_types.CallToolResult.model_validate(payload)
    return payload["content"]


async def failure(value: Any) -> str:
    async with Runtime.open("nowhere"):

        @skill_command
        async def show():
            return value

        payload = await show()
    assert payload["isError"], payload
    return payload["content"][0]["text"]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("data", "kind", "mime_type"),
    [
        (PNG, "image", "image/png"),
        (b"\xff\xd8\xff\xe0", "image", "image/jpeg"),
        (b"GIF87a", "image", "image/gif"),
        (b"GIF89a", "image", "image/gif"),
        (b"RIFF\x01\n\x00\x00WEBPVP8 ", "image", "image/webp"),
        (WAV, "audio", "audio/wav"),
        (b"ID3\x04\x00\x00\x00\x00\x00\x0a", "audio", "audio/mpeg"),
        (b"\xff\xfb\x90\x00", "audio", "audio/mpeg"),
        (b"OggS\x00\x02", "audio", "audio/ogg"),
        (b"fLaC\x00", "audio", "audio/flac"),
    ],
)
@pytest.mark.parametrize("kind_of_bytes", [bytes, bytearray, memoryview])
async def test_bytes_are_what_their_first_bytes_say(
    data: bytes, kind: str, mime_type: str, kind_of_bytes: type[Any]
) -> None:
    """Pictures and sounds are recognised, of every kind of bytes."""
    assert [{"type": kind, "data": b64(data), "mimeType": mime_type}] == await content(kind_of_bytes(data))


@pytest.mark.parametrize("data", [b"", b"text", b"xxxxxxxxWEBP", b"ID3 is a kind of tag", b"\xff\xd8", b"OggSome"])
async def test_other_bytes_are_a_blob(data: bytes) -> None:
    """Also those that only look a little like a picture or a sound."""
    (block,) = await content(data)
    assert "resource" == block["type"]
    assert ("application/octet-stream", b64(data)) == (block["resource"]["mimeType"], block["resource"]["blob"])
    assert block["resource"]["uri"].startswith("prowess://file/")


async def test_image_and_audio(tmp_path: Path) -> None:
    """From bytes or a file; the type comes from the bytes, the name, or the author."""
    (tmp_path / "x.svg").write_text("<svg/>")
    image = {"type": "image", "mimeType": "image/png", "data": b64(PNG)}
    assert [image] == await content(Image(PNG))
    assert [{**image, "mimeType": "image/svg+xml", "data": b64(b"<svg/>")}] == await content(
        Image(path=tmp_path / "x.svg")
    )
    assert [{"type": "audio", "mimeType": "audio/opus", "data": b64(b"?")}] == await content(
        Audio(b"?", mime_type="audio/opus")
    )


async def test_image_that_is_none_fails_the_call() -> None:
    """It says what it is, and the way out."""
    assert 'audio/wav is not a type of image; set mime_type="image/..."' in await failure(Image(WAV))
    assert 'audio/wav is not a type of image; set mime_type="image/..."' in await failure([Image(WAV)])


def test_helper_takes_one_source() -> None:
    """Data or a path, and data that is bytes."""
    with pytest.raises(TypeError, match="Image takes either data or path"):
        Image()
    with pytest.raises(TypeError, match="Audio takes either data or path"):
        Audio(WAV, path="x.wav")
    with pytest.raises(
        TypeError, match=r"Image takes its data as bytes, not str; for a file, use Image\(path=\.\.\.\)"
    ):
        Image("plot.png")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "cls, args, given, reason",
    [
        (Image, (PNG, "image/png"), {}, "Image: too many positional arguments; write Image(data, mime_type="),
        (
            Audio,
            (WAV,),
            {"mimetype": "audio/wav"},
            "Audio: got an unexpected keyword argument 'mimetype'; write Audio(",
        ),
        (
            File,
            (b"x", "a.txt"),
            {},
            'File: too many positional arguments; write File(data, mime_type="application/pdf", uri=',
        ),
        (File, (b"x",), {"name": "a.txt"}, "File: got an unexpected keyword argument 'name'; write File("),
        (Image, (PNG,), {"data": PNG}, "Image: multiple values for argument 'data'; write Image("),
        (Image, (), {}, 'or Image(path="plot.png")'),
        (Image, (), {"path": b"a.png"}, "Image takes path as a str or a Path, not bytes"),
        (Image, (PNG,), {"mime_type": b"image/png"}, "Image takes mime_type as a str, not bytes"),
        (File, (b"x",), {"uri": 5}, "File takes uri as a str, not int"),
    ],
)
def test_wrong_arguments_of_a_helper_show_its_form(cls: Any, args: Any, given: Any, reason: str) -> None:
    """The message has the name and the form that authors write, not those of a base class."""
    with pytest.raises(TypeError) as caught:
        cls(*args, **given)
    assert reason in str(caught.value)
    assert "__init__" not in str(caught.value)


async def test_file_is_text_where_it_can_be(tmp_path: Path) -> None:
    """UTF-8 is shown as text, all else as a blob; a path gives the name."""
    (tmp_path / "a.md").write_text("é")
    assert [
        {
            "type": "resource",
            "resource": {"uri": (tmp_path / "a.md").as_uri(), "mimeType": "text/markdown", "text": "é"},
        }
    ] == await content(File(path=tmp_path / "a.md"))
    (text,) = await content(File(b"plain", uri="mem:x"))
    assert {"uri": "mem:x", "mimeType": "text/plain", "text": "plain"} == text["resource"]
    (blob,) = await content(File(b"\xff\x00", mime_type="application/x-odd"))
    assert ("application/x-odd", b64(b"\xff\x00")) == (blob["resource"]["mimeType"], blob["resource"]["blob"])


@pytest.mark.parametrize(
    "block",
    [
        mcp_types.TextContent(type="text", text="x"),
        mcp_types.TextContent(
            type="text", text="x", annotations=mcp_types.Annotations(audience=["user"], priority=0.5), _meta={"a": 1}
        ),
        mcp_types.ImageContent(type="image", data="eA==", mime_type="image/png"),
        mcp_types.AudioContent(type="audio", data="eA==", mime_type="audio/wav"),
        mcp_types.ResourceLink(
            type="resource_link",
            uri="file:///x",
            name="x",
            title="X",
            description="d",
            mime_type="text/plain",
            size=1,
            icons=[mcp_types.Icon(src="data:,", sizes=["1x1"], theme="dark", mime_type="image/png")],
        ),
        mcp_types.EmbeddedResource(
            type="resource", resource=mcp_types.TextResourceContents(uri="mem:x", text="t", _meta={"b": 2})
        ),
        mcp_types.EmbeddedResource(type="resource", resource=mcp_types.BlobResourceContents(uri="mem:x", blob="eA==")),
    ],
    ids=lambda block: f"{block.type}",
)
async def test_blocks_of_an_mcp_library_pass_through(block: Any) -> None:
    """As objects, as dicts, alone and in lists, and read back as what they were."""
    written = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    for value in (block, written, [block], (block,), [written, block][:1]):
        assert [written] == await content(value)
    assert [{"type": "text", "text": "before"}, written] == await content(["before", block])
    assert [{"type": "text", "text": "before"}, written] == await content(["before", written])
    assert block == type(block).model_validate((await content(block))[0])


async def test_list_with_content_shows_its_other_items_as_text() -> None:
    """Texts as they are, data as JSON."""
    blocks = await content(["caption", Image(PNG), {"a": [1]}, None, 2.5])
    assert ["caption", None, '{"a": [1]}', "", "2.5"] == [block.get("text") for block in blocks]


@pytest.mark.parametrize(
    "value",
    [
        [{"type": "text", "text": "x"}, {"other": 1}],
        {"type": "text", "text": "x", "more": 1},
        {"type": "text"},
        {"type": ["text"], "text": "x"},
        {"type": "video", "data": ""},
        [["a"], {"type": "text", "text": "x"}],
        [1, {"type": "text", "text": "x"}],
        [],
        ["a"],
    ],
)
async def test_what_only_resembles_blocks_is_data(value: Any) -> None:
    """A block has the keys of its type, no less and no more."""
    async with Runtime.open("nowhere"):

        @skill_command
        async def show():
            return value

        shown = (await show())["structuredContent"]
    assert value == (shown["result"] if isinstance(value, list) else shown)


class Node(BaseModel):
    type: Literal["text"]
    text: str
    bold: bool = False


class Odd:
    model_fields = ("no", "mapping")


class Odder:
    model_fields = {"type": "no field"}


@pytest.mark.parametrize(
    "annotation",
    [
        Image,
        bytes,
        bytearray,
        Annotated[bytes, "doc"],
        Optional[bytes],
        str | bytes,
        Union[Image, str, None],
        list[Image],
        list[str | Image],
        tuple[str, Image],
        Iterator[Audio],
        Annotated[list[Annotated[File, 1]], 2],
        mcp_types.TextContent,
        str | mcp_types.ImageContent,
        list[mcp_types.ContentBlock],
        mcp_types.CallToolResult,
        typing_extensions.TypeAliasType("Shown", Image | str),
    ],
)
def test_types_of_content(annotation: Any) -> None:
    """Content, alone, in unions and in containers, has no output schema."""
    assert is_content_type(annotation)


@pytest.mark.parametrize(
    "annotation",
    [
        str,
        None,
        list,
        list[bytes],
        list[Annotated[bytes, 1]],
        dict[str, Image],
        dict[str, bytes],
        Node,
        BaseModel,
        Odd,
        Odder,
        Literal["x"],
        typing.Any,
        typing_extensions.TypeAliasType("Named", list[int]),
    ],
)
def test_types_of_data(annotation: Any) -> None:
    """Bytes inside data are data; a model that has more than a block is a model."""
    assert not is_content_type(annotation)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the statement is newer")
def test_type_statement() -> None:
    """An alias of the language is looked through like one of `typing_extensions`."""
    names: dict[str, Any] = {"Image": Image}
    exec("type Shown = Image | None", names)
    assert is_content_type(names["Shown"])


async def test_odd_classes_are_not_mistaken() -> None:
    """A class with a `model_fields` of its own is no model; our kind of data is told in the failure."""
    assert "an object of the type Odd cannot be written as JSON" in await failure(Odd())
    assert "an object of the type Odder cannot be written as JSON" in await failure(Odder())


async def test_content_cannot_be_sent_as_an_argument() -> None:
    """It is for results: the command is refused at load, with the reason."""

    @skill_command
    def run(image: Image) -> None: ...

    async with Runtime.open("nowhere") as runtime:
        with pytest.raises(LoadError, match="Image is for results and cannot be sent as an argument"):
            runtime.entry_of(run.__prowess__)


def test_a_new_type_of_text_is_text() -> None:
    assert is_text_type(typing.NewType("Name", str))
    assert not is_text_type(typing.NewType("Number", int))


WRONG = [
    ("data:image/png;base64,eA==", "It is a URL with data: leave out all up to the comma"),
    ("eA", "Encode the bytes with base64.b64encode"),
    ("_w==", "Encode the bytes with base64.b64encode"),
    ("Ä", "Encode the bytes with base64.b64encode"),
]


@pytest.mark.parametrize(("data", "remedy"), WRONG)
@pytest.mark.parametrize(
    ("noun", "make"),
    [
        ("image", lambda data: {"type": "image", "data": data, "mimeType": "image/png"}),
        ("sound", lambda data: {"type": "audio", "data": data, "mimeType": "audio/wav"}),
        ("file", lambda data: {"type": "resource", "resource": {"uri": "mem:x", "blob": data}}),
    ],
)
def test_data_of_a_block_must_be_base64(noun: str, make: Callable[[str], Any], data: str, remedy: str):
    """Some clients refuse a whole result for it. Line breaks are no harm."""
    for value in (make(data), ["text", make(data)], [b"x", make(data)], {"content": [make(data)], "isError": False}):
        with pytest.raises(OutputError, match=f"the data of the {noun} is not base64 .*{remedy}"):
            normalize(value)
    assert normalize(make("eHh4\neHh4\n")).blocks


def test_a_block_of_another_shape_is_refused_by_the_schema():
    """It has no data to look at."""
    for block in ({"type": "image", "data": 5, "mimeType": "image/png"}, {"type": "resource", "resource": 5}):
        with pytest.raises(OutputError, match="schema violation"):
            normalize(block)
