// What the closed vocabularies of a plan are called on the page; tests compare the keys with the planner's own.

export const MODES = { keyword: "Keywords", conversational: "Conversation" };

/** How a plan's sentence opens; for the two product intents the thing itself follows. */
export const INTENTS = {
  find_product: "Looking for",
  ask_product: "Asking about",
  order_status: "Asking where an order or a refund is",
  order_change: "Placing, changing or cancelling an order",
  returns_refunds: "Asking about a return or a refund",
  payment_billing: "Asking about a payment or an invoice",
  policy_help: "Asking how the shop works: delivery, payment, fees",
  account: "Needs help with an account",
  contact_agent: "Wants to speak to a person",
  feedback: "Leaving a review or a complaint",
  out_of_scope: "Not a question for the shop",
};

export const VERTICALS = {
  aa: "Apparel & Accessories",
  ae: "Arts & Entertainment",
  ap: "Animals & Pet Supplies",
  bi: "Business & Industrial",
  bt: "Baby & Toddler",
  co: "Cameras & Optics",
  el: "Electronics",
  fb: "Food, Beverages & Tobacco",
  fr: "Furniture",
  gc: "Gift Cards",
  ha: "Hardware",
  hb: "Health & Beauty",
  hg: "Home & Garden",
  lb: "Luggage & Bags",
  me: "Media",
  os: "Office Supplies",
  rc: "Religious & Ceremonial",
  sg: "Sporting Goods",
  so: "Software",
  tg: "Toys & Games",
  vp: "Vehicles & Parts",
};

export const FACETS = {
  type: "type",
  brand: "brand",
  line: "line",
  model: "model",
  color: "colour",
  material: "material",
  size: "size",
  count: "count",
  audience: "audience",
  shape: "shape",
  condition: "condition",
  occasion: "occasion",
  theme: "theme",
  origin: "origin",
  time: "time",
  feature: "feature",
};

export const SOURCES = {
  catalog: "Catalogue",
  reviews: "Reviews",
  qa: "Questions and answers",
  help: "Help pages",
  orders: "The shopper’s orders",
};

export const STRATEGIES = {
  medusa: "Medusa heads",
  draft: "a draft model",
  autoregressive: "plain greedy decoding",
  rules: "rules",
};
