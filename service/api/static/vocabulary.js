// What the words of a plan are called on the page: the served vocabulary, and the few lists that are the plan's own.

export const MODES = { keyword: "Keywords", conversational: "Conversation" };

export const SORTS = {
  price_asc: "cheapest first",
  price_desc: "dearest first",
  rating: "best rated first",
  newest: "newest first",
  best_selling: "best sellers first",
};

export const STRATEGIES = {
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
export const spoken = (key) => key.replaceAll(/[_-]/g, " ");

export const titled = (key) => spoken(key).replace(/^./, (first) => first.toUpperCase());

export const isAboutProducts = (intent) => served.intents[intent]?.products ?? false;

export const meaningOf = (intent) => served.intents[intent]?.description ?? "";

export const verticalName = (vertical) => served.verticals[vertical]?.name ?? titled(vertical);
