// Facets: field values that the user can add to the filter, with the number of dialogues that have each value.

import { $, el } from "./dom.js";

const SHOWN = 12;

// Returns the condition `field=value` in filter syntax.
export function condition(field, value) {
  return /^[\w.-]+$/.test(value) ? `${field}=${value}` : `${field}="${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

export function show(counted, filter, on) {
  const conditions = filter.split(" and ");
  const chosen = (facet, value) => conditions.includes(condition(facet.field, value));
  // A field with only one value is not useful as a facet, unless the value is selected, so that the user can deselect
  // it.
  const useful = (facet) => facet.different > 1 || facet.values.some(({ value }) => chosen(facet, value));
  const rows = counted.facets.filter(useful).map((facet) => {
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

// Hides the facets.
export const none = () => put([]);

function put(rows) {
  $("facets").querySelector("section").replaceChildren(...rows);
  $("facets").classList.toggle("none", rows.length === 0);
}
