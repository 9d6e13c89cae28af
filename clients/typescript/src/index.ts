/** A client of a Peakplan service, for browsers and Node: `fetch` is all that it needs. */

import { type AnswerEvent, AnswerStream } from "./answering.js";
import { addresses, type Endpoint, run, type Transport } from "./call.js";
import { InvalidRequestError, PlannerError } from "./errors.js";
import { isUnit, type Trial } from "./experiments.js";
import { Batch, type BatchedRequest, batches, newest, OneQuestion, type PlanAnswer, type Planned, type PlanRequest } from "./kinds.js";
import type { components } from "./schema.js";

export type { AnswerEvent, Done, More, Option, Options, Wish } from "./answering.js";
export { type Engine, type Translation, translate } from "./engines.js";
export * from "./errors.js";
export * from "./experiments.js";
export type { BatchedRequest, PlanAnswer, Planned, PlanRequest } from "./kinds.js";
export { EventSender, type EventSenderOptions, type ShopperEvent } from "./reporting.js";
export type { components, operations, paths } from "./schema.js";
export type { Mapping } from "./searching.js";
export type Plan = components["schemas"]["Plan"];

const DEADLINE_MS = 300;
const TIMEOUT_MS = 1000;
const ANSWER_TIMEOUT_MS = 2000;
const PLANS_TIMEOUT_MS = 60_000;

export interface ClientOptions {
  /** Sent as the bearer token. Keep it out of pages: their readers could use it. */
  token?: string;
  /** The service's time for a plan, of calls without their own. */
  deadlineMs?: number;
  /** The time of a whole call with its further attempts, of calls without their own. */
  timeoutMs?: number;
  /** Questions with a `shopper` go to the endpoints of that shopper's arm. */
  trial?: Trial;
  fetch?: typeof fetch;
}

export interface CallOptions {
  /** What the shopper wrote before, newest last; the newest 8 messages count. */
  history?: readonly string[];
  /** A BCP 47 language tag. */
  locale?: string;
  deadlineMs?: number;
  timeoutMs?: number;
  signal?: AbortSignal;
  /**
   * Whom the service's experiment is to count, by an id of the shop's, which the service keeps as a hash: up to 100 visible
   * characters of ASCII, without spaces. Who has another id gets a plan, too, and is in no arm.
   */
  shopper?: string;
}

export interface BatchOptions {
  /** The time of each batch with its further attempts. */
  timeoutMs?: number;
  signal?: AbortSignal;
}

/** A client, which all of a program's calls may share: `await new Client("http://127.0.0.1:8080").plan("red boots")`. */
export class Client {
  readonly #transport: Transport;
  readonly #deadlineMs: number;
  readonly #timeoutMs: number;
  readonly #trial: Trial | undefined;
  readonly #ofArms: ReadonlyMap<string, ReadonlySet<Endpoint>>;

  /** Take endpoints in order of preference. Throws TypeError for what is no address. */
  constructor(endpoints: string | readonly string[], options: ClientOptions = {}) {
    const known = new Map<string, Endpoint>();
    const usual = endpointsOf(endpoints, known);
    this.#trial = options.trial;
    this.#ofArms = new Map([...(options.trial?.endpoints ?? [])].map(([arm, urls]) => [arm, endpointsOf(urls, known)]));
    const headers: Record<string, string> = { accept: "application/json", "content-type": "application/json" };
    if (options.token) headers["authorization"] = `Bearer ${options.token}`;
    this.#transport = {
      fetch: options.fetch ?? ((...given) => globalThis.fetch(...given)),
      headers,
      endpoints: [...known.values()],
      preferred: usual,
    };
    this.#deadlineMs = options.deadlineMs ?? DEADLINE_MS;
    this.#timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
  }

  /** Return the plan of a shopper's words. Throws PlannerError, and the signal's reason where it is aborted. */
  async plan(query: string, options: CallOptions = {}): Promise<PlanAnswer> {
    const question = new OneQuestion(this.#request(query, options));
    return run(question, await this.#of(options), options.timeoutMs ?? this.#timeoutMs, options.signal);
  }

  /**
   * Yield the plan, as `plan` returns it, then the first three products (`options`), the others (`more`), and `done`.
   *
   * Nothing is asked before the first event is. Attempts are made until it is there; what breaks off later is an error. The
   * call has 2 s unless `timeoutMs` says otherwise. Who leaves the loop early ends the service's work. Throws PlannerError,
   * and the signal's reason where it is aborted.
   */
  async *answer(query: string, options: CallOptions = {}): AsyncGenerator<AnswerEvent, void, undefined> {
    const stream = new AnswerStream(this.#request(query, options), options.timeoutMs ?? ANSWER_TIMEOUT_MS);
    await run(stream, await this.#of(options), stream.timeoutMs, options.signal);
    yield* stream.events(options.signal);
  }

  /**
   * Return for each question, in their order, its plan or the error that it has; for jobs that can wait.
   *
   * However many there are: they go in batches, on replicas that no shopper needs. Throws PlannerError where no question
   * could be answered at all: the token is wrong, or this is no planner.
   */
  async plans(requests: Iterable<string | BatchedRequest>, options: BatchOptions = {}): Promise<Planned[]> {
    const found: Planned[] = [];
    for (const group of batches(requests)) {
      const batch = new Batch(group);
      try {
        found.push(...(await run(batch, this.#transport, options.timeoutMs ?? PLANS_TIMEOUT_MS, options.signal)));
      } catch (error) {
        if (!(error instanceof InvalidRequestError)) throw error;
        found.push(...batch.givenUp(error)); // a batch that is refused as a whole costs the others nothing
      }
    }
    return found;
  }

  /** Return the way to the hosts of the shopper's arm; others are asked where these fail. */
  async #of({ shopper }: CallOptions): Promise<Transport> {
    if (!shopper || !isUnit(shopper)) return this.#transport;
    const preferred = this.#trial && this.#ofArms.get(await this.#trial.arm(shopper));
    return {
      ...this.#transport,
      headers: { ...this.#transport.headers, "x-experiment-unit": shopper },
      preferred: preferred ?? this.#transport.preferred,
    };
  }

  #request(query: string, options: CallOptions): PlanRequest & { deadline_ms: number } {
    return {
      query,
      deadline_ms: options.deadlineMs ?? this.#deadlineMs,
      ...(options.history?.length ? { history: newest(options.history) } : {}),
      ...(options.locale === undefined ? {} : { locale: options.locale }),
    };
  }
}

/** Tell a plan of `plans()` from an error. */
export function isPlanned(planned: Planned): planned is PlanAnswer {
  return !(planned instanceof PlannerError);
}

/** Return these addresses' endpoints, each once among the known. Throws TypeError for what is no address. */
function endpointsOf(urls: string | readonly string[], known: Map<string, Endpoint>): ReadonlySet<Endpoint> {
  const found = addresses(urls).map((url) => {
    const endpoint = known.get(url) ?? { url, askLastUntil: 0 };
    known.set(url, endpoint);
    return endpoint;
  });
  return new Set(found);
}
