// Helper functions for the DOM. Texts are never parsed as HTML.

export const $ = (id) => document.getElementById(id);

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
  return made;
}

// Creates an element with attributes, listeners (`onclick`) and children.
export const el = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);

// Creates an SVG element.
export const svg = (name, attributes = {}, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

// Returns the parts of a text, in which the given character ranges are highlighted.
export function marked(text, ranges = []) {
  const letters = Array.from(text);
  const parts = [];
  let done = 0;
  for (const [start, end] of ranges) {
    parts.push(letters.slice(done, start).join(""), el("mark", {}, letters.slice(start, end).join("")));
    done = end;
  }
  parts.push(letters.slice(done).join(""));
  return parts;
}

export const speaker = (turn) => [turn.speaker, turn.role && turn.role !== turn.speaker ? `(${turn.role})` : ""].filter(Boolean).join(" ");

// Returns the name of a dialogue's thread. Returns undefined if it has none.
export function threadOf({ metadata }) {
  const name = metadata?.thread;
  return typeof name === "number" || (typeof name === "string" && name.trim()) ? String(name) : undefined;
}

export const date = (time) => time?.slice(0, 10);
export const minute = (time) => time.slice(0, 16).replace("T", " ").replace(" 00:00", "");

export const counted = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
