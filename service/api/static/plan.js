// A plan as people would read it, in the words of the served vocabulary.

import { count, element, milliseconds, unseen } from "./dom.js";

const MODES = { keyword: "Keywords", conversational: "Conversation" };

const SORTS = {
  price_asc: "cheapest first",
  price_desc: "dearest first",
  rating: "best rated first",
  newest: "newest first",
  best_selling: "best sellers first",
};

const STRATEGIES = {
  medusa: "Medusa heads",
  draft: "a draft model",
  autoregressive: "plain greedy decoding",
  rules: "rules",
};

const served = { intents: {}, verticals: {} };

/** Reads the vocabulary of the model that plans here; without it the page shows keys. */
export async function loadVocabulary() {
  const response = await fetch("/vocabulary", { headers: { accept: "application/json" } }).catch(() => null);
  Object.assign(served, (response?.ok ? await response.json().catch(() => null) : null) ?? {});
}

/** "order_status" as "order status". */
const spoken = (key) => key.replaceAll(/[_-]/g, " ");

const titled = (key) => spoken(key).replace(/^./, (first) => first.toUpperCase());

const isAboutProducts = (intent) => served.intents[intent]?.products ?? false;

const meaningOf = (intent) => served.intents[intent]?.description ?? "";

const verticalName = (vertical) => served.verticals[vertical]?.name ?? titled(vertical);

const ORIGINS = { model: "Model", cache: "Cache", fallback: "Rules", rules: "Rules, by choice" };
const REASONS = {
  deadline: "The model needs longer than this question may take",
  capacity: "More is asked right now than the model can do",
  too_long: "This is more than the model can read or write",
  engine: "No replica of the model gave a sound answer",
  fault: "The planner failed at this question",
};
const THINGS = ["type", "line", "model", "brand"]; // what a product sentence may be about, best first

/** The plan in one line, as parts: what is asked, then what narrows it. */
export function sentence(plan) {
  const opening = titled(plan.intent);
  if (!isAboutProducts(plan.intent)) return [opening];
  const things = (plan.parts.length > 0 ? plan.parts : [plan]).map((item) => named(item) ?? "something");
  const subject = plan.parts.length > 0 ? null : THINGS.find((facet) => plan.facets[facet]);
  const narrowing = labelled(plan, subject).map(({ label, value, refused }) => {
    if (refused) return `not ${value}`;
    // "brand nike", but "size 10" where the shopper said "size 10" and not "10"
    return value.toLowerCase().startsWith(`${label} `) || label === "" ? value : `${label} ${value}`;
  });
  return [`${opening}: ${things.join(" and ")}`, ...narrowing];
}

function named({ facets, queries }) {
  const thing = THINGS.find((facet) => facets[facet]);
  return thing ? facets[thing].join(", ") : queries[0];
}

/** Everything that narrows a plan or one of its parts, as {label, value, refused}, but for the facet `besides`. */
function labelled({ facets, exclude, price, rating, sort, offers }, besides = null) {
  const values = (table, refused) =>
    Object.entries(table)
      .filter(([facet]) => facet !== besides || refused)
      .flatMap(([facet, each]) => each.map((value) => ({ label: spoken(facet), value, refused })));
  const said = [...values(facets, false), ...values(exclude, true)];
  const money = priceWords(price);
  if (money) said.push({ label: "price", value: money });
  if (rating?.min) said.push({ label: "rating", value: `${rating.min} of 5 and up` });
  for (const offer of offers ?? []) said.push({ label: "", value: spoken(offer) });
  if (sort && sort !== "relevance") said.push({ label: "", value: SORTS[sort] ?? spoken(sort) });
  return said;
}

/** "under $100", "$20 to $40", or null where no bound is named; without a currency the amounts stand alone. */
export function priceWords({ min, max, currency }) {
  const style = currency ? { style: "currency", currency, currencyDisplay: "narrowSymbol" } : {};
  const money = (amount) => {
    const digits = Number.isInteger(amount) ? 0 : 2;
    return amount.toLocaleString("en", { ...style, minimumFractionDigits: digits, maximumFractionDigits: digits });
  };
  if (min !== null && max !== null) return `${money(min)} to ${money(max)}`;
  if (max !== null) return `under ${money(max)}`;
  return min !== null ? `over ${money(min)}` : null;
}

/** The whole answer of POST /plan; `utterances` are the history and the question, oldest first. */
export function planView(answer, utterances) {
  const { plan } = answer;
  return [
    element("p", { class: "asked", dir: "auto" }, utterances.join(" → ")),
    sentenceView(plan),
    answer.degraded ? degradedNote(answer) : null,
    element("dl", { class: "facts" }, facts(plan)),
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

/** The plan's sentence, its opening set apart. */
export function sentenceView(plan) {
  const [opening, ...narrowing] = sentence(plan);
  return element(
    "p",
    { class: "sentence", title: meaningOf(plan.intent) },
    element("strong", {}, opening),
    narrowing.flatMap((part) => [" · ", element("bdi", {}, part)]),
  );
}

function facts(plan) {
  const parts = plan.parts.map((part) => element("li", {}, chips(part), listed("queries", part.queries, "")));
  return [
    fact(parts.length > 0 ? "For all of them" : "What narrows it", chips(plan) ?? "Nothing named", "wide"),
    parts.length > 0 ? fact("Several things", element("ol", { class: "parts" }, parts), "wide") : null,
    fact("Searches, in order", listed("queries", plan.queries, "Nothing to search")),
    fact("Sources, best first", listed("sources", plan.sources.map(titled), "None to ask")),
    fact("Vertical", plan.vertical === null ? "Any" : verticalName(plan.vertical)),
    fact("Written as", MODES[plan.mode] ?? plan.mode),
  ];
}

function fact(term, description, shape = null) {
  return element("div", { class: shape }, element("dt", {}, term), element("dd", {}, description));
}

function chips(item) {
  const said = labelled(item);
  return said.length > 0 ? element("ul", { class: "chips" }, said.map(chip)) : null;
}

function chip({ label, value, refused }) {
  const before = `${refused ? "not " : ""}${label}`;
  return element(
    "li",
    { class: refused ? "chip chip-refused" : "chip" },
    before && element("span", { class: "chip-label" }, before),
    before && unseen(": "),
    element("bdi", { class: "chip-value" }, value),
  );
}

function listed(name, items, otherwise) {
  if (items.length === 0) return otherwise;
  return element("ol", { class: name }, items.map((item) => element("li", {}, element("bdi", {}, item))));
}

function degradedNote({ reason }) {
  const cause = `${REASONS[reason] ?? "The model did not answer"}, so the small reader wrote this plan.`;
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
