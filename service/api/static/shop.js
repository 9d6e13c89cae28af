// What the shop has: the first three products with the wishes they meet, and what a search finds with plan and with words.

import { element, milliseconds, money, unseen } from "./dom.js";

const LISTS = [
  ["met", "accepted", "has it"],
  ["unmet", "rejected", "has it not"],
  ["unknown", "sampled", "the catalogue does not tell"],
];

const NUMBERS = ["No", "One", "Two", "Three"];

/** The heading above the options: what is not there comes before what is near it. */
export function optionsTitle({ options, nothing, missing = [] }) {
  if (nothing) return missing.length > 0 ? `Not found: ${missing.join(", ")}` : "Nothing of that kind";
  const good = missing.length === 0 && options.every(({ unmet }) => unmet.length === 0) ? "good " : "";
  return `${NUMBERS[options.length]} ${good}option${options.length === 1 ? "" : "s"}`;
}

/** The options event of POST /answer, which came `milliseconds` after the question. */
export function optionsView({ options, reason, nothing, missing = [], nearest = [], milliseconds: first }) {
  if (options.length === 0) return [element("p", { class: "hint" }, reason ?? "Nothing was found.")];
  const what = options.length === 1 ? "One product" : `${options.length} products`;
  return [
    lacking(nothing, missing, nearest),
    element("p", { class: "first" }, `${what} after ${milliseconds(first)}, the plan included`),
    element("ol", { class: "options" }, options.map(card)),
  ].filter((child) => child !== null);
}

/** Says first what the shop has not got; a product that does not say what it is may still be it. */
function lacking(nothing, missing, nearest) {
  const kinds = nearest.length > 0 ? ` The nearest that this shop has: ${nearest.join(", ")}.` : "";
  if (nothing) return element("p", { class: "nothing" }, `None of these says that it is what was asked for.${kinds}`);
  if (missing.length === 0) return null;
  return element("p", { class: "nothing" }, "Not found: ", element("bdi", {}, missing.join(", ")));
}

function card(option) {
  const wishes = LISTS.flatMap(([list, shape, words]) => option[list].map((wish) => wishView(wish, shape, words)));
  return element(
    "li",
    {},
    element("h3", {}, option.name),
    element("p", { class: "price" }, money(option)),
    element("p", { class: "category" }, option.category),
    wishes.length > 0 ? element("ul", { class: "wishes" }, wishes) : null,
  );
}

function wishView({ says }, shape, words) {
  return element(
    "li",
    { class: `wish wish-${shape}`, title: words },
    element("span", { class: "shape", "aria-hidden": "true" }, { accepted: "✓", rejected: "✗", sampled: "?" }[shape]),
    element("bdi", {}, says),
    unseen(`: ${words}`),
  );
}

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
