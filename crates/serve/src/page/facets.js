// What a filter can be made of: values with how many dialogues have them.

import { $, el } from "./dom.js";

const SHOWN = 12;

// A condition as filters are written.
export function condition(field, value) {
  return /^[\w.-]+$/.test(value) ? `${field}=${value}` : `${field}="${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

export function show(counted, filter, on) {
  const conditions = filter.split(" and ");
  const chosen = (facet, value) => conditions.includes(condition(facet.field, value));
  // What all have in common tells nothing, unless it was chosen and may be taken out again.
  const tells = (facet) => facet.different > 1 || facet.values.some(({ value }) => chosen(facet, value));
  const rows = counted.facets.filter(tells).map((facet) => {
    const chip = ({ value, dialogues }) => {
      const only = condition(facet.field, value);
      const is = chosen(facet, value);
      return el("button", { type: "button", class: "tag", "aria-pressed": String(is), onclick: () => on.only(only, is) },
        value, " ", el("span", { class: "count" }, dialogues.toLocaleString("en")));
    };
    const rest = facet.different - Math.min(SHOWN, facet.values.length);
    return el("div", { class: "facet" }, el("h2", {}, facet.field), el("div", { class: "values" },
      facet.values.slice(0, SHOWN).map(chip), rest > 0 && el("span", { class: "quiet" }, `and ${rest.toLocaleString("en")} more`)));
  });
  put(rows);
}

// Nothing was counted.
export const none = () => put([]);

function put(rows) {
  $("facets").querySelector("section").replaceChildren(...rows);
  $("facets").classList.toggle("none", rows.length === 0);
}
