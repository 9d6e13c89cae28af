// What the sample shop finds with a plan and, beside it, with the shopper's own words.

import { element } from "./dom.js";

/** What POST /shop/search answered, as two lists. */
export function shopView({ by_plan: byPlan, by_words: byWords, notes, reason, nothing, nearest }) {
  if (reason) return [element("p", { class: "hint" }, reason)];
  const known = new Set(byWords.map(({ id }) => id));
  return [
    nothing ? element("p", { class: "nothing", role: "status" }, nothingHere(nearest)) : null,
    element(
      "div",
      { class: "shelves" },
      shelf(nothing ? "With the plan, only words in common" : "With the plan", byPlan, (hit) => !known.has(hit.id)),
      shelf("With the words alone", byWords, () => false),
    ),
    notes.length > 0 ? element("ul", { class: "notes hint" }, notes.map((note) => element("li", {}, note))) : null,
  ].filter((child) => child !== null);
}

/** Says that the shop does not have it, and what it has instead. */
function nothingHere(nearest = []) {
  const kinds = nearest.length > 0 ? ` The nearest that it has: ${nearest.join(", ")}.` : "";
  return `This shop has nothing of that kind.${kinds}`;
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
