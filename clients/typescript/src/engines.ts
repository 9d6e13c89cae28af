/**
 * `translate(plan, mapping, engine, question)`: a plan as what one engine's API takes, the same as in Python.
 *
 * The engines are those that a front-end asks itself: Algolia, Meilisearch and Typesense; `peakplan_client.engines` in Python.
 */

import {
  type Filter, type Mapping, rounded, type Search, type SearchedPlan, searches, type Value, type Wanted,
} from "./searching.js";

type Note = (text: string) => void;
export type Request = Record<string, unknown>;
/** Return the request of one search. */
export type Translator = (search: Search, mapping: Mapping, limit: number, note: Note) => Request;

const SORTED_ANYWAY = "this sort has no field in the mapping: results stay sorted by relevance";
const PLAIN_FIELD = /^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$/;
const LIMIT = 10; // of products, unless a caller says otherwise
const MOST_QUERY_BYTES = 512; // of Algolia
const SORTED_STRICTNESS = 60; // per cent, of Algolia's virtual replicas
const MOST_RANK = 127; // the largest weight of a field in Typesense

const numbered = (value: number): string => value.toFixed(6).replace(/0+$/, "").replace(/\.$/, "");
const bytes = (text: string): number => new TextEncoder().encode(text).length;

/** Round as Python does: halves to the even number. */
function whole(value: number): number {
  const up = Math.round(value);
  return Math.abs(value % 1) === 0.5 && up % 2 !== 0 ? up - 1 : up;
}

function refuseOddFields(mapping: Mapping, engine: string, signs = ""): void {
  const { facets = {}, offers = {}, sort = {}, vertical, rating, price } = mapping;
  const parts = [...Object.values(facets), ...Object.values(offers), ...Object.values(sort), vertical, rating];
  const fields = [...Object.keys(mapping.text), ...parts.map((part) => part?.field), price?.field, price?.currency_field];
  for (const field of fields) {
    if (!field || PLAIN_FIELD.test(field) || (signs && ![...signs].some((sign) => field.includes(sign)))) continue;
    throw new RangeError(`"${field}" cannot be named in a query of ${engine}: index it under a name of letters, digits and _`);
  }
}

/** One request of a multi-query: the path `indexes/*` with `queries` takes {"requests": [...]}. */
export const algolia: Translator = (search, mapping, limit, note) => {
  refuseOddFields(mapping, "Algolia", ":<>=,");
  const ownFirst = [...search.texts.slice(-1), ...search.texts.slice(0, -1)];
  const said = cut(new Set(ownFirst.flatMap((text) => text.words.split(" "))));
  const facet = (field: string, value: Value, sign = ""): string => `${field}:${sign}${String(value).startsWith("-") ? "\\" : ""}${value}`;
  const numeric: string[] = [];
  const facets: (string | string[])[] = [];
  const phrases: string[] = [];
  for (const each of search.filters) {
    if (each.is === "range") numeric.push(...bounds(each).map(([sign, bound]) => `${each.field}${sign}${numbered(bound)}`));
    else if (each.is === "any") facets.push(each.values.map((value) => facet(each.field, value)));
    else if (each.is === "none") facets.push(...each.values.map((value) => facet(each.field, value, "-")));
    else phrases.push(each.words);
  }
  const boosts = search.boosts.flatMap(({ field, values, weight }) =>
    field === null ? [] : [values.map((value) => `${facet(field, value)}<score=${Math.max(1, whole(10 * weight))}>`)],
  );
  const body: Request = { indexName: mapping.index, query: said, optionalWords: [said], hitsPerPage: limit };
  Object.assign(body, excluded(phrases, said, note));
  for (const [name, given] of Object.entries({ numericFilters: numeric, facetFilters: facets, optionalFilters: boosts })) {
    if (given.length > 0) body[name] = given;
  }
  if (search.sort?.index !== undefined) Object.assign(body, { indexName: search.sort.index, relevancyStrictness: SORTED_STRICTNESS });
  else if (search.sort) note("Algolia sorts by a replica: give this sort its `index`; results stay sorted by relevance");
  return body;
};

function bounds({ min, max }: { min: number | null; max: number | null }): (readonly [string, number])[] {
  return ([[">=", min], ["<=", max]] as const).flatMap(([sign, bound]) => (bound === null ? [] : [[sign, bound] as const]));
}

function excluded(phrases: readonly string[], said: string, note: Note): Request {
  const single = phrases.filter((phrase) => !phrase.includes(" "));
  if (single.length < phrases.length) note("Algolia excludes single words of a text only: a phrase is not excluded");
  if (single.length === 0) return {};
  const taken = single.reduce((sum, word) => sum + bytes(word) + 2, 0);
  const kept = cut(said.split(" ").filter((word) => word && !single.includes(word)), taken);
  const query = [kept, ...single.map((word) => `-${word}`)].join(" ");
  return { query, optionalWords: [kept], advancedSyntax: true, advancedSyntaxFeatures: ["excludeWords"] };
}

/** Join as many words as a query may hold beside `taken` bytes. */
function cut(given: Iterable<string>, taken = 0): string {
  const kept: string[] = [];
  let sum = taken;
  for (const word of given) {
    sum += bytes(word) + 1;
    if (sum > MOST_QUERY_BYTES) break;
    kept.push(word);
  }
  return kept.join(" ");
}

/** The body of a `POST /multi-search` (Meilisearch 1.10 or newer): a federation; where a field sorts, lists to read in turn. */
export const meilisearch: Translator = (search, mapping, limit, note) => {
  if (search.sort?.field !== undefined) return { queries: inTurn(search, mapping, limit, `${search.sort.field}:${search.sort.order ?? "desc"}`) };
  if (search.sort) note(SORTED_ANYWAY);
  const boosts = search.boosts.flatMap(({ field, values, weight }) => (field === null ? [] : [[oneOf(field, values), 1 + weight] as const]));
  const queries: Request[] = [];
  for (const [at, text] of search.texts.entries()) {
    const common = query(text.words, search, mapping);
    queries.push(weighed(common, text.weight));
    const singles = at === 0 || boosts.length === 1 ? boosts : [];
    queries.push(...singles.map(([boost, weight]) => weighed(common, text.weight * weight, [boost])));
    if (boosts.length > 1) {
      const weight = boosts.reduce((sum, each) => sum + each[1] - 1, 0) + 1;
      queries.push(weighed(common, text.weight * weight, boosts.map(([boost]) => boost)));
    }
  }
  return { federation: { limit }, queries };
};

interface Query { indexUid: string; q: string; matchingStrategy: string; filter?: string[] }

function query(said: string, search: Search, mapping: Mapping): Query {
  const refused = search.filters.flatMap((each) =>
    each.is === "not in text" ? [each.words.includes(" ") ? `-"${each.words}"` : `-${each.words}`] : [],
  );
  const filter = search.filters.flatMap((each) => (each.is === "not in text" ? [] : [meiliFilter(each)]));
  const both = { indexUid: mapping.index, q: [...refused, said].join(" "), matchingStrategy: "frequency" };
  return filter.length > 0 ? { ...both, filter } : both;
}

function weighed(common: Query, weight: number, filters: readonly string[] = []): Request {
  const filter = [...(common.filter ?? []), ...filters];
  return { ...common, ...(filter.length > 0 ? { filter } : {}), federationOptions: { weight: rounded(weight) } };
}

function inTurn(search: Search, mapping: Mapping, limit: number, sort: string): Request[] {
  const [own, strict] = [search.texts.at(-1)?.words ?? "", search.texts[0]?.words ?? ""];
  const common = { ...query(strict, search, mapping), limit, sort: [sort] };
  const holds = ({ field, values }: Wanted): string => oneOf(field ?? "", values);
  const ofKind = search.wanted.filter(({ isKind, field }) => isKind && field !== null).map(holds);
  const others = search.wanted.filter(({ isKind, field }) => !isKind && field !== null).map(holds);
  const tiers = ofKind.length === 0 ? [] : others.length > 0 ? [[...ofKind, ...others], ofKind] : [ofKind];
  const queries: Request[] = tiers.map((tier) => ({ ...common, filter: [...(common.filter ?? []), ...tier] }));
  const named = search.wanted.filter(({ isKind, field, values }) => isKind && field === null && values.length > 0);
  for (const { values, fields } of named) {
    const { q } = query(values[0] ?? "", search, mapping);
    queries.push({ ...common, q, matchingStrategy: "all", attributesToSearchOn: fields });
  }
  if (named.length === 0) queries.push({ ...common, matchingStrategy: "all" });
  return [...queries, { ...common, q: query(own, search, mapping).q }];
}

function meiliFilter(condition: Exclude<Filter, { is: "not in text" }>): string {
  if (condition.is !== "range") return oneOf(condition.field, condition.values, condition.is === "any" ? "IN" : "NOT IN");
  return bounds(condition).map(([sign, bound]) => `${attribute(condition.field)} ${sign} ${numbered(bound)}`).join(" AND ");
}

function oneOf(field: string, values: readonly Value[], operator = "IN"): string {
  return `${attribute(field)} ${operator} [${values.map(quoted).join(", ")}]`;
}

const attribute = (field: string): string => (/^[A-Za-z0-9_.]*[A-Za-z0-9][A-Za-z0-9_.]*$/.test(field) ? field : quoted(field));

function quoted(value: Value): string {
  if (typeof value === "boolean") return String(value);
  if (typeof value === "number") return numbered(value);
  const visible = value.replace(/[\p{C}\p{Z}]/gu, " ").replaceAll("\\", " ").trim().split(/\s+/).join(" ");
  return `"${visible.replaceAll('"', '\\"')}"`;
}

/** The body of `POST /multi_search?per_page=<limit>` (Typesense 28 or newer): one search a text, merged into one list. */
export const typesense: Translator = (search, mapping, limit, note) => {
  refuseOddFields(mapping, "Typesense");
  if (search.sort && search.sort.field === undefined) note(SORTED_ANYWAY);
  const weights = Object.values(mapping.text);
  const common = {
    collection: mapping.index,
    query_by: Object.keys(mapping.text).join(","),
    query_by_weights: weights.map((weight) => Math.max(1, whole((MOST_RANK * weight) / Math.max(...weights)))).join(","),
    drop_tokens_threshold: limit,
    sort_by: typesenseSort(search),
    ...(search.filters.length > 0 ? { filter_by: search.filters.map(typesenseFilter).join(" && ") } : {}),
  };
  return { union: true, searches: search.texts.map(({ words }) => ({ q: words, ...common })) };
};

function typesenseSort({ sort, wanted, boosts }: Search): string {
  if (sort?.field !== undefined) {
    const named = wanted.filter(({ field }) => field !== null);
    const tiers = named.map(({ field, values, isKind }) => `(${field}:=${backticked(values)}):${isKind ? named.length : 1}`);
    const first = tiers.length > 0 ? `_eval([${tiers.join(", ")}]):desc` : "_text_match(buckets: 2):desc";
    return `${first},${sort.field}:${sort.order ?? "desc"}`;
  }
  const weights = boosts.flatMap(({ field, values, weight }) =>
    field === null ? [] : [`(${field}:=${backticked(values)}):${Math.max(1, whole(10 * weight))}`],
  );
  return `_text_match(buckets: 10):desc${weights.length > 0 ? `,_eval([${weights.join(", ")}]):desc` : ""}`;
}

function typesenseFilter(condition: Filter): string {
  if (condition.is === "range") return bounds(condition).map(([sign, bound]) => `${condition.field}:${sign}${numbered(bound)}`).join(" && ");
  if (condition.is === "not in text") return condition.fields.map((field) => `${field}:!${backtick(condition.words)}`).join(" && ");
  return `${condition.field}${condition.is === "any" ? ":=" : ":!="}${backticked(condition.values)}`;
}

const backticked = (values: readonly Value[]): string => `[${values.map(backtick).join(",")}]`;

function backtick(value: Value): string {
  if (typeof value !== "string") return typeof value === "number" ? numbered(value) : String(value);
  return `\`${value.replaceAll("`", " ").trim().split(/\s+/).join(" ")}\``;
}

const TRANSLATORS = { algolia, meilisearch, typesense } satisfies Record<string, Translator>;
/** The engines that a page asks itself, with a key that may only search. */
export type Engine = keyof typeof TRANSLATORS;

/** Requests, one for each part of the plan and one for the question; `notes` say what of the plan they leave out, and why. */
export interface Translation { requests: Request[]; notes: string[] }

/** Return the requests for an engine. `question` is what the shopper wrote; any of its words may match. */
export function translate(plan: SearchedPlan, mapping: Mapping, engine: Engine, question = "", { limit = LIMIT } = {}): Translation {
  const found = searches(plan, mapping, question);
  const notes = new Set(found.notes);
  const requests = found.searches.map((search) => TRANSLATORS[engine](search, mapping, limit, (text) => notes.add(text)));
  return { requests, notes: [...notes] };
}
