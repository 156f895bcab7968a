// Requests to the server. They contain an API key if the server requires one.

const KEY = "turnwise-key";

export class Problem extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.hint = error.hint;
    this.param = error.param;
  }
}

// Function that prompts the user for an API key.
let enter = async () => null;
export const onKeyNeeded = (ask) => { enter = ask; };

// Sends a request and returns the response and its text. If the status is 401, prompts for a key and retries.
async function answered(method, path, body, signal) {
  const headers = {};
  const key = sessionStorage.getItem(KEY);
  if (key) headers.authorization = `Bearer ${key}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Problem(0, { message: "the server does not respond", hint: "is `turnwise serve` still running?" });
  }
  if (answer.status === 401) {
    const given = await enter(key ? (await answer.clone().json()).error.message : "");
    if (given) {
      sessionStorage.setItem(KEY, given);
      return answered(method, path, body, signal);
    }
  }
  return [answer, await answer.text()];
}

export async function ask(method, path, body, signal, as = JSON.parse) {
  const [answer, text] = await answered(method, path, body, signal);
  let value;
  try {
    value = (answer.ok ? as : JSON.parse)(text);
  } catch {
    throw new Problem(answer.status, { message: `the server responded with status ${answer.status}, but not with JSON` });
  }
  if (!answer.ok) throw new Problem(answer.status, value.error);
  return value;
}

const of = (index) => (index ? `?index=${encodeURIComponent(index)}` : "");

export const info = () => ask("GET", "../info");
export const search = (request, index, signal) => ask("POST", `../v1/search${of(index)}`, request, signal);
export const respond = (request, index, signal) => ask("POST", `../v1/respond${of(index)}`, request, signal);
// Sends a request about all dialogues that match a filter.
const survey = (path, filter, index, more = {}, signal = undefined) => {
  const q = new URLSearchParams(more);
  if (filter) q.set("filter", filter);
  if (index) q.set("index", index);
  return ask("GET", `../v1/${path}?${q}`, undefined, signal);
};
export const facets = (filter, index) => survey("facets", filter, index);
export const list = ({ filter, index }, after, limit, signal) =>
  survey("dialogues", filter, index, { limit, ...(after && { after }) }, signal);
export const stats = ({ filter, index }, signal) => survey("stats", filter, index, {}, signal);
export const topics = ({ filter, index, k }, signal) =>
  survey("clusters", filter, index, { map: 1000, ...(k && { k }) }, signal);
export const dialogue = (id, index, signal) =>
  ask("GET", `../v1/dialogues/${encodeURIComponent(id)}${of(index)}`, undefined, signal);
// Reads the dialogues of a thread in the order of time, without their turns.
export const thread = (name, index) => {
  const q = new URLSearchParams({ turns: false });
  if (index) q.set("index", index);
  return ask("GET", `../v1/threads/${encodeURIComponent(name)}?${q}`);
};
// The benchmark report is an HTML page, so it is not parsed as JSON.
export const benchmarks = (signal) => ask("GET", "../v1/benchmarks", undefined, signal, String);
