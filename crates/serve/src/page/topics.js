// Topics of the dialogues, and a map on which similar dialogues are close together.

import { $, counted, el, svg } from "./dom.js";

// Returns a distinct color for each of any number of topics.
const color = (n) => `hsl(${Math.round((n * 137.508 + 200) % 360)} ${60 + (n % 3) * 12}% ${46 + (n % 2) * 8}%)`;
const name = (topic) => topic.terms.slice(0, 4).map(({ term }) => term).join(", ") || (topic.domains[0]?.name ?? "no distinctive terms");
const shown = (n) => n.toLocaleString("en");

export function show(found, on, asked) {
  const topics = found.clusters.map((topic, n) => of(topic, n, on));
  const drawn = found.map || [];
  const some = drawn.length < found.dialogues ? `; the map shows a random sample of ${shown(drawn.length)}` : "";
  const without = found.without ? ` ${counted(found.without, "dialogue")} have no vectors yet.` : "";
  const many = el("input", { type: "number", min: "1", max: "100", value: asked.k ?? "", placeholder: String(found.clusters.length), onchange: () => on.topics(many.value) });
  $("survey").replaceChildren(
    el("div", { class: "how" }, el("label", {}, "Number of topics ", many)),
    el("p", { class: "quiet" }, `${counted(found.clusters.length, "topic")} in ${counted(found.dialogues, "dialogue")}${some}.${without} Each point is a dialogue; similar dialogues are close together.`),
    el("div", { class: "topics" },
      drawn.length > 0 && map(drawn, found.clusters, on),
      el("ol", { class: "list" }, topics)));
}

function of(topic, n, on) {
  const swatch = svg("svg", { viewBox: "0 0 10 10", class: "swatch", "aria-hidden": "true" }, svg("circle", { cx: 5, cy: 5, r: 5, fill: color(n) }));
  const item = el("li", { class: "hit", "data-topic": n },
    el("div", { class: "top" }, swatch, el("strong", {}, name(topic)), el("span", { class: "score quiet" }, counted(topic.size, "dialogue"))),
    el("p", { class: "quiet" }, topic.domains.map((domain) => el("button", { type: "button", class: "tag", title: `only ${domain.name}`, onclick: () => on.domain(domain.name) }, `${domain.name} ${Math.round(domain.share * 100)}%`))),
    el("ul", { class: "plain" }, topic.central.map((central) =>
      el("li", {}, el("button", { type: "button", class: "link", onclick: () => on.dialogue(central.id) }, central.title || central.id), " ", el("span", { class: "quiet" }, central.text)))));
  item.addEventListener("mouseenter", () => highlight(n));
  item.addEventListener("mouseleave", () => highlight(null));
  return item;
}

// Highlights the points of one topic.
function highlight(topic) {
  for (const dot of document.querySelectorAll("#map circle")) dot.classList.toggle("dim", topic !== null && dot.dataset.topic !== String(topic));
}

function map(points, topics, on) {
  const place = ({ at }) => [at[0] * 100, -at[1] * 100];
  const dots = points.map((point, n) => {
    const [cx, cy] = place(point);
    return svg("circle", { cx, cy, fill: color(point.cluster), "data-n": n, "data-topic": point.cluster });
  });
  const about = el("div", { class: "about", role: "status", "aria-live": "polite" }, "Hover over a point, or use the arrow keys.");
  const plane = svg("svg", { id: "map", tabindex: "0", role: "application", "aria-label": `Map of ${counted(points.length, "dialogue")} by topic: arrow keys move between points, Enter opens a dialogue, plus and minus zoom` }, dots);
  let view = { x: -106, y: -106, size: 212 };
  let here = null;
  const look = () => {
    plane.setAttribute("viewBox", `${view.x} ${view.y} ${view.size} ${view.size}`);
    plane.style.setProperty("--r", `${Math.max(view.size / 110, 0.15)}px`);
  };
  const zoom = (factor, x = view.x + view.size / 2, y = view.y + view.size / 2) => {
    const size = Math.min(212, Math.max(6, view.size * factor));
    view = { x: x - ((x - view.x) * size) / view.size, y: y - ((y - view.y) * size) / view.size, size };
    if (size === 212) view = { x: -106, y: -106, size };
    look();
  };
  const where = (event) => {
    const box = plane.getBoundingClientRect();
    return [view.x + ((event.clientX - box.left) / box.width) * view.size, view.y + ((event.clientY - box.top) / box.height) * view.size];
  };
  const go = (n) => {
    dots[here]?.classList.remove("here");
    here = n;
    if (n === null) return;
    dots[n].classList.add("here");
    const point = points[n];
    about.replaceChildren(el("strong", {}, point.title || point.id), ` · ${name(topics[point.cluster])}`, el("br"), point.text);
  };
  // Selects the nearest point in a direction. The distance perpendicular to the direction counts twice.
  const next = (dx, dy) => {
    const from = here === null ? [view.x + view.size / 2, view.y + view.size / 2] : place(points[here]);
    let best = null;
    points.forEach((point, n) => {
      const [x, y] = place(point);
      const along = (x - from[0]) * dx + (y - from[1]) * dy;
      const aside = Math.abs((x - from[0]) * dy) + Math.abs((y - from[1]) * dx);
      if (n !== here && along > 0.001 && (!best || along + 2 * aside < best.far)) best = { n, far: along + 2 * aside };
    });
    if (best) go(best.n);
    else if (here === null && points.length) go(0);
  };
  plane.addEventListener("pointermove", (event) => event.target.dataset?.n !== undefined && go(Number(event.target.dataset.n)));
  plane.addEventListener("click", (event) => event.target.dataset?.n !== undefined && on.dialogue(points[Number(event.target.dataset.n)].id));
  plane.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, ...where(event));
  }, { passive: false });
  let held = null;
  plane.addEventListener("pointerdown", (event) => { held = event.target.dataset?.n === undefined ? where(event) : null; });
  plane.addEventListener("pointermove", (event) => {
    if (!held || event.buttons === 0) return;
    const [x, y] = where(event);
    view = { ...view, x: view.x + held[0] - x, y: view.y + held[1] - y };
    look();
  });
  plane.addEventListener("keydown", (event) => {
    const keys = {
      ArrowLeft: () => next(-1, 0), ArrowRight: () => next(1, 0), ArrowUp: () => next(0, -1), ArrowDown: () => next(0, 1),
      "+": () => zoom(1 / 1.3), "=": () => zoom(1 / 1.3), "-": () => zoom(1.3), 0: () => zoom(1e9),
      Enter: () => here !== null && on.dialogue(points[here].id),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  });
  look();
  const button = (text, label, factor) => el("button", { type: "button", class: "plain", "aria-label": label, onclick: () => zoom(factor) }, text);
  return el("div", { class: "map" },
    el("div", { class: "zoom" }, button("+", "Zoom in", 1 / 1.5), button("−", "Zoom out", 1.5), button("◻", "Show the whole map", 1e9)),
    plane, about);
}
