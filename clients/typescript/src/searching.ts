/** From a plan and a mapping to searches that no engine has a say in yet, as `peakplan_client.searching` makes them. */

import { narrower, normal, readOperators, withoutWords, words } from "./words.js";

export type Value = string | number | boolean;
export interface FacetMapping { field?: string; values?: Record<string, string[]>; ids?: Record<string, string>; boost?: number; filter?: boolean }
export interface SortMapping { field?: string; order?: "asc" | "desc"; index?: string }
/** A mapping file, read: docs/search.md explains each key. */
export interface Mapping {
  index: string;
  text: Record<string, number>;
  exclude_text?: string[];
  facets?: Record<string, FacetMapping>;
  vertical?: { field: string; values: Record<string, string[]>; boost?: number };
  price?: { field: string; currency?: string; currency_field?: string; rates?: Record<string, number> };
  rating?: { field: string; best?: number };
  offers?: Record<string, { field: string; values?: Value[]; min?: number }>;
  sort?: Record<string, SortMapping>;
}

type Facets = Readonly<Record<string, readonly string[]>>;
interface Price { min?: number | null; max?: number | null; currency?: string | null }
interface Part { facets?: Facets; exclude?: Facets; price?: Price; queries?: readonly string[] }
/** What of a plan is searched with. */
export interface SearchedPlan extends Part {
  vertical?: string | null;
  rating?: { min?: number | null };
  sort?: string;
  offers?: readonly string[];
  parts?: readonly Part[];
  kinds?: readonly { id: string; name: string }[];
}

export interface Text { words: string; weight: number }
export type Filter =
  | { is: "range"; field: string; min: number | null; max: number | null }
  | { is: "any"; field: string; values: readonly Value[] }
  | { is: "none"; field: string; values: readonly Value[] }
  | { is: "not in text"; fields: readonly string[]; words: string };
export interface Boost { field: string | null; values: readonly string[]; weight: number }
export interface Wanted { field: string | null; values: readonly string[]; fields: readonly string[]; isKind: boolean }
export interface Search { texts: Text[]; filters: Filter[]; boosts: Boost[]; sort: SortMapping | undefined; wanted: Wanted[] }

const KIND = "type";
const KIND_SHARES = [1, 0.5, 0.3];
const QUERY_WEIGHTS = [1, 0.3, 0.2];
const NAMES_WEIGHT = 0.3;
const OWN_WORDS_WEIGHT = 0.5;
const EXACT_WEIGHT = 5;

/** Return one search, or where several things are wanted one for each and one for the question as it stands. */
export function searches(plan: SearchedPlan, mapping: Mapping, asked: string): { searches: Search[]; notes: string[] } {
  if (!plan.queries?.length) return { searches: [], notes: ["the plan has no queries: there is nothing to search"] };
  const { question, refused, exact } = readOperators(asked);
  const kept = { ...withoutRefused(plan, refused), parts: (plan.parts ?? []).map((part) => withoutRefused(part, refused)) };
  const translation = new Searching(kept, mapping, exact);
  const { parts } = kept;
  const last = parts.length > 0 && words(question).length > 0 ? [] : (kept.queries ?? []);
  const found = [...parts.map((part) => translation.search(part, part.queries ?? [])), translation.search(kept, last, question)];
  return { searches: found.filter(({ texts }) => texts.length > 0), notes: [...translation.notes] };
}

function withoutRefused<T extends Part>(part: T, refused: readonly string[]): T {
  if (refused.length === 0) return part;
  const names = new Set(refused.map(normal));
  const facets = Object.entries(part.facets ?? {}).map(([facet, values]) => [facet, values.filter((value) => !names.has(normal(value)))] as const);
  const queries = [...new Set((part.queries ?? []).map((query) => withoutWords(query, refused)).filter(Boolean))];
  const known = new Set(Object.values(part.exclude ?? {}).flat().map(normal));
  const more = refused.filter((word) => !known.has(normal(word)));
  const exclude = more.length > 0 ? { ...part.exclude, feature: [...(part.exclude?.["feature"] ?? []), ...more] } : part.exclude;
  return { ...part, exclude: exclude ?? {}, queries: queries.length > 0 ? queries : part.queries,
           facets: Object.fromEntries(facets.filter(([, values]) => values.length > 0)) };
}

/** The names of one facet's values. */
class Values {
  readonly #byName = new Map<string, string[]>();
  #longest = 0;

  constructor(readonly mapping: FacetMapping) {
    for (const [value, synonyms] of Object.entries(mapping.values ?? {})) {
      for (const name of [value, ...synonyms]) {
        const key = normal(name);
        const held = this.#byName.get(key) ?? [];
        if (!held.includes(value)) this.#byName.set(key, [...held, value]);
        this.#longest = Math.max(this.#longest, key === "" ? 0 : key.split(" ").length);
      }
    }
  }

  exact(said: string): string[] {
    if (this.mapping.values === undefined) return this.mapping.field !== undefined && words(said).length > 0 ? [words(said).join(" ")] : [];
    return this.#byName.get(normal(said)) ?? [];
  }

  called(said: string): string[] {
    return this.exact(said).filter((value) => this.mapping.values === undefined || normal(value) === normal(said));
  }

  within(said: string): string[] {
    const exact = this.exact(said);
    if (this.mapping.values === undefined || exact.length > 0) return exact;
    const all = normal(said).split(" ");
    for (let length = Math.min(all.length - 1, this.#longest); length > 0; length--) {
      const found = this.#byName.get(all.slice(-length).join(" "));
      if (found) return found;
    }
    return [];
  }

  names(values: readonly string[]): string[] {
    return values.flatMap((value) => [value, ...(this.mapping.values?.[value] ?? [])].map((name) => words(name).join(" ")));
  }
}

class Searching {
  readonly notes = new Set<string>();
  readonly #facets: Map<string, Values>;
  readonly #exact: Boost[];

  constructor(
    private readonly plan: SearchedPlan,
    private readonly mapping: Mapping,
    exact: readonly string[],
  ) {
    this.#facets = new Map(Object.entries(mapping.facets ?? {}).map(([name, facet]) => [name, new Values(facet)]));
    const phrases = exact.map((phrase) => words(phrase).join(" ")).filter(Boolean);
    this.#exact = phrases.map((phrase) => ({ field: null, values: [phrase], weight: EXACT_WEIGHT }));
  }

  search(part: Part, queries: readonly string[], question = ""): Search {
    const facets = part.facets ?? {};
    const filters = [...this.#price(part.price ?? {}), ...this.#rating(), ...this.#offers(), ...this.#exclusions(part.exclude ?? {})];
    filters.push(...this.#required(facets));
    const kinds = this.#kinds(part);
    const boosts = [...this.#boosts(facets), ...kinds];
    const closed = new Set([...this.#facets.values()].flatMap(({ mapping }) => (mapping.values ? [mapping.field] : [])));
    const said = new Set(normal(queries.join(" ")).split(" "));
    const named = boosts.filter(({ field }) => field !== null && closed.has(field)).flatMap(({ values }) => values);
    const names = named.filter((value) => [...value].length > 1 && !normal(value).split(" ").every((word) => said.has(word)));
    let wanted = [...this.#wanted(facets)];
    if (kinds.length > 0 && !facets[KIND]?.length) {
      wanted = [...kinds.map(({ field, values }) => ({ field, values, fields: [], isKind: true })), ...wanted];
      if (this.mapping.facets?.[KIND]?.filter) filters.push({ is: "any", field: kinds[0]?.field ?? "", values: kinds.flatMap(({ values }) => values) });
    }
    const weighed = queries.slice(0, QUERY_WEIGHTS.length).map((query, at) => [query, QUERY_WEIGHTS[at] ?? 0] as const);
    const texts = textsOf([...weighed, [names.join(" "), NAMES_WEIGHT], [question, OWN_WORDS_WEIGHT]]);
    return { texts, filters, boosts: [...boosts, ...this.#exact, ...this.#vertical()], sort: this.#sort(), wanted };
  }

  #kinds(part: Part): (Boost & { field: string })[] {
    const facet = this.#facets.get(KIND);
    const boost = facet?.mapping.boost ?? 0.5;
    if (facet?.mapping.field === undefined || !boost || part !== this.plan || this.plan.parts?.length) return [];
    if (facet.mapping.values && (part.facets?.[KIND] ?? []).some((said) => facet.within(said).length > 0)) return [];
    const found: (Boost & { field: string })[] = [];
    for (const [at, kind] of (this.plan.kinds ?? []).slice(0, KIND_SHARES.length).entries()) {
      const id = facet.mapping.ids?.[kind.id];
      const values = id === undefined ? facet.exact(kind.name) : [id];
      if (values.length > 0) found.push({ field: facet.mapping.field, values, weight: rounded(boost * (KIND_SHARES[at] ?? 0)) });
      else this.notes.add("a kind of the plan is no value of the mapping: learn shop folder and mapping from one catalogue");
    }
    return found;
  }

  #price({ min = null, max = null, currency }: Price): Filter[] {
    const mapping = this.mapping.price;
    if (min === null && max === null) return [];
    if (mapping === undefined) {
      this.notes.add("the mapping has no price: prices are not filtered");
      return [];
    }
    let rate: number | undefined = 1;
    if (currency && mapping.currency && currency !== mapping.currency) rate = mapping.rates?.[currency];
    if (rate === undefined) {
      this.notes.add(
        `prices are not filtered: the question is in ${currency}, the catalogue in ${mapping.currency}, and the mapping has no price.rates.${currency}`,
      );
      return [];
    }
    const [low, high] = [min, max].map((bound) => (bound === null ? null : Number((bound * rate).toFixed(2))));
    const same: Filter[] = mapping.currency_field ? [{ is: "any", field: mapping.currency_field, values: [mapping.currency ?? ""] }] : [];
    return [{ is: "range", field: mapping.field, min: low ?? null, max: high ?? null }, ...same];
  }

  #rating(): Filter[] {
    const least = this.plan.rating?.min ?? null;
    if (least === null) return [];
    const mapping = this.mapping.rating;
    if (mapping) return [{ is: "range", field: mapping.field, min: Number(((least * (mapping.best ?? 5)) / 5).toFixed(4)), max: null }];
    this.notes.add("the mapping has no rating: ratings are not filtered");
    return [];
  }

  #offers(): Filter[] {
    const found: Filter[] = [];
    for (const offer of this.plan.offers ?? []) {
      const wanted = this.mapping.offers?.[offer];
      if (wanted === undefined) this.notes.add(`the mapping has no offers.${offer}: it is not filtered`);
      else if (wanted.values === undefined) found.push({ is: "range", field: wanted.field, min: wanted.min ?? null, max: null });
      else found.push({ is: "any", field: wanted.field, values: wanted.values });
    }
    return found;
  }

  #exclusions(exclude: Facets): Filter[] {
    const found = new Map<string, Filter>();
    for (const [facet, values] of Object.entries(exclude)) {
      for (const said of values) {
        const refused = this.#refused(facet, said);
        for (const each of refused) found.set(JSON.stringify(each), found.get(JSON.stringify(each)) ?? each);
        if (refused.length === 0) this.notes.add(`a ${facet} is not excluded: the mapping has neither its value nor exclude_text`);
      }
    }
    return [...found.values()];
  }

  #refused(facet: string, said: string): Filter[] {
    const names = [said, ...narrower(facet, said)];
    const own = names.flatMap((name) => this.#refusable(facet, name));
    if (own.length > 0) return own;
    const found = [...this.#facets].flatMap(([name, known]) => (known.mapping.values ? this.#refusable(name, said) : []));
    const fields = this.mapping.exclude_text ?? [];
    if (fields.length === 0) return found;
    const phrases = names.map((name) => words(name).join(" ")).filter(Boolean);
    return [...found, ...phrases.map((phrase): Filter => ({ is: "not in text", fields, words: phrase }))];
  }

  #refusable(facet: string, said: string): Filter[] {
    const values = this.#facets.get(facet);
    if (values?.mapping.field === undefined) return [];
    const known = facet === KIND ? values.called(said) : values.exact(said);
    return known.length > 0 ? [{ is: "none", field: values.mapping.field, values: known }] : [];
  }

  #required(facets: Facets): Filter[] {
    return Object.entries(facets).flatMap(([facet, values]): Filter[] => {
      const known = this.#facets.get(facet);
      if (!known?.mapping.filter || known.mapping.field === undefined) return [];
      const wanted = [...new Set(values.flatMap((said) => known.within(said)))];
      return wanted.length > 0 ? [{ is: "any", field: known.mapping.field, values: wanted }] : [];
    });
  }

  #boosts(facets: Facets): Boost[] {
    const found: Boost[] = [];
    for (const [facet, values] of Object.entries(facets)) {
      const known = this.#facets.get(facet);
      const weight = known?.mapping.boost ?? 0.5;
      if (known === undefined || !weight) continue;
      const of = (said: string): string[] => (known.mapping.field === undefined ? [] : known.within(said));
      const named = [...new Set(values.flatMap(of))];
      const others = values.filter((said) => of(said).length === 0 && normal(said) !== "").map((said) => words(said).join(" "));
      if (named.length > 0) found.push({ field: known.mapping.field ?? null, values: named, weight });
      if (others.length > 0 && known.mapping.values === undefined) found.push({ field: null, values: [...new Set(others)], weight });
    }
    return found;
  }

  *#wanted(facets: Facets): Generator<Wanted> {
    for (const [facet, values] of Object.entries(facets)) {
      const known = this.#facets.get(facet);
      for (const said of values.filter((each) => words(each).length > 0)) {
        const named = this.#known(said, known);
        if (facet === KIND) yield* this.#kind(this.#thing(said, known), known);
        else if (known && named.length > 0) yield { field: known.mapping.field ?? null, values: named, fields: [], isKind: false };
        else yield { field: null, values: [words(said).join(" ")], fields: Object.keys(this.mapping.text), isKind: false };
      }
    }
  }

  *#kind(said: string, facet: Values | undefined): Generator<Wanted> {
    const known = this.#known(said, facet);
    const heaviest = Math.max(...Object.values(this.mapping.text));
    const names = Object.entries(this.mapping.text).flatMap(([field, weight]) => (weight > heaviest / 2 ? [field] : []));
    if (facet && known.length > 0) yield { field: facet.mapping.field ?? null, values: known, fields: [], isKind: true };
    const isAll = known.some((value) => ` ${normal(said)}`.endsWith(` ${normal(value)}`));
    if (isAll && (this.plan.sort ?? "relevance") !== "relevance") return;
    const called = new Set([words(said).at(-1) ?? "", ...(facet && isAll ? facet.names(known) : [])]);
    const others = names.filter((name) => facet === undefined || name !== facet.mapping.field);
    yield { field: null, values: [...called], fields: others.length > 0 ? others : names, isKind: true };
    if (known.length === 0 && facet?.mapping.values) {
      this.notes.add("the mapping knows no kind of this name: what is found may be something else");
    }
  }

  #known(said: string, facet: Values | undefined): string[] {
    return facet?.mapping.field === undefined ? [] : facet.within(said);
  }

  #thing(said: string, facet: Values | undefined): string {
    const at = said.indexOf(" of ");
    if (at < 0 || at + 4 === said.length) return said;
    const [thing, of] = [said.slice(0, at), said.slice(at + 4)];
    return this.#known(thing, facet).length > 0 && this.#known(of, facet).length === 0 ? thing : said;
  }

  #vertical(): Boost[] {
    const mapping = this.mapping.vertical;
    const weight = mapping?.boost ?? 0.3;
    const values = mapping?.values[this.plan.vertical ?? ""] ?? [];
    return mapping && weight && values.length > 0 ? [{ field: mapping.field, values, weight }] : [];
  }

  #sort(): SortMapping | undefined {
    const { sort = "relevance" } = this.plan;
    if (sort === "relevance") return undefined;
    const found = this.mapping.sort?.[sort];
    if (found === undefined) this.notes.add(`the mapping has no sort.${sort}: results stay sorted by relevance`);
    return found;
  }
}

function textsOf(given: readonly (readonly [string, number])[]): Text[] {
  const texts = new Map<string, number>();
  for (const [text, weight] of given) {
    const plain = words(text).join(" ");
    if (plain) texts.set(plain, (texts.get(plain) ?? 0) + weight);
  }
  return [...texts].map(([plain, weight]) => ({ words: plain, weight: rounded(weight) }));
}

/** Return a number with six digits after the point at most. */
export function rounded(value: number): number {
  return Math.round(value * 1e6) / 1e6;
}
