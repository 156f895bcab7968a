// Main script of the page. The state of the page is in the URL fragment. So a link to it can be shared, and the back
// button works.

import * as api from "./api.js";
import { $, counted, el, threadOf } from "./dom.js";
import * as facets from "./facets.js";
import { listed, reply, show as hit } from "./hits.js";
import * as report from "./report.js";
import * as stats from "./stats.js";
import * as thread from "./thread.js";
import * as topics from "./topics.js";

const PAGE = 10;
// Number of turns before a turn that are part of the conversation when replies to this turn are suggested.
const BEFORE = 4;
let running = null;
let shown = [];
let indexes = [];

// `current` returns the selected index. `can` returns whether the engine of the selected index has a capability.
const current = (name) => indexes.find((index) => index.name === name) || indexes[0];
const can = (what, { index }) => current(index)?.can[what] ?? true;

// --- state and URL

function read() {
  const q = new URLSearchParams(location.hash.slice(1));
  return {
    query: q.get("q") || "", said: q.getAll("said"), like: q.get("like"), of: q.get("of") || "utterances",
    mode: q.get("mode") || "", filter: q.get("filter") || "", role: q.get("role") || "", group: q.has("group"), explain: q.has("explain"),
    // If the URL names no index and there are several indexes, use the selected index.
    index: q.get("index") || ($("index").options.length > 1 ? $("index").value : ""), view: q.get("view") || "", k: q.get("k"), open: q.get("open"), turn: Number(q.get("turn")) || null,
  };
}

function write(asked) {
  const q = new URLSearchParams();
  if (asked.query) q.set("q", asked.query);
  for (const turn of asked.said) q.append("said", turn);
  if (asked.like) q.set("like", asked.like);
  if (asked.of !== "utterances") q.set("of", asked.of);
  if (asked.mode) q.set("mode", asked.mode);
  if (asked.filter) q.set("filter", asked.filter);
  if (asked.role) q.set("role", asked.role);
  if (asked.group) q.set("group", "");
  if (asked.explain) q.set("explain", "");
  if (asked.index) q.set("index", asked.index);
  if (asked.view) q.set("view", asked.view);
  if (asked.k && asked.view === "topics") q.set("k", asked.k);
  if (asked.open) q.set("open", asked.open);
  if (asked.turn) q.set("turn", asked.turn);
  const hash = `#${q}`;
  if (hash === location.hash) show();
  else location.hash = hash;
}

function fromForm() {
  return {
    ...read(), view: "", like: null, open: null, turn: null, query: $("query").value.trim(),
    said: [...document.querySelectorAll("#said input")].map((input) => input.value.trim()).filter(Boolean),
    of: $("of").value, mode: $("mode").value, filter: $("filter").value.trim(), role: $("role").value, group: $("group").checked,
    explain: $("explain").checked, index: $("index").value,
  };
}

function toForm(asked) {
  $("query").value = asked.like ? "" : asked.query;
  $("said").replaceChildren(...asked.said.map(said));
  for (const name of ["of", "mode", "filter"]) $(name).value = asked[name];
  $("group").checked = asked.group;
  $("explain").checked = asked.explain;
  roles([asked.role]);
  $("role").value = asked.role;
  suit();
  if (asked.index) $("index").value = asked.index;
}

// Adds the roles that are not in the list of roles yet.
function roles(names) {
  const known = [...$("role").options].map(({ value }) => value);
  $("role").append(...["", ...names].filter((name, n, all) => !known.includes(name) && all.indexOf(name) === n).map((name) => el("option", { value: name }, name || "anyone")));
}

// Adapts the form to what is searched. Replies are neither grouped nor explained, but they can be restricted to a role.
function suit() {
  const replies = $("of").value === "replies";
  $("role").closest("label").hidden = !replies || $("role").options.length < 3;
  $("way").textContent = replies ? "found by" : "by";
  for (const name of ["group", "explain"]) $(name).closest("label").hidden = replies;
  $("query").placeholder = replies ? "The last turn of a conversation" : "A sentence with a similar meaning, or keywords";
}

function said(text = "") {
  const input = el("input", { type: "text", value: text, "aria-label": "Turn before the query", placeholder: "Previous turn" });
  const line = el("li", {}, input, el("button", { type: "button", class: "plain", "aria-label": "Remove this turn", onclick: () => line.remove() }, "✕"));
  return line;
}

function request(asked, offset) {
  const wanted = { k: PAGE, offset, explain: asked.explain };
  if (asked.like) wanted.like = asked.like;
  else Object.assign(wanted, { query: asked.query, context: asked.said, of: asked.of });
  if (asked.mode) wanted.mode = asked.mode;
  if (asked.filter) wanted.filter = asked.filter;
  if (asked.group) wanted.group = "dialogue";
  return wanted;
}

// --- showing

const on = {
  open: (found) => write({ ...read(), open: found.dialogue, turn: found.turn.number }),
  dialogue: (id) => write({ ...read(), open: id, turn: null }),
  like: (id) => write({ ...read(), view: "", like: id, query: "", said: [], open: null, turn: null }),
  reply: (turns) => {
    const texts = turns.map(({ text }) => text).slice(-1 - BEFORE);
    write({ ...read(), view: "", like: null, of: "replies", query: texts.at(-1), said: texts.slice(0, -1) });
  },
  domain: (domain) => on.only(facets.condition("domain", domain), false),
  thread: (name) => on.only(facets.condition("thread", name), false),
  // Adds a condition to the filter. If `out` is true, removes the condition instead.
  only: (condition, out) => {
    const asked = { ...fromForm(), like: read().like, view: read().view };
    const parts = asked.filter ? asked.filter.split(" and ") : [];
    const plain = parts.every((part) => !/[()]|\bor\b|\bnot\b/.test(part));
    if (out) asked.filter = parts.filter((part) => part !== condition).join(" and ");
    else if (!parts.includes(condition)) asked.filter = [plain ? asked.filter : `(${asked.filter})`, condition].filter(Boolean).join(" and ");
    write(asked);
  },
  view: (view) => write({ ...read(), view, open: null, turn: null }),
  topics: (k) => write({ ...read(), view: "topics", k }),
  close: () => write({ ...read(), open: null, turn: null }),
};

function showError(e) {
  const wrong = $("filter-wrong");
  wrong.hidden = false;
  // Remove the position in the request from the message, because the user does not see the request.
  wrong.textContent = [e.message.replace(/ at line \d+ column \d+$/, ""), e.hint].filter(Boolean).join(" — ");
  $("state").textContent = "";
}

let answered = "";
let counted_for = null;

// Updates the facets. Their counts depend only on the filter and the index, not on the query.
async function count(asked) {
  if (!can("surveys", asked)) {
    counted_for = null;
    return facets.none();
  }
  const wanted = JSON.stringify([asked.filter, asked.index]);
  if (wanted === counted_for) return;
  counted_for = wanted;
  try {
    const counts = await api.facets(asked.filter, asked.index);
    if (wanted !== counted_for) return;
    facets.show(counts, asked.filter, on);
    roles((counts.facets.find(({ field }) => field === "role")?.values || []).map(({ value }) => value));
    suit();
  } catch (e) {
    counted_for = null;
    if (!(asked.query || asked.like)) showError(e);
  }
}

// Aborts the previous request, because its response must not overwrite the new one.
function startRequest(state) {
  running?.abort();
  running = new AbortController();
  $("filter-wrong").hidden = true;
  $("more").hidden = true;
  $("state").textContent = state;
  return running.signal;
}

async function find(asked, offset) {
  const signal = startRequest("Searching…");
  try {
    const found = await api.search(request(asked, offset), asked.index, signal);
    if (offset === 0) $("hits").replaceChildren();
    shown = offset === 0 ? found.hits : shown.concat(found.hits);
    $("hits").append(...found.hits.map((h, n) => hit(h, offset + n + 1, on)));
    const way = { hybrid: "by meaning and keywords", dense: "by meaning", bm25: "by keywords" }[found.mode];
    const about = asked.like ? `similar to ${asked.like}` : "";
    const { speakers = [], dates = [] } = found.effective || {};
    const named = [speakers.length && `speaker: ${speakers.join(", ")}`, dates.length && `date: ${dates.join(", ")}`, found.absent?.length && `in no turn or title: ${found.absent.join(", ")}`];
    const nothing = found.candidates.admitted === 0 ? "No dialogue matches the filter." : "No hits.";
    $("state").textContent = shown.length === 0 ? nothing
      : [`${counted(shown.length, "hit")} ${way} in ${found.milliseconds.toFixed(1)} ms`, about, ...named, ...(found.warnings || [])].filter(Boolean).join(" · ");
    $("more").hidden = found.hits.length < PAGE;
    return true;
  } catch (e) {
    if (e.name === "AbortError") return false;
    if (offset === 0) { $("hits").replaceChildren(); shown = []; }
    showError(e);
    return false;
  }
}

// Suggests replies to the query, which is the last turn of a conversation.
async function suggest(asked) {
  const signal = startRequest("Finding replies…");
  try {
    const wanted = { context: [...asked.said, asked.query], k: PAGE };
    if (asked.mode) wanted.mode = asked.mode;
    if (asked.filter) wanted.filter = asked.filter;
    if (asked.role) wanted.role = asked.role;
    const { replies, milliseconds, warnings = [] } = await api.respond(wanted, asked.index, signal);
    $("hits").replaceChildren(...replies.map((found, n) => reply(found, n + 1, on)));
    shown = replies.map(({ said }) => ({ id: `${said.dialogue}#${said.turn.number}`, dialogue: said.dialogue, turn: said.turn }));
    const count = replies.length === 0 ? "No replies." : `${replies.length} ${replies.length === 1 ? "reply" : "replies"} in ${milliseconds.toFixed(1)} ms`;
    $("state").textContent = [count, ...warnings].join(" · ");
    return true;
  } catch (e) {
    if (e.name === "AbortError") return false;
    $("hits").replaceChildren();
    shown = [];
    showError(e);
    return false;
  }
}

// Shows topics or statistics of all dialogues that match the filter.
async function survey(asked) {
  if (!can("surveys", asked)) {
    startRequest("Topics and statistics need a local index, but these dialogues are in a remote engine.");
    $("survey").replaceChildren();
    return true;
  }
  const signal = startRequest(asked.view === "topics" ? "Finding topics…" : "Counting…");
  $("survey").replaceChildren();
  try {
    const view = asked.view === "topics" ? topics : stats;
    const found = await api[asked.view](asked, signal);
    $("state").textContent = found.dialogues === 0 ? "No dialogue matches the filter." : "";
    if (found.dialogues > 0) view.show(found, on, asked);
    return true;
  } catch (e) {
    if (e.name !== "AbortError") showError(e);
    return false;
  }
}

// Shows the benchmark report.
async function benchmarks() {
  const signal = startRequest("");
  $("survey").replaceChildren();
  try {
    report.show(await api.benchmarks(signal));
    return true;
  } catch (e) {
    if (e.name === "AbortError") return false;
    // A missing report is not an error.
    if (e.status === 404) $("state").textContent = `${e.message}: ${e.hint}`;
    else showError(e);
    return false;
  }
}

// Lists the dialogues that match the filter. Used if there is no query.
async function browse(asked, after) {
  const signal = startRequest("");
  try {
    const { dialogues, next } = await api.list(asked, after, PAGE, signal);
    if (!after) { $("hits").replaceChildren(); shown = []; }
    $("hits").append(...dialogues.map((d, n) => listed(d, shown.length + n + 1, on)));
    shown = shown.concat(dialogues.map((d) => ({ id: d.id, dialogue: d.id, turn: d.turns[0] })));
    $("state").textContent = shown.length === 0 ? "No dialogue matches the filter." : `All dialogues${can("in_order", asked) ? ", in the order of ingest" : ""}. Enter a query to search.`;
    $("more").hidden = !next;
    return true;
  } catch (e) {
    if (e.name !== "AbortError") showError(e);
    return false;
  }
}

// Runs a request only if it differs from the previous one or the previous one failed.
async function once(asked, answer) {
  const what = JSON.stringify(asked);
  if (what === answered) return;
  answered = what;
  if (!(await answer()) && answered === what) answered = "";
}

// Answers a query, or lists dialogues if there is none.
function answer(asked) {
  if (asked.like) return find(asked, 0);
  if (!asked.query) return browse(asked);
  return asked.of === "replies" ? suggest(asked) : find(asked, 0);
}

async function show() {
  const asked = read();
  if (!["", "topics", "stats", "benchmarks"].includes(asked.view)) asked.view = "";
  toForm(asked);
  count(asked);
  $("clear").hidden = !asked.filter;
  document.body.classList.toggle("surveying", Boolean(asked.view));
  for (const button of document.querySelectorAll("#views button")) {
    if (["topics", "stats"].includes(button.dataset.view)) button.hidden = !can("surveys", asked);
    if (button.dataset.view === asked.view) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  // Filters do not apply to benchmarks.
  $("facets").hidden = asked.view === "benchmarks";
  $("survey").hidden = !asked.view;
  $("hits").hidden = Boolean(asked.view);
  const surveyed = [asked.view, asked.k, asked.filter, asked.index];
  const wanted = { ...asked, open: null, turn: null };
  if (asked.view === "benchmarks") await once(asked.view, benchmarks);
  else if (asked.view) await once(surveyed, () => survey(asked));
  else await once(wanted, () => answer(asked));
  if (!asked.open) return thread.close();
  try {
    const dialogue = await api.dialogue(asked.open, asked.index);
    // Show the dialogue only if the user has not closed it or opened another dialogue in the meantime.
    if (read().open !== asked.open) return;
    thread.show(dialogue, asked.turn, on);
    const [name, links] = [threadOf(dialogue), $("neighbors")];
    if (name === undefined) return;
    // Without the links, the dialogue is still useful, so an error is ignored.
    const found = await api.thread(name, asked.index).catch(() => null);
    if (found && links.isConnected) thread.link(links, found.dialogues, asked.open, on);
  } catch (e) {
    thread.close();
    showError(e);
  }
}

// --- start

async function begin() {
  const info = await api.info();
  indexes = info.indexes;
  $("index").replaceChildren(...indexes.map(({ name }) => el("option", { value: name }, name)));
  $("index").closest("label").hidden = indexes.length < 2;
  const about = () => {
    const index = current($("index").value);
    if (!index) return;
    const model = index.model ? (index.model.missing ? "model not available: search by keywords only" : index.model.name) : "search by keywords only";
    // The counts are null if the API key has a filter and the engine cannot count the matching dialogues.
    const held = index.dialogues === null ? "" : `: ${counted(index.dialogues, "dialogue")}, ${counted(index.turns, "turn")}`;
    $("about").textContent = `${index.name}${held} · ${model} · ${info.version}`;
    const lexical = !index.model || index.model.missing;
    for (const option of $("mode").options) option.disabled = lexical && option.value === "dense";
  };
  $("index").addEventListener("change", () => { about(); write(fromForm()); });
  await show();
  about();
}

// `hits` returns the elements of the visible hits. `at` returns the position of the current hit.
const hits = () => ($("hits").hidden ? [] : [...$("hits").children]);
const at = () => hits().findIndex((h) => h.classList.contains("here"));

function step(by) {
  const all = hits();
  if (all.length === 0) return;
  const next = Math.min(all.length - 1, Math.max(0, at() + by));
  all.forEach((h, n) => h.classList.toggle("here", n === next));
  all[next].focus({ preventScroll: true });
  all[next].scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement?.tagName);
  if (event.key === "Escape") {
    if (typing) document.activeElement.blur();
    else if (!$("thread").hidden) on.close();
    return;
  }
  if (typing) return;
  const here = () => shown[at()];
  const keys = {
    "/": () => $("query").select(),
    j: () => step(1),
    k: () => step(-1),
    m: () => here() && on.like(here().id),
    t: () => on.view("topics"),
    s: () => on.view("stats"),
    b: () => on.view("benchmarks"),
    "?": () => $("keys").showModal(),
    Enter: () => document.activeElement?.classList.contains("hit") && here() && on.open(here()),
  };
  if (keys[event.key]) {
    if (event.key !== "Enter" || document.activeElement?.classList.contains("hit")) event.preventDefault();
    keys[event.key]();
  }
});

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const asked = fromForm();
  // If there is no new query, keep the search for similar turns, for example to apply another filter.
  if (!asked.query && read().like) asked.like = read().like;
  write(asked);
});
$("filter").addEventListener("change", () => {
  const view = read().view;
  if (view) write({ ...read(), filter: $("filter").value.trim() });
});
for (const name of ["of", "role", "mode", "group", "explain"]) {
  $(name).addEventListener("change", () => {
    suit();
    if (read().query || read().like) $("ask").requestSubmit();
  });
}
for (const button of document.querySelectorAll("#views button")) button.addEventListener("click", () => on.view(button.dataset.view));
$("before").addEventListener("click", () => {
  $("said").append(said());
  $("said").lastElementChild.querySelector("input").focus();
});
$("clear").addEventListener("click", () => write({ ...read(), filter: "" }));
$("more").addEventListener("click", () => {
  const asked = read();
  if (asked.query || asked.like) find(asked, shown.length);
  else browse(asked, shown.at(-1).id);
});
$("help").addEventListener("click", () => $("keys").showModal());
$("home").addEventListener("click", (event) => { event.preventDefault(); location.hash = ""; });
$("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark"
    || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("turnwise-theme", document.documentElement.dataset.theme);
});
if (localStorage.getItem("turnwise-theme")) document.documentElement.dataset.theme = localStorage.getItem("turnwise-theme");
// On small screens, open facets would hide the results.
if (matchMedia("(max-width: 60rem)").matches) $("facets").open = false;
window.addEventListener("hashchange", show);
api.onKeyNeeded((why) => new Promise((given) => {
  $("key").value = "";
  $("key-wrong").textContent = why;
  $("enter").addEventListener("close", () => given($("key").value), { once: true });
  $("enter").showModal();
}));
begin().catch(showError);
