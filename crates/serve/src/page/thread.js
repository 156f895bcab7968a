// Panel that shows a whole dialogue. The turn of the hit is highlighted.

import { $, counted, el, speaker } from "./dom.js";

export function close() {
  $("thread").hidden = true;
  document.querySelector("main").classList.remove("open");
}

export function show(dialogue, turn, on) {
  const first = dialogue.turns[0]?.speaker;
  const lines = dialogue.turns.map((said) =>
    el("li", { class: [said.speaker === first ? "" : "other", said.number === turn ? "found" : ""].join(" ").trim() || undefined, "aria-current": said.number === turn ? "true" : undefined },
      el("div", { class: "who" }, `${said.number}. ${speaker(said)}`, said.time && ` · ${said.time}`,
        el("button", { type: "button", class: "plain", "aria-label": `Find turns similar to turn ${said.number}`, onclick: () => on.like(`${dialogue.id}#${said.number}`) }, "find similar")),
      el("div", {}, said.text)));
  const facts = [dialogue.id, dialogue.source, dialogue.language, (dialogue.domains || []).join(", "), counted(dialogue.turns.length, "turn")];
  $("thread").replaceChildren(
    el("div", { class: "top" },
      el("div", {}, el("h2", {}, dialogue.title || dialogue.id), el("p", { class: "quiet" }, facts.filter(Boolean).join(" · "))),
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
