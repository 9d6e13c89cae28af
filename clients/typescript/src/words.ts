/** Words of text as they are searched and compared: what `peakplan_client.mapping` has in Python. */

const WORD = /[\p{L}\p{N}]+(?:[.'’-][\p{L}\p{N}]+|(?<=\p{Nd})[,/](?=\p{Nd})[\p{L}\p{N}]+)*/gu;
const FRACTION = /(?<=\p{Nd})(?=[¼-¾⅐-⅞])/gu;
const PLURALS = [["ies", "y"], ["sses", "ss"], ["shes", "sh"], ["ches", "ch"], ["xes", "x"]] as const;

/** What is one of a material or a colour, as `words.yaml` of the Python client has it. */
const NARROWER: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  material: {
    leather: ["suede", "nubuck", "nappa", "cowhide", "calfskin", "sheepskin", "lambskin", "oxhide"],
    wool: ["merino", "cashmere", "mohair", "lambswool"],
    metal: ["steel", "iron", "brass", "copper", "aluminum", "aluminium", "titanium"],
    wood: ["wooden", "oak", "walnut", "mahogany", "teak", "pine", "bamboo", "birch", "maple"],
    wooden: ["wood", "oak", "walnut", "mahogany", "teak", "pine", "bamboo", "birch", "maple"],
    glass: ["crystal"],
    ceramic: ["porcelain", "stoneware", "earthenware"],
    plastic: ["acrylic", "vinyl"],
    synthetic: ["polyester", "nylon", "acrylic"],
    cotton: ["denim", "corduroy"],
    silk: [],
    linen: [],
    canvas: [],
    rubber: [],
    velvet: [],
  },
  color: {
    red: ["crimson", "scarlet", "burgundy", "maroon"],
    blue: ["navy", "azure", "cobalt", "indigo"],
    green: ["olive", "emerald", "sage", "khaki"],
    black: ["ebony"],
    white: ["ivory"],
    brown: ["tan", "chestnut"],
    grey: ["gray", "charcoal"],
    gray: ["grey", "charcoal"],
    purple: ["violet", "lavender", "mauve"],
    pink: ["magenta", "fuchsia"],
    yellow: ["mustard"],
    orange: [],
    beige: [],
    teal: [],
    turquoise: [],
  },
};

/** Return the words of a text in lower case: letters and digits, with single signs inside ("t-shirt", "3.5mm"). */
export function words(text: string): string[] {
  const plain = text.replace(FRACTION, "-").normalize("NFKC").replaceAll("\u2044", "/");
  return plain.toLowerCase().replaceAll("ß", "ss").replaceAll("ς", "σ").match(WORD) ?? [];
}

/** Return a value's words as they are compared, without plural and signs, with a space between two. */
export function normal(text: string): string {
  return words(text)
    .flatMap((word) => word.split(/[.-]/))
    .map(stem)
    .join(" ");
}

function stem(given: string): string {
  const word = given.replaceAll("’", "'").replace(/'s?$|'(?=s$)/, "");
  for (const [ending, singular] of PLURALS) {
    if (word.endsWith(ending) && word.length > ending.length + 1) return word.slice(0, -ending.length) + singular;
  }
  return word.length > 3 && word.endsWith("s") && !/(?:ss|us|is)$/.test(word) ? word.slice(0, -1) : word;
}

/** Return the words for what is one of a material or colour: suede of leather. */
export function narrower(facet: string, said: string): readonly string[] {
  const wanted = normal(said);
  return Object.entries(NARROWER[facet] ?? {}).find(([broad]) => normal(broad) === wanted)?.[1] ?? [];
}

const REFUSED = /(?:(?<=\s)|^)(?:[-!]|NOT\s+)("[^"]+"|\p{L}[\p{L}\p{N}_'’-]*)/gu;
const EXACT = /(?<![\p{L}\p{N}_])"([^"\s][^"]*)"(?![\p{L}\p{N}_])/gu;

/** Read what shoppers write as in a search engine's own language: -nike, !leather, NOT nike, "exact words". */
export function readOperators(question: string): { question: string; refused: string[]; exact: string[] } {
  const refused = [...question.matchAll(REFUSED)].map((match) => (match[1] ?? "").replace(/^"+|"+$/g, ""));
  const rest = refused.length > 0 ? question.replace(REFUSED, " ") : question;
  const exact = [...rest.matchAll(EXACT)].map((match) => match[1] ?? "");
  return { question: rest, refused: [...new Set(refused)], exact: [...new Set(exact)] };
}

/** Return a query without words that the question refuses. */
export function withoutWords(query: string, refused: readonly string[]): string {
  const escaped = refused.map((word) => `(?<![\\p{L}\\p{N}_])[-!]?${word.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&")}(?![\\p{L}\\p{N}_])`);
  return query.replace(new RegExp(escaped.join("|"), "giu"), " ").split(/\s+/).filter(Boolean).join(" ");
}
