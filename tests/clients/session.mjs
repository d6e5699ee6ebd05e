// One session of an official TypeScript client with a server: `node session.mjs v1|v2-legacy|v2-auto PROJECT COMMAND…`,
// where the command may be an address instead.
// Prints one JSON object with what every step came to.
import { appendFileSync, existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

const [which, project, command, ...args] = process.argv.slice(2);
const info = { name: "session", version: "1" };
const elicitation = { elicitation: { form: {} } };
const yes = async () => ({ action: "accept", content: { value: true } });
let changed;
const change = new Promise((resolve) => (changed = resolve));

async function connected() {
  if (which === "v1") {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const { ElicitRequestSchema, ToolListChangedNotificationSchema } = await import("@modelcontextprotocol/sdk/types.js");
    const client = new Client(info, { capabilities: elicitation });
    client.setRequestHandler(ElicitRequestSchema, yes);
    client.setNotificationHandler(ToolListChangedNotificationSchema, async () => changed());
    await client.connect(transport(StdioClientTransport, StreamableHTTPClientTransport));
    return client;
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  const client = new Client(info, { capabilities: elicitation, versionNegotiation: { mode: which.slice(3) } });
  client.setRequestHandler("elicitation/create", yes);
  client.setNotificationHandler("notifications/tools/list_changed", async () => changed());
  await client.connect(transport(StdioClientTransport, StreamableHTTPClientTransport));
  return client;
}

function transport(Stdio, Http) {
  return args.length ? new Stdio({ command, args, stderr: "ignore" }) : new Http(new URL(command));
}

async function there(name) {
  while (!existsSync(join(project, name))) await pause(10);
}

async function caught(promise) {
  try {
    return { result: await promise };
  } catch (error) {
    return { code: error.code ?? null, message: String(error.message) };
  }
}

const client = await connected();
const call = (name, given = {}, options) =>
  which === "v1"
    ? client.callTool({ name, arguments: given }, undefined, options)
    : client.callTool({ name, arguments: given }, options);
const names = async () => (await client.listTools(undefined, { cacheMode: "refresh" })).tools.map((tool) => tool.name);
const told = {};

told.names = await names();
told.added = await call("tools_add", { a: 1, b: 2 });
told.lap = (await call("tools_lap")).structuredContent;
told.failed = await call("tools_fail");
told.wrong = await call("tools_add", { a: "x" });
told.unknown = await caught(call("tools_ad"));
told.resources = (await client.listResources()).resources.map((each) => each.uri);
told.read = (await client.readResource({ uri: "notes://7" })).contents[0].text;
told.prompt = (await client.getPrompt({ name: "notes_review", arguments: { code: "x" } })).messages.map((each) => each.content.text);
const completed = { ref: { type: "ref/prompt", name: "notes_review" }, argument: { name: "language", value: "py" } };
told.completed = (await client.complete(completed)).completion.values;
told.progress = [];
const heard = join(project, "heard");
const onprogress = (step) => {
  told.progress.push([step.progress, step.total, step.message]);
  appendFileSync(heard, "x");
};
await call("tools_count", { heard }, { onprogress });
told.asked = await caught(call("tools_confirm"));

const giveUp = new AbortController();
const waiting = caught(call("tools_wait", { mark: which }, { signal: giveUp.signal }));
await there(`${which}.begun`);
giveUp.abort();
told.cancelled = "result" in (await waiting) ? "answered" : "given up";
await there(`${which}.cancelled`);

if (which === "v2-auto") await client.listen({ toolsListChanged: true });
writeFileSync(
  join(project, "skills", "later.py"),
  'from prowess import skill_command\n\n\n@skill_command\ndef hello() -> str:\n    return "hello"\n',
);
await change;
told.later = await names();
await client.close();
console.log(JSON.stringify(told));
process.exit(0);
