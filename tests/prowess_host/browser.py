"""A headless Chromium, driven by chromedriver's own protocol (https://www.w3.org/TR/webdriver2/) and nothing else."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patience import PATIENCE

__all__ = ["Browser", "browsing", "is_installed"]

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Space": "\ue00d"}


def is_installed() -> bool:
    return all(map(shutil.which, ("chromium", "chromedriver")))


class Browser:
    """One page in one window."""

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, address: str) -> None:
        self._ask("POST", "/url", url=address)

    def run(self, script: str, *given: Any) -> Any:
        """What a script returns; `arguments` are what it is given."""
        return self._ask("POST", "/execute/sync", script=script, args=list(given))

    def text(self, selector: str) -> str:
        """The text of what can be seen of an element."""
        return self.run(
            "const found = document.querySelector(arguments[0]); return found ? found.innerText : ''", selector
        )

    def until(self, script: str, *given: Any) -> Any:
        """What an expression gives as soon as it is true."""
        end = time.monotonic() + PATIENCE
        while not (found := self.run(f"return {script}", *given)):
            assert time.monotonic() < end, f"{script} is never true; the page says:\n{self.text('body')}"
            time.sleep(0.05)
        return found

    def until_text(self, selector: str, text: str) -> None:
        self.until(
            "(document.querySelector(arguments[0]) || {innerText: ''}).innerText.includes(arguments[1])", selector, text
        )

    def click(self, selector: str, text: str = "") -> None:
        """Click the first such element, or the one that holds a text."""
        script = "[...document.querySelectorAll(arguments[0])].find((each) => each.innerText.includes(arguments[1]))"
        self.until(f"Boolean({script})", selector, text)
        element = self.run(f"return {script}", selector, text)
        self._ask("POST", f"/element/{element[_ELEMENT]}/click")

    def type(self, selector: str, text: str) -> None:
        """Type into an input."""
        element = self.run("return document.querySelector(arguments[0])", selector)[_ELEMENT]
        self._ask("POST", f"/element/{element}/clear")
        self._ask("POST", f"/element/{element}/value", text=text)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        pressed = [
            each
            for key in keys
            for each in (
                {"type": "keyDown", "value": _KEYS.get(key, key)},
                {"type": "keyUp", "value": _KEYS.get(key, key)},
            )
        ]
        self._ask("POST", "/actions", actions=[{"type": "key", "id": "keyboard", "actions": pressed}])

    def focused(self) -> str:
        """What has the focus: its id, else its text."""
        return self.run("const it = document.activeElement; return it.id || it.innerText")

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def colours(self, scheme: str) -> None:
        """Have the page believe that the system is light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._ask("POST", "/goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params={"features": features})

    def size(self, width: int, height: int) -> None:
        self._ask("POST", "/window/rect", width=width, height=height)

    def complaints(self) -> list[str]:
        """What the console of the page holds."""
        return [each["message"] for each in self._ask("POST", "/se/log", type="browser")]

    def _ask(self, method: str, path: str, **told: Any) -> Any:
        return _ask(method, self._session + path, told)


@contextlib.contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser with a profile in a folder. Nothing of it is left at the end."""
    driver, address = _driver()
    with driver:
        try:
            flags = [
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                f"--user-data-dir={folder / 'browser'}",
            ]
            wanted = {
                "browserName": "chrome",
                "goog:chromeOptions": {"args": flags},
                "goog:loggingPrefs": {"browser": "ALL"},
            }
            session = _ask("POST", f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
            try:
                yield Browser(f"{address}/session/{session}")
            finally:
                _ask("DELETE", f"{address}/session/{session}")
        finally:
            driver.kill()


def _driver() -> tuple[subprocess.Popen[str], str]:
    """A chromedriver and its address. It takes a free port for IPv4, and ends if another program has that port for IPv6."""
    while True:
        command = ["chromedriver", "--port=0"]
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert driver.stdout is not None
        told = ""
        for line in driver.stdout:
            told += line
            if found := re.search(r"success.* on port (\d+)", line):
                return driver, f"http://127.0.0.1:{found[1]}"
        driver.communicate()
        assert "port not available" in told, told


def _ask(method: str, address: str, told: Any = None) -> Any:
    body = json.dumps(told or {}).encode() if method == "POST" else None
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(json.load(error)["value"]["message"]) from None
