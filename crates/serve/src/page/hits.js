// Search results.

import { counted, date, el, marked, minute, speaker, threadOf } from "./dom.js";

function line(turn, found, ranges) {
  return el("li", { class: found ? "found" : undefined },
    speaker(turn) && el("span", { class: "who" }, speaker(turn)),
    el("span", { class: "text" }, marked(turn.text, ranges)));
}

// Returns a table that explains the score of a hit.
function why(hit) {
  const e = hit.explanation;
  const row = (name, ...cells) => el("tr", {}, el("th", { scope: "row" }, name), cells.map((cell) => el("td", {}, cell)));
  const number = (n) => (n === undefined || n === null ? "" : n.toFixed(4));
  const rows = [];
  if (e.before) rows.push(row("before reranking", number(e.before.score), `rank ${e.before.rank}`));
  if (e.dense) rows.push(row("meaning", `cosine ${number(e.dense.score)}`, `rank ${e.dense.rank}`));
  else if (e.cosine !== undefined && e.cosine !== null) rows.push(row("meaning", `cosine ${number(e.cosine)}`, "not among the candidates of the dense search"));
  if (e.bm25) rows.push(row("keywords", `BM25 ${number(e.bm25.score)}`, `rank ${e.bm25.rank}`));
  for (const term of e.terms || []) {
    rows.push(row(`· ${term.term}`, number(term.score), `idf ${term.idf.toFixed(2)}, ${term.frequency}× here`));
  }
  if (e.title) rows.push(row("title", `BM25 ${number(e.title.score)}`, `rank ${e.title.rank}, half of it counts`));
  if (e.words) rows.push(row("words together", `× ${e.words.factor.toFixed(2)}`, `${Math.round(100 * e.words.share)}% of the query`));
  const { fusion, context } = e;
  if (context) {
    if (context.cosine !== null) rows.push(row("meaning in context", `cosine ${number(context.cosine)}`, (context.cosines || []).map(({ turn, cosine }) => `${turn === hit.turn.number ? "here" : `turn ${turn}`} ${cosine.toFixed(2)}`).join(", ")));
    if (context.bm25 > 0) rows.push(row("keywords in context", number(context.bm25), (context.terms || []).map((term) => `${term.term} (${term.turn === null ? "title" : term.turn === hit.turn.number ? "here" : `turn ${term.turn}`})`).join(", ")));
    const { share, dialogues, factor } = context.coverage;
    if (share > 0) rows.push(row("words together", `× ${factor.toFixed(2)}`, `${Math.round(100 * share)}% of the query, ${dialogues > 1 ? `as in ${counted(dialogues - 1, "other dialogue")}` : "more than in any other dialogue"}`));
    if (context.participant) rows.push(row("speaker", number(fusion.from_speaker), `the query names ${context.speaker ? hit.turn.speaker : "a speaker of this dialogue"}`));
    if (context.date) rows.push(row("date", number(fusion.from_date), context.date === "said" ? "said on a date of the query" : "mentions a date of the query"));
    if (context.earlier) rows.push(row("conversation before", number(fusion.from_earlier), `cosine ${number(context.earlier.cosine)}, keywords ${number(context.earlier.bm25)}`));
    if (fusion.stretch) rows.push(row("cosines", `stretched × ${fusion.stretch.factor.toFixed(2)}`, `around ${number(fusion.stretch.center)}, because those of this model are close together`));
    const parts = [[fusion.from_dense, `from meaning (× ${fusion.dense})`], [fusion.from_bm25, `from keywords (${fusion.bm25} × s/(s + ${context.half_score})${share > 0 ? ` × ${factor.toFixed(2)}` : ""})`], [fusion.from_speaker, "from the speaker"], [fusion.from_date, "from the date"], [fusion.from_earlier, "from the conversation before"]];
    const given = parts.filter(([part]) => part !== null && part !== undefined).map(([part, from]) => `${number(part)} ${from}`);
    rows.push(row("combined", number(fusion.score), given.join(" + ")));
  } else if (fusion?.method === "weighted") rows.push(row("combined", number(fusion.score), `${number(fusion.from_dense)} from meaning (× ${fusion.dense}) + ${number(fusion.from_bm25)} from keywords (${fusion.bm25} × s/(s + 10)${e.words ? ` × ${e.words.factor.toFixed(2)}` : ""})`));
  else if (fusion) rows.push(row("combined", number(fusion.score), `${number(fusion.from_dense)} + ${number(fusion.from_bm25)}: weight/(${fusion.k} + rank) in each list`));
  return el("table", { class: "why" }, el("tbody", {}, rows));
}

export function show(hit, number, on, found = true) {
  const said = [...hit.before.map((turn) => line(turn, false)), line(hit.turn, found, hit.matched), ...hit.after.map((turn) => line(turn, false))];
  const above = hit.percentile === undefined ? "" : ` · higher than ${Math.floor(hit.percentile * 10) / 10}% of random pairs`;
  return el("li", { class: "hit", "data-id": hit.id, "data-dialogue": hit.dialogue, "data-turn": hit.turn.number, tabindex: "-1" },
    el("div", { class: "top" },
      el("button", { type: "button", class: "id", onclick: () => on.open(hit) }, hit.title ? marked(hit.title, hit.title_matched) : hit.id),
      hit.domains.map((domain) => el("button", { type: "button", class: "tag", title: `only ${domain}`, onclick: () => on.domain(domain) }, domain)),
      hit.thread !== undefined && el("button", { type: "button", class: "tag thread", title: `only the thread ${hit.thread}`, onclick: () => on.thread(hit.thread) }, hit.thread),
      hit.turn.time ? el("span", { class: "quiet" }, minute(hit.turn.time)) : hit.time && el("span", { class: "quiet" }, date(hit.time)),
      hit.turns && el("span", { class: "quiet" }, counted(hit.turns, "turn")),
      hit.more ? el("span", { class: "quiet" }, `${hit.more} more hits in this dialogue`) : null,
      hit.score !== undefined && el("span", { class: "score quiet", title: `score${above}` }, hit.score.toFixed(3))),
    el("ul", { class: "turns" }, said),
    hit.explanation && why(hit),
    el("div", { class: "do" },
      el("button", { type: "button", class: "plain", onclick: () => on.like(hit.id) }, "Find similar"),
      el("span", { class: "quiet" }, `${hit.id}`)));
}

// Shows a suggested reply, with the turn that it answers.
export function reply({ score, said }, number, on) {
  return show({ id: `${said.dialogue}#${said.turn.number}`, dialogue: said.dialogue, domains: [], score, turn: said.turn, before: [said.answered], after: [] }, number, on);
}

// Shows a dialogue in the list that appears if there is no query. Shows only its first turns.
export function listed(dialogue, number, on) {
  const { id, title, time, turns, domains = [] } = dialogue;
  return show({ id, dialogue: id, title, thread: threadOf(dialogue), time, domains, turns: turns.length, turn: turns[0], before: [], after: turns.slice(1, 2) }, number, on, false);
}
