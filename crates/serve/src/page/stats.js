// Statistics of an index.

import { $, el } from "./dom.js";
import { condition } from "./facets.js";

const SHOWN = 12;
const day = (time) => time.slice(0, 10);
const number = (n, digits = 0) => n.toLocaleString("en", { maximumFractionDigits: digits });

export function show(found, on) {
  const card = (n, what) => el("div", { class: "card" }, el("strong", {}, number(n)), el("span", { class: "quiet" }, what));
  const spread = (name, { min, median, mean, max }) =>
    el("tr", {}, el("th", { scope: "row" }, name), [min, median, mean, max].map((n) => el("td", {}, number(n, 1))));
  const times = found.times && el("p", { class: "quiet" }, `From ${day(found.times[0])} to ${day(found.times[1])}.`);
  $("survey").replaceChildren(el("div", {},
    el("div", { class: "cards" }, card(found.dialogues, "dialogues"), card(found.turns, "turns"), card(found.speakers, "speakers"), card(found.words, "words")),
    el("table", { class: "fields numbers" },
      el("thead", {}, el("tr", {}, ["", "min", "median", "mean", "max"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, spread("turns per dialogue", found.turns_per_dialogue), spread("words per turn", found.words_per_turn), spread("speakers per dialogue", found.speakers_per_dialogue))),
    times,
    el("div", { class: "counts" },
      of("Domains", "domain", found.domains, "dialogues", on), of("Intents", "intent", found.intents, "turns", on), of("Roles", "role", found.roles, "turns", on),
      of("Languages", "language", found.languages, "dialogues", on), of("Sources", "source", found.sources, "dialogues", on))));
}

function of(title, field, counts, what, on) {
  const sorted = Object.entries(counts).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  if (sorted.length === 0) return null;
  const most = sorted[0][1];
  const row = ([value, n]) => {
    const bar = el("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${(n / most) * 100}%`;
    const named = !["", "none", "unknown"].includes(value);
    return el("li", {},
      named ? el("button", { type: "button", class: "link", title: `only ${value}`, onclick: () => on.only(condition(field, value), false) }, value) : el("span", {}, value || "none"),
      el("span", { class: "track" }, bar), el("span", { class: "count" }, number(n)));
  };
  const rest = sorted.length - SHOWN;
  return el("section", {}, el("h2", {}, title, " ", el("span", { class: "quiet" }, what)), el("ol", { class: "bars" }, sorted.slice(0, SHOWN).map(row)),
    rest > 0 && el("p", { class: "quiet" }, `and ${number(rest)} more`));
}
