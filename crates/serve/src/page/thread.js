// Panel that shows a whole dialogue. The turn of the hit is highlighted.

import { $, counted, date, el, minute, speaker, threadOf } from "./dom.js";

export function close() {
  $("thread").hidden = true;
  document.querySelector("main").classList.remove("open");
}

export function show(dialogue, turn, on) {
  const first = dialogue.turns[0]?.speaker;
  const lines = dialogue.turns.map((said) =>
    el("li", { class: [said.speaker === first ? "" : "other", said.number === turn ? "found" : ""].join(" ").trim() || undefined, "aria-current": said.number === turn ? "true" : undefined },
      el("div", { class: "who" }, `${said.number}. ${speaker(said)}`, said.time && ` · ${minute(said.time)}`,
        el("button", { type: "button", class: "plain", "aria-label": `Find turns similar to turn ${said.number}`, onclick: () => on.like(`${dialogue.id}#${said.number}`) }, "find similar"),
        el("button", { type: "button", class: "plain", "aria-label": `Suggest replies to turn ${said.number}`, onclick: () => on.reply(dialogue.turns.filter(({ number }) => number <= said.number)) }, "replies")),
      el("div", {}, said.text)));
  const name = threadOf(dialogue);
  const facts = [dialogue.id, dialogue.source, date(dialogue.time), dialogue.language, (dialogue.domains || []).join(", "), counted(dialogue.turns.length, "turn")];
  $("thread").replaceChildren(
    el("div", { class: "top" },
      el("div", {}, el("h2", {}, dialogue.title || dialogue.id), el("p", { class: "quiet" }, facts.filter(Boolean).join(" · ")),
        name !== undefined && el("p", { id: "neighbors" }, el("button", { type: "button", class: "tag thread", title: `only the thread ${name}`, onclick: () => on.thread(name) }, name))),
      el("button", { type: "button", class: "plain", onclick: () => on.like(dialogue.id) }, "Find similar dialogues"),
      el("button", { type: "button", class: "plain", "aria-label": "Close the dialogue", onclick: on.close }, "✕")),
    el("ol", {}, lines));
  $("thread").hidden = false;
  document.querySelector("main").classList.add("open");
  const found = $("thread").querySelector(".found");
  // Scroll only the panel, not the list of hits.
  if (found) $("thread").scrollTop = found.offsetTop - $("thread").clientHeight / 3;
  $("thread").focus({ preventScroll: true });
}

// Adds links to the previous and the next dialogue of the thread to an element. `dialogues` are those of the thread, in
// order.
export function link(links, dialogues, id, on) {
  const at = dialogues.findIndex((dialogue) => dialogue.id === id);
  if (at < 0) return;
  const to = (dialogue, which, label) => dialogue && el("button", { type: "button", class: `plain ${which}`, title: dialogue.title || dialogue.id, onclick: () => on.dialogue(dialogue.id) }, label(date(dialogue.time) || dialogue.id));
  links.append(
    el("span", { class: "quiet" }, ` ${(at + 1).toLocaleString("en")} of ${counted(dialogues.length, "dialogue")} `),
    ...[to(dialogues[at - 1], "previous", (name) => `← ${name}`), to(dialogues[at + 1], "next", (name) => `${name} →`)].filter(Boolean));
}
