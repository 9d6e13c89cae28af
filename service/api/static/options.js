// The first three products for a question, each with what of the shopper's wishes it meets.

import { element, milliseconds, unseen } from "./dom.js";

const LISTS = [
  ["met", "accepted", "has it"],
  ["unmet", "rejected", "has it not"],
  ["unknown", "sampled", "the catalogue does not tell"],
];

/** The options event of POST /answer, which came `milliseconds` after the question. */
export function optionsView({ options, reason, nothing, milliseconds: first }) {
  if (options.length === 0) return [element("p", { class: "hint" }, reason ?? "Nothing was found.")];
  const what = options.length === 1 ? "One product" : `${options.length} products`;
  return [
    element("p", { class: "first" }, `${what} after ${milliseconds(first)}, the plan included`),
    nothing ? element("p", { class: "nothing" }, "None of them is what was asked for; they share words with it.") : null,
    element("ol", { class: "options" }, options.map(card)),
  ].filter((child) => child !== null);
}

function card(option) {
  const wishes = LISTS.flatMap(([list, shape, words]) => option[list].map((wish) => wishView(wish, shape, words)));
  return element(
    "li",
    {},
    element("h3", {}, option.name),
    element("p", { class: "price" }, option.price.toLocaleString("en", { style: "currency", currency: "USD" })),
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
