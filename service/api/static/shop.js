// What the sample shop finds with a plan and, beside it, with the shopper's own words.

import { element } from "./dom.js";

/** What POST /shop/search answered, as two lists. */
export function shopView({ by_plan: byPlan, by_words: byWords, notes, reason }) {
  if (reason) return [element("p", { class: "hint" }, reason)];
  const known = new Set(byWords.map(({ id }) => id));
  return [
    element(
      "div",
      { class: "shelves" },
      shelf("With the plan", byPlan, (hit) => !known.has(hit.id)),
      shelf("With the words alone", byWords, () => false),
    ),
    notes.length > 0 ? element("ul", { class: "notes hint" }, notes.map((note) => element("li", {}, note))) : null,
  ].filter((child) => child !== null);
}

function shelf(title, hits, isNew) {
  const items = hits.map((hit) =>
    element(
      "li",
      { title: hit.snippet },
      element("span", { class: "product" }, hit.name, isNew(hit) ? element("span", { class: "new" }, "plan only") : null),
      element("span", { class: "price" }, hit.price.toLocaleString("en", { style: "currency", currency: "USD" })),
      element("span", { class: "category" }, hit.category),
    ),
  );
  const list = items.length > 0 ? element("ol", { class: "hits" }, items) : element("p", { class: "hint" }, "Nothing");
  return element("div", { class: "shelf" }, element("h3", {}, title), list);
}
