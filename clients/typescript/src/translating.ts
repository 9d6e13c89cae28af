/** `translate(plan, mapping, engine, question)`: a plan as what one engine's API takes, the same as in Python. */

import { algolia, meilisearch, type Request, type Translator, typesense } from "./engines.js";
import { type Mapping, type SearchedPlan, searches } from "./searching.js";

const LIMIT = 10;
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
