// The first three products for a question, each with what of the shopper's wishes it meets.

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
