// API documentation for readers, generated from openapi.json.

import { $, el } from "./dom.js";

const named = (ref) => ref.split("/").at(-1);

// Returns a short description of a type, with links to named types.
function type(schema) {
  if (!schema || schema === true) return ["anything"];
  if (schema.$ref) return [el("a", { href: `#${named(schema.$ref)}` }, named(schema.$ref))];
  const any = schema.anyOf || schema.oneOf;
  if (any) return any.flatMap((one, n) => (n === 0 ? type(one) : [" or ", ...type(one)]));
  if (schema.const !== undefined) return [el("code", {}, JSON.stringify(schema.const))];
  if (schema.enum) return schema.enum.flatMap((value, n) => [n === 0 ? "" : " or ", el("code", {}, JSON.stringify(value))]);
  if (schema.type === "array") return ["list of ", ...type(schema.items)];
  return [[schema.type || "anything"].flat().join(" or ")];
}

function properties(schema) {
  const rows = Object.entries(schema.properties || {}).map(([name, property]) => {
    const defaults = property.default === undefined ? "" : ` Default: ${JSON.stringify(property.default)}.`;
    const needed = (schema.required || []).includes(name) ? " Required." : "";
    return el("tr", {}, el("th", { scope: "row" }, el("code", {}, name)), el("td", {}, type(property)), el("td", {}, `${property.description || ""}${needed}${defaults}`));
  });
  return rows.length ? el("table", { class: "fields" }, el("tbody", {}, rows)) : null;
}

function operation(method, path, { summary, parameters = [], requestBody, responses, security }) {
  const content = (one) => Object.entries(one?.content || {}).map(([kind, { schema }]) => el("p", {}, el("code", {}, kind), ": ", type(schema)));
  const given = parameters.map(({ name, in: place, required, description }) =>
    el("tr", {}, el("th", { scope: "row" }, el("code", {}, name)), el("td", {}, place), el("td", {}, `${description}${required ? " Required." : ""}`)));
  return el("details", { class: "hit" },
    el("summary", {}, el("strong", {}, method.toUpperCase()), " ", el("code", {}, path), " ", summary, security ? "" : el("span", { class: "quiet" }, " (no API key required)")),
    given.length ? el("table", { class: "fields" }, el("tbody", {}, given)) : null,
    requestBody ? el("div", {}, el("h3", {}, "Body"), content(requestBody)) : null,
    el("h3", {}, "Response"), content(responses["200"]));
}

function show(description) {
  $("about").textContent = `${description.info.title} ${description.info.version}: ${description.info.description}`;
  for (const [path, operations] of Object.entries(description.paths)) {
    for (const [method, one] of Object.entries(operations)) $("operations").append(operation(method, path, one));
  }
  for (const [name, schema] of Object.entries(description.components.schemas)) {
    const values = schema.oneOf || schema.enum ? el("p", {}, type(schema)) : null;
    $("schemas").append(el("section", { class: "hit", id: name }, el("h3", {}, name), schema.description && el("p", {}, schema.description), values, properties(schema)));
  }
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

fetch("openapi.json").then((answer) => answer.json()).then(show).catch((e) => { $("about").textContent = `Cannot load the API description: ${e.message}`; });
