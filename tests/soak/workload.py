"""What a client does: a seeded mix of everything that can be asked of a host, each with what may be answered.

An answer must belong to its call: whatever a command gives holds the token it was called with. `worker_lost` is right
only for a call that began in a worker which something happened to.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from clients import ASKING, BATCHES, STATELESS, Client, Gone, Message, Pending
from expectations import KIND, Expect, failed, finished_or, kind_of, listed, not_of, structured, text_of, value
from health import workers
from saves import LAST, Announced, Project

__all__ = ["HARM", "Mix"]

NEVER_BEGAN = "It never began"
NO_WORKER = "no worker can be started"
HARM = (
    *("segfault", "abort", "kill", "fork", "exit", "async", "hang", "block", "ponder regex", "ponder native"),
    *("escape session", "escape group", "seize"),
)
"""What costs a worker its life, or a part of it."""


class Mix:
    """Everything one client does, `width` things at a time."""

    def __init__(
        self,
        client: Client,
        project: Project,
        rng: random.Random,
        *,
        width: int = 8,
        pause: float = 0.02,
        fresh: bool = False,
        harm: list[str] | None = None,
    ) -> None:
        self.client = client
        self.lost: Counter[int] = Counter()
        """How many calls went down with each worker."""
        self.killed = 0
        self._project = project
        self._announced = Announced(project.history)
        client.on_list = self._announced.take
        self._rng = rng
        self._harm = [] if harm is None else harm
        """What is still to be done, by one of those who share the list, before anything is done again."""
        self._width = width
        self._fresh = fresh
        """The host was started when something may have been broken, so that there was no last good version."""
        self._pause = pause
        self._open = asyncio.Event()
        self._busy = 0
        self._idle = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._trouble_after = 0.0
        self._loop = asyncio.get_running_loop()
        self._ops: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (20, self._echo),
            (6, self._slow),
            (5, self._progress),
            (4, self._logs),
            (4, self._confirm),
            (6, self._cancel),
            (4, self._wrong_arguments),
            (3, self._unknown),
            (4, self._malformed),
            (3, self._large),
            (5, self._list),
            (4, self._small_talk),
            (10, self._moving),
            (2, self._cached),
            (2, self._read),
            (4, self._limited),
            (2, self._fail),
            (2, self._flood),
            (1, self._shout),
            (1, self._seize_shortly),
            (0.5, self._linger),
            (10, self._trouble),
            (0.3, self._kill_worker),
            (0.3, self._stop_reading),
        ]
        if client.version == BATCHES:
            self._ops.append((8, self._batch))
        if client.version == STATELESS:
            self._ops.append((0.5, self._background))
        if client.is_web:
            others = {self._cancel, self._malformed, self._unknown, self._stop_reading}
            self._ops = [(weight, op) for weight, op in self._ops if op not in others]

    # Running

    def start(self) -> None:
        """Begin."""
        self._open.set()
        self._tasks = [asyncio.create_task(self._go_on()) for _ in range(self._width)]

    async def calm(self) -> None:
        """Begin nothing more, and wait until everything is answered."""
        self._open.clear()
        while self._busy and not self.client.faults:
            self._idle.clear()
            await self._idle.wait()
        if self.client.owed() and not self.client.faults:
            self.client.fault(f"nobody waits for {self.client.owed()}, and still they are pending")

    def go_on(self) -> None:
        """After a calm."""
        self._open.set()

    async def stop(self) -> None:
        """Begin nothing more, and wait for nothing."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _go_on(self) -> None:
        weights = [weight for weight, _ in self._ops]
        while not self.client.leaving:
            await self._open.wait()
            (_, op), *_ = self._rng.choices(self._ops, weights)
            self._busy += 1
            try:
                await op()
                await self.client.room()
            except Gone:
                if not self.client.leaving:
                    self.client.fault(f"the host has left before its time, in {op.__name__}")
                return
            except Exception as error:  # noqa: BLE001 - a fault of the driver must not look like success
                self.client.fault(f"{op.__name__}: {error!r}")
            finally:
                self._busy -= 1
                self._idle.set()
            outage = self._project.settings_were_broken  # then each call is answered at once, by a refusal
            await asyncio.sleep(self._rng.random() * self._pause * (5 if outage else 1))

    # Calls

    def _begin(self, name: str, token: str, /, meta: Message | None = None, **arguments: Any) -> Pending:
        params = {"name": name, "arguments": {"token": token, **arguments}, **({"_meta": meta} if meta else {})}
        return self.client.request("tools/call", params, token, self._era())

    def _era(self) -> str:
        return STATELESS if self.client.mixed and self._rng.random() < 0.4 else self.client.version

    async def _call(self, name: str, expect: Expect, /, meta: Message | None = None, **arguments: Any) -> None:
        token = self.client.token()
        pending = self._begin(name, token, meta, **arguments)
        self._judge(name, token, await self.client.settle(pending), expect)

    def _judge(self, name: str, token: str, answer: Message | None, expect: Expect) -> None:
        """Whether an answer is right; a call that was lost may be so only beside a crash."""
        client = self.client
        self._read_journal()
        pid = client.journal.began.pop(token, None)
        client.counts["calls"] += 1
        if answer is None:
            return
        result = answer.get("result")
        if result is None:
            if not client.leaving:
                client.fault(f"{name} {token} was refused: {answer['error']}")
            return
        if kind_of(result) == "worker_lost":
            self._judge_loss(name, token, pid, text_of(result))
        elif wrong := expect(result) or not_of(token, result):
            client.fault(f"{name} {token}: {wrong}, not {json.dumps(result)[:500]}")

    def _read_journal(self) -> None:
        journal = self.client.journal
        journal.read()
        if journal.twice:
            self.client.fault(f"run twice: {journal.twice}")
            journal.twice.clear()

    def _judge_loss(self, name: str, token: str, pid: int | None, text: str) -> None:
        client = self.client
        client.note(f"{token} was lost in {pid}: {text}")
        client.counts["lost"] += 1
        if "the host is shutting down" in text and client.leaving:
            return
        if NEVER_BEGAN in text:
            client.counts["lost, never began"] += 1
            if pid is not None:
                client.fault(f"{name} {token} began in {pid}, although: {text}")
            if self._project.settings_were_broken and (NO_WORKER in text or "went away" in text):
                client.counts["lost to broken settings"] += 1
                return
            if "while it was loaded" in text and client.journal.killers:
                return
            if not ("no longer loads" in text and not name.startswith("steady")):
                client.fault(f"{name} {token}: {text}")
        elif pid is not None and pid not in client.journal.killers:
            client.fault(f"{name} {token} was lost in {pid}, which nothing happened to: {text}")
        elif not client.journal.killers and not any(name.startswith("trouble: ") for name in client.counts):
            # otherwise the host may have ended a silent worker that had been asked for something deadly and not begun it
            client.fault(f"{name} {token} was lost, and nothing happened: {text}")
        if pid is not None:
            self.lost[pid] += 1

    # Well behaved

    async def _echo(self) -> None:
        n = self._rng.randrange(1_000_000)
        name = self._rng.choice(["steady_echo", "steady_echo_sync", "steady.echo"])
        await self._call(name, value(n=n), n=n)

    async def _slow(self) -> None:
        seconds = self._rng.choice([0.01, 0.05, 0.2, 0.7])
        name = self._rng.choice(["steady_slow", "steady_slow_sync", "steady_patient_sync"])
        await self._call(name, value(), seconds=seconds)

    async def _progress(self) -> None:
        n = self._rng.choice([1, 5, 50])
        token = self.client.token()
        if self._rng.random() < 0.5:
            name, expect = "steady_steps", value(token=token, n=n)
        else:
            name, expect = "steady_yielding", listed(token, n)
        answer = await self.client.settle(self._begin(name, token, {"progressToken": token}, n=n))
        self._judge(name, token, answer, expect)

    async def _logs(self) -> None:
        n = self._rng.choice([1, 3, 30])
        meta = {"io.modelcontextprotocol/logLevel": "info"} if self._rng.random() < 0.8 else None
        await self._call("steady_chatter", value(n=n), meta, n=n)

    async def _large(self) -> None:
        size = self._rng.choice([10_000, 200_000, 1_500_000])
        if self._rng.random() < 0.5:
            await self._call("steady_large", value(text="ü" * (size // 2)), size=size)
        else:
            text = f"{self._rng.random():.6f}" + "é" * size + "fertig ü"
            await self._call("steady_measure", value(length=len(text), ends=text[:8] + text[-8:]), text=text)

    async def _cached(self) -> None:
        key = self._rng.randrange(5)
        params = {"name": "steady_cached", "arguments": {"key": key}}
        answer = await self.client.settle(self.client.request("tools/call", params, "", self._era()))
        self._judge("steady_cached", "", answer, value(key=key, token=None))

    async def _read(self) -> None:
        """A resource, which is lost with its worker like a call, but without a result."""
        token = self.client.token()
        pending = self.client.request("resources/read", {"uri": f"soak://{token}"}, token, self._era())
        answer = await self.client.settle(pending) or {}
        if "was lost" in (why := answer.get("error", {}).get("message", "")):
            self._judge("steady_page", token, {"result": {"_meta": {KIND: "worker_lost"}, **_text(why)}}, value())
        else:
            contents = answer.get("result", {}).get("contents", [{"text": json.dumps(answer)}])
            self._judge("steady_page", token, {"result": _text(contents[0]["text"])}, value(token=token))

    async def _background(self) -> None:
        """A task, which is asked for until it has ended."""
        token = self.client.token()
        meta = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
        answer = await self.client.settle(
            self._begin("steady_background", token, meta, seconds=self._rng.choice([0, 0.2, 1]))
        )
        task = (answer or {}).get("result", {})
        handle = {"taskId": task.get("taskId"), "_meta": meta}
        while task.get("status") == "working":
            await asyncio.sleep(0.2)
            told = await self.client.settle(self.client.request("tasks/get", handle))
            task = (told or {}).get("result", {})
            answer = {"result": task["result"]} if "result" in task else told
        self._judge("steady_background", token, answer, value())

    async def _limited(self) -> None:
        await asyncio.gather(*(self._call("steady_limited", value()) for _ in range(self._rng.choice([1, 4]))))

    async def _confirm(self) -> None:
        name = self._rng.choice(["steady_confirm", "steady_confirm_sync"])
        token = self.client.token()
        era = self._era()
        params: Message = {"name": name, "arguments": {"token": token}}
        reply, expect = self._reply(token)
        if era not in ASKING:
            await self._ask_in_vain(name, token, params)
            return
        pending = self.client.request("tools/call", params, token, era)
        pending.reply = reply
        answer = await self.client.settle(pending)
        if era == STATELESS and answer and (answer.get("result") or {}).get("resultType") == "input_required":
            answer = await self._ask_again(token, params, answer["result"], reply)
        self._judge(name, token, answer, expect)

    def _reply(self, token: str) -> tuple[Message, Expect]:
        how = self._rng.choice(["accept", "accept", "decline", "cancel", "error"])
        if how == "accept":
            reply = {"result": {"action": "accept", "content": {"value": f"me {token}"}}}
            return reply, value(action="accept", value=f"me {token}")
        if how == "error":
            return {"error": {"code": -32603, "message": "nobody there"}}, failed("")
        return {"result": {"action": how}}, value(action=how, value=None)

    async def _ask_again(self, token: str, params: Message, asked: Message, reply: Message) -> Message | None:
        """The stateless way to answer: call again. A client that cannot ask says that somebody declined."""
        self._read_journal()
        self.client.journal.began.pop(token, None)  # the second run is another one
        responses = dict.fromkeys(asked["inputRequests"], reply.get("result", {"action": "decline"}))
        again = {**params, "inputResponses": responses, "requestState": asked["requestState"]}
        answer = await self.client.settle(self.client.request("tools/call", again, token, STATELESS))
        if answer is not None and "has expired" in answer.get("error", {}).get("message", ""):
            self.client.counts["expired"] += 1  # the clock was set in between
            return None
        declined = "result" not in reply and answer is not None and kind_of(answer.get("result") or {}) is None
        if not declined:
            return answer
        return {"result": {"isError": True, "content": [{"type": "text", "text": ""}]}}

    async def _ask_in_vain(self, name: str, token: str, params: Message) -> None:
        """A client of old that cannot be asked is told so."""
        answer = await self.client.settle(self.client.request("tools/call", params, token))
        self._judge(name, token, answer, failed(""))

    # Giving up

    async def _cancel(self) -> None:
        rng, client = self._rng, self.client
        name = rng.choice(["slow", "slow", "patient_sync", "slow_sync", "hang", "echo", "confirm", "limited", "large"])
        arguments: Message = {"seconds": rng.choice([0.05, 1.0, 3.0])} if "slow" in name or "patient" in name else {}
        if name == "large":
            arguments = {"size": 1_000_000}
        token = client.token()
        pending = self._begin(f"steady_{name}", token, **arguments)
        await asyncio.sleep(rng.choice([0, 0, 0.01, 0.2]))
        if name in {"slow_sync", "hang"}:
            self._doom(token)
        await client.cancel(pending)
        if name in {"slow_sync", "hang"}:
            self._doom(token)
        client.journal.began.pop(token, None)

    def _doom(self, token: str) -> None:
        """A thread that cannot be cancelled costs its worker its life."""
        self._read_journal()
        pid = self.client.journal.began.get(token)
        if pid is not None:
            self.client.journal.killers.add(pid)

    # Wrong requests

    async def _wrong_arguments(self) -> None:
        name, arguments = self._rng.choice(
            [
                ("steady_echo", {}),
                ("steady_echo", {"token": 5}),
                ("steady_echo", {"tokn": "x"}),
                ("steady_slow", {"token": "x", "seconds": "soon"}),
                ("steady_steps", {"token": "x", "n": 1, "ctx": {}}),
                ("steady_echo_sync", {"token": "x", "n": "many"}),
            ]
        )
        params = {"name": name, "arguments": arguments}
        answer = await self.client.settle(self.client.request("tools/call", params, "", self._era()))
        self._judge(name, "", answer, failed("", "input"))

    async def _unknown(self) -> None:
        params, code = self._rng.choice(
            [
                ({"name": "steady_ecko", "arguments": {}}, -32602),
                ({"name": "", "arguments": {}}, -32602),
                ({"name": 5}, -32602),
                ({}, -32602),
                ({"name": "steady_echo", "arguments": []}, -32602),
            ]
        )
        await self._refused("tools/call", params, code)

    async def _refused(self, method: str, params: Message, code: int) -> None:
        answer = await self.client.settle(self.client.request(method, params))
        if answer is None or answer.get("error", {}).get("code") != code:
            self.client.fault(f"{method} {params} should be refused with {code}: {answer}")

    async def _malformed(self) -> None:
        rng, client = self._rng, self.client
        number = client.token()
        without_id = [
            b'{"jsonrpc":"2.0","id":7,"method":"pi',
            b"Content-Length: 12",
            b"42",
            b'"text"',
            b"\xff\xfe\x00",
            b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
            b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
            b"[" * 100_000,
            b"[]",
        ]
        if rng.random() < 0.3:
            client.write(rng.choice(without_id), complaint=True)
            return
        if rng.random() < 0.3:
            await self._unreadable()
            return
        unheard = [
            b"",
            b"   \r",
            b'{"jsonrpc":"2.0","method":"notifications/nothing"}',
            b'{"jsonrpc":"2.0","id":999,"result":{}}',
        ]
        if rng.random() < 0.3:
            client.write(rng.choice(unheard))
            return
        pending, _ = client.prepare("ping", {})
        shapes: list[tuple[int, Message]] = [
            (-32600, {"jsonrpc": "1.0", "method": "ping"}),
            (-32600, {"method": "ping"}),
            (-32600, {"jsonrpc": "2.0"}),
            (-32600, {"jsonrpc": "2.0", "method": 5}),
            (-32602, {"jsonrpc": "2.0", "method": "ping", "params": [1]}),
            (-32601, {"jsonrpc": "2.0", "method": "no/method", "params": {}}),
        ]
        code, shape = rng.choice(shapes)
        if client.version == STATELESS and shape.get("method") == "no/method":
            shape["params"] = {
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": STATELESS,
                    "io.modelcontextprotocol/clientCapabilities": {},
                }
            }
        client.send({**shape, "id": pending.id})
        answer = await client.settle(pending)
        if answer is None or answer.get("error", {}).get("code") != code:
            client.fault(f"{number}: {shape} should be refused with {code}: {answer}")

    async def _unreadable(self) -> None:
        """What no JSON is, beside an id that can be read."""
        code, content = self._rng.choice([(-32700, b'"\xff"'), (-32602, b"NaN"), (-32602, b"1" * 5_000)])
        pending, message = self.client.prepare("ping", {"x": "HERE"})
        self.client.write(json.dumps(message, ensure_ascii=False).encode().replace(b'"HERE"', content))
        answer = await self.client.settle(pending)
        if answer is None or answer.get("error", {}).get("code") != code:
            self.client.fault(f"{content[:20]} should be refused with {code}: {answer}")

    # Small talk

    async def _list(self) -> None:
        if self._rng.random() < 0.2:
            await self._refused("tools/list", {"cursor": "nowhere"}, -32602)
        answer = await self.client.settle(self.client.request("tools/list", {}, "", self._era()))
        if self.client.leaving:
            return
        names = [tool["name"] for tool in (answer or {}).get("result", {"tools": []})["tools"]]
        there = "steady_echo" in names and ("m0_value" in names or self._fresh)
        if not there or names != sorted(names):
            self.client.fault(f"the list lacks what was never away, or is in disorder: {names}")

    async def _small_talk(self) -> None:
        client = self.client
        if client.version == STATELESS:
            await client.ask("server/discover")
        elif self._rng.random() < 0.5:
            await client.ask("ping")
        else:
            await client.ask("logging/setLevel", level=self._rng.choice(["debug", "info", "error"]))

    async def _batch(self) -> None:
        """Calls, requests that need no worker, notifications, nonsense, and now and then a cancellation from outside."""
        client, rng = self.client, self._rng
        requests: list[tuple[Pending, Message]] = []
        expected: list[tuple[Pending, str, Expect]] = []
        for _ in range(rng.choice([1, 2, 5, 20])):
            token = client.token()
            name = rng.choice(["steady_echo", "steady_slow", "steady_echo_sync", "ping", "steady_die"])
            if name == "ping":
                requests.append(client.prepare("ping", {}))
                continue
            if name == "steady_die" and not self._may_trouble():
                name = "steady_echo"
            more: Message = (
                {"seconds": 0.1} if name == "steady_slow" else {"how": "exit"} if name == "steady_die" else {}
            )
            params = {"name": name, "arguments": {"token": token, **more}}
            requests.append(client.prepare("tools/call", params, token))
            expected.append((requests[-1][0], name, value() if name != "steady_die" else failed("", "worker_lost")))
        client.batch(requests, [{"jsonrpc": "2.0", "method": "notifications/nothing"}] * rng.choice([0, 1]))
        if rng.random() < 0.3:
            await client.cancel(rng.choice(requests)[0])
        for pending, _ in requests:
            await client.settle(pending)
        for pending, name, expect in expected:
            self._judge(name, pending.token, pending.answer.result(), expect)

    # Files that change

    async def _moving(self) -> None:
        number = self._rng.choice([0, 0, *range(LAST + 1)])
        name, token = f"m{number}_value", self.client.token()
        since = self._announced.since(f"m{number}")
        answer = await self.client.settle(self._begin(name, token))
        if answer and answer.get("error", {}).get("code") == -32602 and (number or self._fresh):
            self.client.counts["not there"] += 1
            self.client.journal.began.pop(token, None)
            return
        self._judge(name, token, answer, lambda result: self._moved(f"m{number}", since, result))

    def _moved(self, name: str, since: int, result: Message) -> str:
        if result.get("isError"):
            text = text_of(result)
            known = ("list the tools again", "no longer loads", "cannot be loaded", "could not be loaded")
            if any(words in text for words in known) and (name != "m0" or self._fresh):
                self.client.counts["not there"] += 1
                return ""
            return "a changing file answers, or is said to have gone"
        version = structured(result).get("version")
        if not self._announced.is_current(name, version, since):
            return f"one of the versions {self._project.history[name][since:]}"
        return ""

    # Trouble

    def _may_trouble(self) -> bool:
        """Each death costs a start: not so many that nothing else happens."""
        now = self._loop.time()
        if now < self._trouble_after:
            return False
        self._trouble_after = now + 0.3 + self._rng.random() * 1.2
        return True

    async def _fail(self) -> None:
        if self._rng.random() < 0.5:
            await self._call("steady_fail", failed("no luck", "failed"))
        else:
            how = self._rng.choice(["exit", "interrupt", "cancelled", "exception"])
            await self._call("steady_boom", failed("", "crashed"), how=how)

    async def _flood(self) -> None:
        await self._call("steady_flood", value(), how=self._rng.choice(["print", "native", "child"]))

    async def _linger(self) -> None:
        await self._call("steady_linger", value(), how=self._rng.choice(["fork", "child", "session", "daemon", "bare"]))

    async def _shout(self) -> None:
        await self._call("steady_shout", value(), lines=self._rng.choice([1, 2000]))

    async def _seize_shortly(self) -> None:
        await self._call("steady_seize", value(), seconds=0.2)

    async def _trouble(self) -> None:
        if not self._may_trouble():
            return
        rng, client = self._rng, self.client
        if not self._harm:
            self._harm += rng.sample(HARM, len(HARM))
        how = self._harm.pop()
        client.counts[f"trouble: {how}"] += 1
        beside = [asyncio.create_task(self._echo()) for _ in range(rng.choice([0, 2, 8]))]
        try:
            await self._do_harm(how)
        finally:
            await asyncio.gather(*beside, return_exceptions=True)  # what is wrong with them is a fault already

    async def _do_harm(self, how: str) -> None:
        if how == "async":
            await self._call("steady_die_async", failed("", "worker_lost"))
        elif how == "block":
            seconds, late = self._rng.choice([1.0, 2.5, 8.0]), failed("", "timeout")
            await self._call("steady_block", finished_or(late) if seconds < 8 else late, seconds=seconds)
        elif how == "hang":
            await self._call("steady_hang", failed("", "timeout"))
        elif how.startswith(("ponder ", "escape ")):
            name, way = how.split()
            await self._call(f"steady_{name}", failed("", "timeout"), how=way)
        elif how == "seize":
            await self._call("steady_seize", value(), seconds=1.4)
        else:
            await self._call("steady_die", failed("", "worker_lost"), how=how)

    async def _kill_worker(self) -> None:
        """What the kernel does when memory runs out."""
        found = workers(self.client.process.pid)
        if found and self._may_trouble():
            pid = self._rng.choice(found)
            self.client.journal.killers.add(pid)
            self.client.note(f"kill {pid}")
            self.killed += 1
            os.kill(pid, signal.SIGKILL)

    async def _stop_reading(self) -> None:
        await self.client.stop_reading(self._rng.random() * 0.5)


def _text(text: str) -> Message:
    """A result with one text."""
    return {"content": [{"type": "text", "text": text}]}
