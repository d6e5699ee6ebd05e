"use strict";
// The page of `prowess dev`. Everything shown is set as text, never as HTML: results come from anywhere.

const find = (selector, within = document) => within.querySelector(selector);
const state = { commands: [], calls: new Map(), command: null, call: null, running: null, raw: false, items: new Map(),
  page: crypto.getRandomValues(new Uint32Array(4)).join("-"), question: null };

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in element && typeof value !== "string") element[name] = value;
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// A screen reader reads each line that is added. A text that replaced the one before could hide it.
function announce(text) {
  find("#news").append(make("p", {}, text));
  while (find("#news").children.length > 10) find("#news").firstChild.remove();
}

// More than this, a browser would draw for many seconds, and again whenever anything on the page changes.
const MOST_CHARACTERS = 200000;

const shown = (value) => JSON.stringify(value, null, 2);

// Numbers that JavaScript would change, such as ids of 64 bits, keep their digits where the browser is new enough.
const isChanged = (value) => typeof value === "number" && !Number.isSafeInteger(value) && (Number.isInteger(value) || !Number.isFinite(value));
const parsed = (text) => JSON.parse(text, (_name, value, context) => (isChanged(value) && context && JSON.rawJSON ? JSON.rawJSON(context.source) : value));
const isRaw = (value) => Boolean(JSON.isRawJSON && JSON.isRawJSON(value));

// Arguments may have any name, also those that every object of JavaScript has, such as `constructor`.
const named = (values = {}) => Object.assign(Object.create(null), values);

function took(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  return seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

async function ask(path, options = {}) {
  const answer = await fetch(path, options);
  const data = (answer.headers.get("content-type") || "").includes("json") ? parsed(await answer.text()) : { error: await answer.text() };
  if (!answer.ok) throw new Error(data.error || answer.statusText);
  return data;
}

// Commands and failures

function showState(overview) {
  find("#project").textContent = overview.project;
  document.title = `${overview.project} · prowess dev`;
  state.commands = overview.commands;
  find("#not-recording").hidden = overview.recording;
  const failures = find("#failures");
  const texts = overview.failures.map((failure) => {
    const place = failure.file ? `${failure.file}${failure.line ? `:${failure.line}` : ""}` : failure.source;
    return make("li", {}, make("code", {}, place), " ", failure.reason);
  });
  if (!failures.hidden || texts.length) {
    const before = find("ul", failures).textContent;
    find("ul", failures).replaceChildren(...texts);
    if (find("ul", failures).textContent !== before) {
      announce(texts.length ? `Could not be loaded: ${find("ul", failures).textContent}` : "Everything loads again");
    }
  }
  failures.hidden = !texts.length;
  find("#no-commands").hidden = Boolean(overview.commands.length) || !overview.known;
  listCommands();
  if (state.command) {
    const fresh = overview.commands.find((each) => each.id === state.command.id);
    if (fresh && shown(fresh) !== shown(state.command)) openCommand(fresh, readForm().values, { keepFocus: true });
  }
}

function listCommands() {
  const text = find("#search").value.trim().toLowerCase();
  const fits = (each) => `${each.id} ${each.summary}`.toLowerCase().includes(text);
  find("#commands").replaceChildren(...state.commands.filter(fits).map((each) => {
    const button = make("button", { type: "button" },
      make("span", { class: "name" }, each.id), make("span", { class: "small" }, each.summary || ""));
    if (state.command && state.command.id === each.id) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => openCommand(each));
    return make("li", {}, button);
  }));
}

function openSection(name) {
  for (const each of ["welcome", "command", "story"]) find(`#${each}`).hidden = each !== name;
}

const HINTS = {
  readOnlyHint: ["read-only", "not read-only"], destructiveHint: ["destructive", "harmless"],
  idempotentHint: ["idempotent", "not idempotent"], openWorldHint: ["open-world", "closed-world"],
};

function openCommand(command, values = named(), { keepFocus = false, note = "" } = {}) {
  state.command = command;
  state.call = null;
  openSection("command");
  find("#command-title").textContent = command.title ? `${command.title} (${command.id})` : command.id;
  const hints = Object.entries(command.hints).map(([name, value]) => (HINTS[name] || [name, `not ${name}`])[value ? 0 : 1]);
  find("#command-facts").replaceChildren(...[...hints, command.source].filter(Boolean).map((text) => make("span", {}, text)));
  find("#command-description").textContent = command.description;
  find("#form-error").textContent = "";
  find("#form-note").textContent = note;
  find("#form-note").hidden = !note;
  if (!keepFocus) find("#command-result").hidden = true;
  buildForm(command.schema, values);
  listCommands();
  listCalls();
  if (!keepFocus) find("#command-title").focus();
}

// Forms from schemas

function resolved(schema, root, depth = 0) {
  if (!schema || typeof schema !== "object" || depth > 8) return {};
  if (schema.$ref) {
    const target = schema.$ref.replace(/^#\//, "").split("/").filter(Boolean)
      .reduce((found, part) => (found || {})[part.replace(/~1/g, "/").replace(/~0/g, "~")], root);
    const { $ref, ...beside } = schema;
    return { ...resolved(target, root, depth + 1), ...beside };
  }
  const union = schema.anyOf || schema.oneOf;
  if (union) {
    const others = union.map((each) => resolved(each, root, depth + 1)).filter((each) => each.type !== "null");
    if (others.length === 1) {
      const { anyOf, oneOf, ...beside } = schema;
      return { ...others[0], ...beside };
    }
    return { ...schema, type: undefined };
  }
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((each) => each !== "null");
    return { ...schema, type: types.length === 1 ? types[0] : undefined };
  }
  if ("const" in schema) return { ...schema, enum: [schema.const] };
  return schema;
}

function buildForm(root, values) {
  const fields = find("#fields");
  const properties = Object.entries(root.properties || {});
  const open = root.additionalProperties !== false || !properties.length;
  const known = new Set(properties.map(([name]) => name));
  const foreign = Object.keys(values).some((name) => !known.has(name));
  state.raw = (open && properties.length === 0 && root.additionalProperties !== false) || foreign;
  state.raw = state.raw || state.wantsRaw === true;
  find("#as-json").setAttribute("aria-pressed", String(state.raw));
  if (state.raw) {
    fields.replaceChildren(make("div", { class: "field" },
      make("label", { for: "raw" }, "Arguments ", make("span", { class: "type" }, "JSON object")),
      make("textarea", { id: "raw", rows: "8", spellcheck: "false" })));
    find("#raw").value = shown(values);
    return;
  }
  const required = new Set(root.required || []);
  fields.replaceChildren(...properties.map(([name, schema], index) => field(name, schema, root, required.has(name), values[name], index)));
  if (!properties.length) fields.replaceChildren(make("p", { class: "hint" }, "This command has no parameters."));
}

function field(name, written, root, required, value, index, { prefix = "field", label = name } = {}) {
  const schema = resolved(written, root);
  const id = `${prefix}-${index}`;
  const kind = schema.enum ? "choice" : schema.type || "any value";
  const hints = [schema.description, "default" in schema && schema.default !== null ? `Default: ${JSON.stringify(schema.default)}` : ""];
  let input;
  if (schema.enum || schema.type === "boolean") {
    const choices = schema.enum || [true, false];
    input = make("select", { id }, required ? null : make("option", { value: "" }, "(not given)"),
      ...choices.map((each) => make("option", { value: JSON.stringify(each) }, typeof each === "string" ? each : JSON.stringify(each))));
    if (value !== undefined) input.value = JSON.stringify(value);
  } else if (schema.type === "string" && schema.format === "password") {
    input = make("input", { id, type: "password", autocomplete: "off" });
    input.value = value ?? "";
  } else if (schema.type === "string" || schema.type === "number" || schema.type === "integer") {
    const long = schema.type === "string" && (typeof value === "string" && (value.includes("\n") || value.length > 80));
    input = long ? make("textarea", { id, rows: "4" })
      : make("input", { id, type: "text", inputmode: schema.type === "string" ? "text" : "decimal", autocomplete: "off", spellcheck: "false" });
    input.value = value === undefined || value === null ? "" : typeof value === "string" ? value : shown(value);
  } else {
    input = make("textarea", { id, rows: "3", spellcheck: "false", placeholder: schema.type === "array" ? "[…] as JSON" : "JSON" });
    input.value = value === undefined ? "" : shown(value);
  }
  input.dataset.name = name;
  input.dataset.kind = schema.enum || schema.type === "boolean" ? "json" : schema.type || "any";
  if (required) input.setAttribute("aria-required", "true");
  const described = hints.filter(Boolean).join(" ");
  if (described) input.setAttribute("aria-describedby", `${id}-hint`);
  return make("div", { class: "field" },
    make("label", { for: id }, label, " ", make("span", { class: "type" }, `${kind}${required ? ", required" : ""}`)), input,
    described ? make("p", { class: "hint", id: `${id}-hint` }, described) : null);
}

function readForm() {
  if (state.raw) {
    const raw = find("#raw");
    try {
      const value = parsed(raw.value || "{}");
      if (!isRecord(value)) throw new Error("they must be an object, like {\"key\": 1}");
      return { values: named(value), problems: [] };
    } catch (error) {
      return { values: {}, problems: [{ input: raw, text: `The arguments are not valid: ${error.message}` }] };
    }
  }
  return readFields(find("#fields"));
}

function readFields(place) {
  const values = named();
  const problems = [];
  for (const input of place.querySelectorAll("[data-name]")) {
    const { name, kind } = input.dataset;
    const text = input.value;
    const required = input.getAttribute("aria-required") === "true";
    if (text === "") {  // an empty text can be sent as JSON
      if (required) problems.push({ input, text: `${name} is required` });
      continue;
    }
    if (kind === "string") { values[name] = text; continue; }
    try {
      values[name] = parsed(text);
    } catch {
      if (kind === "any") values[name] = text;
      else problems.push({ input, text: `${name} must be ${kind === "integer" || kind === "number" ? "a number" : "JSON"}` });
    }
  }
  return { values, problems };
}

function showProblems(form, problems) {
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  find(".error", form).textContent = problems.map((each) => each.text).join("\n");
  for (const { input } of problems) input.setAttribute("aria-invalid", "true");
  if (problems.length) problems[0].input.focus();
  return problems.length > 0;
}

async function callCommand(event) {
  event.preventDefault();
  const { values, problems } = readForm();
  if (showProblems(find("#form"), problems)) return;
  const command = state.command;
  const running = state.running = new AbortController();
  setRunning(true);
  announce(`${command.id} runs`);
  try {
    const outcome = await ask("api/call", {
      method: "POST", signal: running.signal, headers: { "content-type": "application/json" },
      body: JSON.stringify({ command: command.id, arguments: values, page: state.page }),
    });
    if (state.command !== command) return;
    showResult(find("#command-result .result"), outcome.result);
    find("#command-result-title").replaceChildren("Result ", kindOf(outcome.kind), ` ${took(outcome.duration)}`);
    find("#command-result").hidden = false;
    announce(`${command.id}: ${outcome.kind}`);
  } catch (error) {
    find("#form-error").textContent = running.signal.aborted ? "Cancelled." : String(error.message);
  } finally {
    if (state.running === running) {
      state.running = null;
      setRunning(false);
      closeQuestion();
    }
  }
}

// Questions: a command that runs for this page asks the person

function openQuestion(request) {
  if (request.page !== state.page || !state.running) return;
  state.question = { ...request, left: Object.keys(request.questions), answers: {} };
  nextQuestion();
}

function nextQuestion() {
  const { command, questions, left } = state.question;
  const { message, url, schema = {} } = questions[left[0]];
  const required = new Set(schema.required || []);
  const properties = Object.entries(schema.properties || {});
  find("#question-command").textContent = `${command} asks`;
  find("#question-title").textContent = message;
  find("#question-error").textContent = "";
  find("#question-fields").replaceChildren(...properties.map(([name, written], index) =>
    field(name, written, schema, required.has(name), written.default ?? undefined, index,
      { prefix: "answer", label: written.title || (properties.length === 1 && name === "value" ? "Your answer" : name) })));
  if (url) {  // a link only where it leads to a web page: other schemes could run code here
    find("#question-fields").append(make("p", {}, /^https?:/i.test(url) ? make("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, url) : make("code", {}, url)));
  }
  find("#question .primary").textContent = url ? "Agree" : "Answer";
  find("#question").hidden = false;
  announce(`${command} asks: ${message}`);
  find("#question-title").focus();
}

function closeQuestion() {
  if (!state.question) return;
  const held = find("#question").contains(document.activeElement);
  state.question = null;
  find("#question").hidden = true;
  find("#question-fields").replaceChildren();
  if (held) find(state.command ? "#command-title" : "#main").focus();
}

async function answerQuestion(action) {
  const question = state.question;
  const form = find("#question");
  const { values, problems } = action === "accept" ? readFields(find("#question-fields")) : { values: {}, problems: [] };
  if (showProblems(form, problems)) return;
  const [key, ...left] = question.left;
  const answers = { ...question.answers, [key]: action === "accept" ? { action, content: values } : { action } };
  if (left.length) {
    state.question = { ...question, left, answers };
    nextQuestion();
    return;
  }
  for (const button of form.querySelectorAll("button")) button.disabled = true;
  try {
    const { problems: misfits } = await ask("api/answer", {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ id: question.id, answers }),
    });
    if (state.question !== question) return;
    const wrong = Object.keys(misfits).find((each) => misfits[each].length);
    if (!wrong) { closeQuestion(); return; }
    const order = Object.keys(question.questions);  // ask this one again, and those after it
    state.question = { ...question, left: order.slice(order.indexOf(wrong)) };
    if (wrong !== key) nextQuestion();
    find("#question-error").textContent = misfits[wrong].join("\n");
  } catch (error) {
    find("#question-error").textContent = String(error.message);
  } finally {
    for (const button of form.querySelectorAll("button")) button.disabled = false;
  }
}

function setRunning(is) {
  find("#form .primary").disabled = is;
  find("#form .primary").textContent = is ? "Running…" : "Call";
  find("#cancel").hidden = !is;
}

// Results: as a person reads them, and as the model is sent them

function showResult(place, payload, shortened = false) {
  if (!payload) {
    place.replaceChildren(make("p", { class: "hint" }, "The record has no result."));
    return;
  }
  const person = make("div", {});
  const model = make("div", { hidden: true }, textView(shown(payload)));
  personView(person, payload);
  const buttons = ["As a person reads it", "As the model sees it"].map((text, index) => {
    const button = make("button", { type: "button", "aria-pressed": String(index === 0) }, text);
    button.addEventListener("click", () => {
      person.hidden = index === 1;
      model.hidden = index === 0;
      buttons.forEach((each, at) => each.setAttribute("aria-pressed", String(at === index)));
    });
    return button;
  });
  const note = shortened ? make("p", { class: "hint" }, "The record keeps only the beginning of this result.") : null;
  place.replaceChildren(...[make("div", { class: "tabs", role: "group", "aria-label": "How the result is shown" }, ...buttons), person, model, note].filter(Boolean));
}

function textView(text, attributes = {}) {
  const pre = make("pre", { tabindex: "0", ...attributes }, text.slice(0, MOST_CHARACTERS));
  const [most, all] = [MOST_CHARACTERS, text.length].map((each) => each.toLocaleString("en"));
  return text.length > MOST_CHARACTERS ? make("div", {}, pre, partNote(`The first ${most} of ${all} characters. `, text)) : pre;
}

function partNote(note, whole) {
  const button = make("button", { type: "button" }, "Save all of it");
  button.addEventListener("click", () => {
    const href = URL.createObjectURL(new Blob([whole]));
    make("a", { href, download: "result.txt" }).click();
    URL.revokeObjectURL(href);
  });
  return make("p", { class: "hint tabs" }, note, button);
}

function unboxed(structured) {
  const names = structured && typeof structured === "object" && !Array.isArray(structured) ? Object.keys(structured) : [];
  return names.length === 1 && names[0] === "result" ? structured.result : structured;
}

function same(text, data) {
  try { return JSON.stringify(parsed(text)) === JSON.stringify(data); } catch { return text === data; }
}

function personView(place, payload) {
  const structured = payload.structuredContent;
  const data = unboxed(structured);
  for (const block of payload.content || []) {
    if (block.type === "text") {
      if (structured !== undefined && (same(block.text, structured) || same(block.text, data))) continue;
      place.append(textView(block.text, payload.isError ? { class: "error" } : {}));
    } else if (block.type === "image") {
      place.append(make("img", { src: `data:${block.mimeType};base64,${block.data}`, alt: `image of the result, ${block.mimeType}` }));
    } else if (block.type === "audio") {
      place.append(make("audio", { controls: true, src: `data:${block.mimeType};base64,${block.data}` }));
    } else {
      place.append(textView(shown(block)));
    }
  }
  if (structured !== undefined) place.append(dataView(data));
  if (!place.childNodes.length) place.append(make("p", { class: "hint" }, "The result is empty."));
}

const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && !isRaw(value);
const cell = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function dataView(data) {
  if (Array.isArray(data) && data.length && data.every(isRecord)) {
    const columns = [...new Set(data.flatMap(Object.keys))];
    return tableView(data, columns, data, (row) => columns.map((name) => (Object.hasOwn(row, name) ? cell(row[name]) : "")));
  }
  if (isRecord(data) && Object.keys(data).length) return tableView(data, ["name", "value"], Object.entries(data), ([name, value]) => [name, cell(value)]);
  return textView(typeof data === "string" ? data : shown(data));
}

function tableView(data, columns, rows, textsOf) {
  let room = MOST_CHARACTERS;
  let cut = false;
  const first = [];
  for (const row of rows) {
    if (room <= 0) break;
    first.push(make("tr", {}, ...textsOf(row).map((text) => {
      const part = text.slice(0, Math.max(room, 0));
      room -= part.length + 10;  // a cell takes time, too
      cut = cut || part.length < text.length;
      return make("td", {}, part);
    })));
  }
  const table = make("table", {},
    make("thead", {}, make("tr", {}, ...columns.map((name) => make("th", { scope: "col" }, name)))), make("tbody", {}, ...first));
  const region = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Result as a table" }, table);
  const [most, all] = [first.length, rows.length].map((each) => each.toLocaleString("en"));
  const note = first.length < rows.length ? `The first ${most} of ${all} rows. ` : "Only the first part of the texts. ";
  return cut || first.length < rows.length ? make("div", {}, region, partNote(note, shown(data))) : region;
}

// Calls

function kindOf(kind) {
  return make("span", { class: `kind ${kind}` }, kind.replace("_", " "));
}

function addCall(call, quiet = false) {
  const before = state.calls.get(call.id);
  state.calls.delete(call.id);
  state.calls.set(call.id, call);
  while (state.calls.size > 200) state.calls.delete(state.calls.keys().next().value);
  if (!quiet) {
    listCalls();
    if (call.kind !== "running" && (!before || before.kind === "running")) announce(`${call.command} from ${call.client || "a client"}: ${call.kind}`);
    if (state.call === call.id) openStory(call.id, { keepFocus: true });
  }
}

function listCalls() {
  const calls = [...state.calls.values()].sort((one, other) => other.began - one.began);
  find("#no-calls").hidden = calls.length > 0;
  const list = find("#calls");
  const kept = new Set(calls.map((call) => call.id));
  for (const [id, item] of state.items) if (!kept.has(id)) { item.remove(); state.items.delete(id); }
  calls.forEach((call, index) => {
    let item = state.items.get(call.id);
    if (!item) {  // a button stays the same as long as its call is shown: somebody may be about to press it
      const button = make("button", { type: "button", "data-call": call.id });
      button.addEventListener("click", () => openStory(call.id));
      item = make("li", {}, button);
      state.items.set(call.id, item);
    }
    fillCall(find("button", item), call);
    if (list.children[index] !== item) list.insertBefore(item, list.children[index] || null);
  });
}

function fillCall(button, call) {
  const when = new Date(call.began * 1000).toLocaleTimeString();
  const facts = [when, call.client, took(call.duration)].filter(Boolean).join(" · ");
  const said = call.kind === "running" && call.progress ? call.progress : call.arguments === "{}" ? "" : call.arguments;
  const content = JSON.stringify([call.command, call.kind, facts, said]);
  if (state.call === call.id) button.setAttribute("aria-current", "true");
  else button.removeAttribute("aria-current");
  if (button.dataset.content === content) return;
  button.dataset.content = content;
  button.replaceChildren(
    make("span", { class: "row" }, make("span", { class: "name" }, call.command || "unknown"), kindOf(call.kind)),
    make("span", { class: "small" }, facts), make("span", { class: "small" }, said));
}

async function openStory(id, { keepFocus = false } = {}) {
  let call;
  try {
    call = await ask(`api/calls/${encodeURIComponent(id)}`);
  } catch (error) {
    announce(error.message);
    return;
  }
  if (keepFocus && state.call !== id) return;
  state.call = id;
  state.command = null;
  openSection("story");
  find("#story-title").replaceChildren(`${call.command || "unknown"} `, kindOf(call.kind));
  const facts = [call.client, new Date(call.began * 1000).toLocaleString(), took(call.duration), call.attempts > 1 ? `${call.attempts} attempts` : "",
    call.cached ? "from the cache" : "", call.worker ? `worker ${call.worker}` : "", `id ${call.id}`];
  find("#story-facts").replaceChildren(...facts.filter(Boolean).map((text) => make("span", {}, text)));
  const withheld = call.withheld.length ? make("p", { class: "hint" }, call.withheld[0] === "*" ? "The record has no arguments." : `Not recorded: ${call.withheld.join(", ")}`) : null;
  find("#story-arguments").replaceChildren(...[call.arguments && !Object.keys(call.arguments).length ? make("p", { class: "hint" }, "None.") : call.arguments ? textView(shown(call.arguments)) : null, withheld].filter(Boolean));
  find("#story-events").hidden = !call.events.length;
  find("#story-events tbody").replaceChildren(...call.events.map((event) =>
    make("tr", {}, make("td", {}, `${event.at.toFixed(3)} s`), make("td", {}, event.kind), make("td", {}, eventText(event)))));
  if (call.kind === "running") find("#story-result").replaceChildren(make("p", { class: "hint" }, "Still running."));
  else showResult(find("#story-result"), call.result, call.shortened);
  find("#again").onclick = () => again(call);
  find("#again").hidden = !state.commands.some((each) => each.id === call.command);
  listCommands();
  listCalls();
  if (!keepFocus) find("#story-title").focus();
}

function eventText({ kind, data }) {
  if (kind === "progress") return `${cell(data[0])}${data[1] === null ? "" : `/${cell(data[1])}`}${data[2] ? ` ${data[2]}` : ""}`;
  if (kind === "log") return `${data[0]}: ${typeof data[1] === "string" ? data[1] : JSON.stringify(data[1])}`;
  if (kind === "asked") return Object.values(data).join("; ");
  if (kind === "dropped") return `${data} more were dropped`;
  return cell(data);
}

function again(call) {
  const command = state.commands.find((each) => each.id === call.command);
  const values = named(call.arguments || {});
  const lacking = new Set(call.withheld.map((path) => path.split(/[.[]/)[0]));
  for (const name of lacking) delete values[name];
  const note = !lacking.size ? "" : lacking.has("*") ? "The record has no arguments of this call. Type them again." : `The record leaves out ${[...lacking].join(", ")}. Type these values again.`;
  openCommand(command, values, { note });
}

// The beginning

function follow() {
  const source = new EventSource("api/events");
  const connection = find("#connection");
  source.addEventListener("state", (event) => {
    connection.textContent = "live";
    connection.classList.add("live");
    showState(parsed(event.data));
  });
  source.addEventListener("asked", (event) => openQuestion(parsed(event.data)));
  source.addEventListener("call", (event) => addCall(parsed(event.data)));
  source.addEventListener("error", () => {
    connection.textContent = "not connected: is prowess dev still running? After a restart, open its new address";
    connection.classList.remove("live");
  });
}

find("#search").addEventListener("input", listCommands);
find("#form").addEventListener("submit", callCommand);
find("#question").addEventListener("submit", (event) => { event.preventDefault(); answerQuestion("accept"); });
find("#question").addEventListener("keydown", (event) => { if (event.key === "Escape") answerQuestion("cancel"); });
find("#decline").addEventListener("click", () => answerQuestion("decline"));
find("#dismiss").addEventListener("click", () => answerQuestion("cancel"));
find("#cancel").addEventListener("click", () => state.running && state.running.abort());
find("#as-json").addEventListener("click", () => {
  const { values, problems } = readForm();
  if (showProblems(find("#form"), problems.filter(({ input }) => input.value !== ""))) return;  // these would be lost
  state.wantsRaw = !state.raw;
  buildForm(state.command.schema, values);
  state.wantsRaw = undefined;
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/INPUT|TEXTAREA|SELECT/.test(event.target.tagName)) { event.preventDefault(); find("#search").focus(); }
});
ask("api/calls").then((calls) => { calls.forEach((call) => addCall(call, true)); listCalls(); }).catch((error) => announce(error.message)).finally(follow);
