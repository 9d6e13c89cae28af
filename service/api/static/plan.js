// A plan as people would read it.

import { count, element, milliseconds, unseen } from "./dom.js";
import { FACETS, INTENTS, MODES, SOURCES, STRATEGIES, VERTICALS } from "./vocabulary.js";

const ORIGINS = { model: "Model", cache: "Cache", fallback: "Rules" };
const REASONS = {
  deadline: "The model needs longer than this question may take",
  capacity: "More is asked right now than the model can do",
  too_long: "This is more than the model can read or write",
  engine: "No replica of the model gave a sound answer",
};
const THINGS = ["type", "line", "model", "brand"]; // what a product sentence may be about, best first
const CURRENCIES = [
  ["$", /\$|\b(usd|dollars?|bucks?)\b/i],
  ["£", /£|\b(gbp|pounds?|quid)\b/i],
  ["€", /€|\b(eur|euros?)\b/i],
  ["¥", /¥|\b(jpy|yen)\b/i],
];

/** The plan in one line, as parts: what is asked, then each facet and price that narrows it. */
export function sentence(plan, utterances) {
  const opening = INTENTS[plan.intent] ?? plan.intent;
  if (plan.intent !== "find_product" && plan.intent !== "ask_product") return [opening];
  const thing = THINGS.find((facet) => plan.facets[facet]);
  const what = thing ? plan.facets[thing].join(", ") : (plan.queries[0] ?? "something");
  const rest = Object.entries(plan.facets).filter(([facet]) => facet !== thing);
  const narrowing = rest.map(([facet, values]) => named(FACETS[facet] ?? facet, values.join(", ")));
  const price = priceWords(plan.price, utterances);
  return [`${opening} ${what}`, ...narrowing, ...(price ? [price] : [])];
}

/** "brand nike", but "size 10" where the shopper said "size 10" and not "10". */
function named(label, value) {
  return value.toLowerCase().startsWith(`${label} `) ? value : `${label} ${value}`;
}

/** "under $100", "$20 to $40", or null where no bound is named; the currency is the one the shopper wrote, if any. */
export function priceWords({ min, max }, utterances) {
  const said = utterances.join(" ");
  const symbol = CURRENCIES.find(([, pattern]) => pattern.test(said))?.[0] ?? "";
  const money = (amount) => symbol + amount.toLocaleString("en", { maximumFractionDigits: 2 });
  if (min !== null && max !== null) return `${money(min)} to ${money(max)}`;
  if (max !== null) return `under ${money(max)}`;
  return min !== null ? `over ${money(min)}` : null;
}

/** The whole answer of POST /plan; `utterances` are the history and the question, oldest first. */
export function planView(answer, utterances) {
  const { plan } = answer;
  const [opening, ...narrowing] = sentence(plan, utterances);
  return [
    element("p", { class: "asked", dir: "auto" }, utterances.join(" → ")),
    element(
      "p",
      { class: "sentence" },
      element("strong", {}, opening),
      narrowing.flatMap((part) => [" · ", element("bdi", {}, part)]),
    ),
    answer.degraded ? degradedNote(answer) : null,
    element("dl", { class: "facts" }, facts(plan, utterances)),
    element("p", { class: "origin" }, originBadge(answer), ` ${originWords(answer)}`),
    element(
      "details",
      {},
      element("summary", {}, "The answer as JSON"),
      element(
        "pre",
        { tabindex: "0", role: "region", "aria-label": "The answer as JSON" },
        JSON.stringify(answer, null, 2),
      ),
    ),
  ].filter((child) => child !== null);
}

function facts(plan, utterances) {
  const price = priceWords(plan.price, utterances);
  const chips = Object.entries(plan.facets).flatMap(([facet, values]) => values.map((value) => chip(facet, value)));
  if (price) chips.push(chip("price", price));
  const sources = plan.sources.map((source) => SOURCES[source] ?? source);
  return [
    fact("Facets", chips.length > 0 ? element("ul", { class: "chips" }, chips) : "None named"),
    fact("Searches, in order", listed("queries", plan.queries, "Nothing to search")),
    fact("Sources, best first", listed("sources", sources, "None to ask")),
    fact("Vertical", plan.vertical === null ? "Any" : (VERTICALS[plan.vertical] ?? plan.vertical)),
    fact("Written as", MODES[plan.mode] ?? plan.mode),
  ];
}

function fact(term, description) {
  return element("div", {}, element("dt", {}, term), element("dd", {}, description));
}

function chip(facet, value) {
  return element(
    "li",
    { class: "chip" },
    element("span", { class: "chip-label" }, FACETS[facet] ?? facet),
    unseen(": "),
    element("bdi", { class: "chip-value" }, value),
  );
}

function listed(name, items, otherwise) {
  if (items.length === 0) return otherwise;
  return element("ol", { class: name }, items.map((item) => element("li", {}, element("bdi", {}, item))));
}

function degradedNote({ reason }) {
  const cause = `${REASONS[reason] ?? "The model did not answer"}, so rules wrote this plan.`;
  return element("p", { class: "degraded" }, `${cause} Degraded: valid and safe to search with, but coarser.`);
}

function originBadge({ source }) {
  return element("span", { class: `badge badge-${source}` }, ORIGINS[source] ?? source);
}

function originWords({ source, model, usage, timing_ms: timing }) {
  const total = milliseconds(timing.total);
  if (source !== "model") return `${total} in all`;
  const strategy = STRATEGIES[model.strategy] ?? model.strategy;
  return (
    `${model.id} with ${strategy}: ${total} in all, ${milliseconds(timing.model)} in the model, ` +
    `${milliseconds(timing.queue)} waiting; ${count(usage.plan_tokens, "token")} in ${count(usage.steps, "forward")} ` +
    `after ${usage.prompt_tokens} of prompt`
  );
}
