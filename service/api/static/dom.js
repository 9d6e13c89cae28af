// Building elements. Strings only ever become text nodes, so a shopper's words can never become markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes (null and false are left out) and children (strings become text, null is left out). */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null));
  return node;
}

/** What a product costs; nothing where its catalogue does not tell. */
export function money({ price, currency = "USD" }) {
  return price === null ? "" : price.toLocaleString("en", { style: "currency", currency });
}

/** Words for screen readers alone. */
export function unseen(text) {
  return element("span", { class: "unseen" }, text);
}

/** One of the shapes that index.html defines; it says the same as the words beside it, so it is hidden from readers. */
export function mark(name) {
  const svg = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  svg.setAttribute("class", "mark");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#mark-${name}`);
  svg.append(use);
  return svg;
}

/** "1 token", "3 tokens". */
export function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/** Milliseconds with as many digits as mean something. */
export function milliseconds(value) {
  return `${value >= 100 ? Math.round(value) : value.toFixed(1)} ms`;
}
