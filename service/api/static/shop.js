// What the sample shop finds with a plan and, beside it, with the shopper's own words; and both searches in one list.

import { element, money } from "./dom.js";

const TEAMS = { plan: "with the plan", words: "with the words alone", "": "by both alike" };

/** What POST /shop/search answered, as two lists and as one; `chosen(hit, ordinal)` is told what is chosen of the one. */
export function shopView(found, chosen) {
  const { by_plan: byPlan, by_words: byWords, interleaved = [], notes, reason, nothing, nearest } = found;
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
    interleaved.length > 0 ? draftView(interleaved, chosen) : null,
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
      element("span", { class: "price" }, money(hit)),
      element("span", { class: "category" }, hit.category),
    ),
  );
  const list = items.length > 0 ? element("ol", { class: "hits" }, items) : element("p", { class: "hint" }, "Nothing");
  return element("div", { class: "shelf" }, element("h3", {}, title), list);
}

/** One list of both searches by team draft. Nothing tells whose a product is before it is chosen. */
function draftView(interleaved, chosen) {
  const wins = { plan: 0, words: 0, "": 0 };
  const told = element("p", { class: "hint", role: "status" });
  const items = interleaved.map((hit, place) => {
    const button = element("button", { type: "button", class: "pick", title: hit.snippet }, hit.name);
    button.addEventListener("click", () => {
      if (button.hasAttribute("aria-pressed")) return;
      button.setAttribute("aria-pressed", "true");
      button.after(element("span", { class: "category" }, `found ${TEAMS[hit.team]}`));
      wins[hit.team] += 1;
      told.textContent = `Chosen: found with the plan ${wins.plan}, with the words alone ${wins.words}.`;
      chosen(hit, place + 1);
    });
    return element("li", {}, button);
  });
  return element(
    "details",
    { class: "draft" },
    element("summary", {}, "Both searches in one list"),
    element("p", { class: "hint" }, "Choose what you would look at. Only then it says which search found it."),
    element("ol", { class: "hits" }, items),
    told,
  );
}
