// The report of the benchmarks: a page of its own, shown within this one with a style of its own.

import { $, el } from "./dom.js";

export function show(text) {
  // The style apart from the rest: it must not stand in a document of this page's policy.
  const [style, css] = text.match(/<style>([^]*?)<\/style>/);
  const page = new DOMParser().parseFromString(text.replace(style, ""), "text/html");
  const host = el("div");
  const root = host.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  root.adoptedStyleSheets = [sheet];
  root.append(...page.body.childNodes);
  // The address says what is asked: within the report one goes without it.
  root.addEventListener("click", (event) => {
    const to = event.target.closest("a")?.getAttribute("href");
    if (!to?.startsWith("#")) return;
    event.preventDefault();
    root.getElementById(to.slice(1))?.scrollIntoView();
  });
  $("state").textContent = "";
  $("survey").replaceChildren(host);
}
