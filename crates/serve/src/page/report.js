// Benchmark report: an HTML page with its own style, shown in a shadow root.

import { $, el } from "./dom.js";

export function show(text) {
  // The content security policy forbids inline styles, so the style is added as a constructed style sheet.
  const [style, css] = text.match(/<style>([^]*?)<\/style>/);
  const page = new DOMParser().parseFromString(text.replace(style, ""), "text/html");
  const host = el("div");
  const root = host.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  root.adoptedStyleSheets = [sheet];
  root.append(...page.body.childNodes);
  // The URL fragment contains the state of this page. Links within the report must scroll without changing the
  // fragment.
  root.addEventListener("click", (event) => {
    const to = event.target.closest("a")?.getAttribute("href");
    if (!to?.startsWith("#")) return;
    event.preventDefault();
    root.getElementById(to.slice(1))?.scrollIntoView();
  });
  $("state").textContent = "";
  $("survey").replaceChildren(host);
}
