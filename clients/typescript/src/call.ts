/**
 * One call: which endpoints are asked, how long it pauses between them, and when it gives up.
 *
 * Whatever can be right another time (no connection, 429, 5xx) is tried again: first at the next endpoint, then after a
 * pause, and never past the call's end. Times are milliseconds on the clock of `performance.now()`.
 */

import { errorOf, OriginRefusedError, PlannerError, type Problem, UnavailableError, UnexpectedAnswerError } from "./errors.js";

export const LEAST_DEADLINE_MS = 10; // of the service
const FIRST_PAUSE_MS = 20;
const COOL_DOWN_MS = 5000; // an endpoint that failed is asked last for so long
const MOST_BYTES = 1 << 20; // of an answer

/** An address of the service, and until when it is asked last because it failed. Shared by all calls of a client. */
export interface Endpoint {
  readonly url: string;
  askLastUntil: number;
}

export interface Question {
  path: string;
  body: unknown;
  headers?: Record<string, string>;
  /** How long this attempt may take. */
  milliseconds: number;
}

/** What a call needs to know of its kind: a question, or a batch of them. */
export interface Kind<T> {
  /** Return what to ask with so much time left; undefined where that is too little. */
  ask(left: number): Question | undefined;
  /**
   * Read an answer (200). Return why another attempt is needed, or undefined when the answer is whole. A caller that reads
   * on must call `end` to end the request. Throws PlannerError where no other attempt would help.
   */
  read(response: Response, url: string, end: () => void): Promise<PlannerError | undefined>;
  result(): T;
  /** Return what there is when the time is up, or throw the last error. */
  givenUp(error: PlannerError): T;
}

export interface Transport {
  fetch: typeof fetch;
  headers: Record<string, string>;
  endpoints: readonly Endpoint[];
  /** Are asked before the others, as long as they do not fail. */
  preferred: ReadonlySet<Endpoint>;
}

/** Return endpoints as addresses, without a slash at the end. Throws TypeError for what is none. */
export function addresses(endpoints: string | readonly string[]): string[] {
  const urls = typeof endpoints === "string" ? [endpoints] : endpoints;
  if (!urls.length || !urls.every(isHttp)) {
    throw new TypeError(`${JSON.stringify(urls)} names no endpoint such as http://127.0.0.1:8080`);
  }
  return urls.map((url) => url.replace(/\/+$/, ""));
}

function isHttp(url: string): boolean {
  try {
    return /^https?:$/.test(new URL(url).protocol);
  } catch {
    return false;
  }
}

/** Run a call until its result is there or `timeoutMs` is over. Throws PlannerError, and the signal's reason. */
export async function run<T>(
  kind: Kind<T>,
  transport: Transport,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<T> {
  const end = performance.now() + timeoutMs;
  const readyAt = new Map<Endpoint, number>(transport.endpoints.map((endpoint) => [endpoint, 0]));
  let error: PlannerError = new UnavailableError("There was no time to ask the planner: give the call a longer timeout.");
  for (let pause = FIRST_PAUSE_MS; ; pause *= 2) {
    for (const endpoint of byPreference(transport)) {
      if (performance.now() < (readyAt.get(endpoint) ?? 0)) continue;
      const question = kind.ask(end - performance.now());
      if (question === undefined) return kind.givenUp(error);
      const missing = await attempt(kind, transport, endpoint, question, signal);
      if (missing === undefined) return kind.result();
      error = missing;
      const isFinal = error instanceof OriginRefusedError; // another attempt would be refused, too
      readyAt.set(endpoint, isFinal ? Infinity : performance.now() + 1000 * (error.retryAfter ?? 0));
    }
    const now = performance.now();
    const wait = Math.max(pause * (0.5 + Math.random()), Math.min(...readyAt.values()) - now);
    if (now + wait + LEAST_DEADLINE_MS >= end) return kind.givenUp(error);
    await sleep(wait, signal);
  }
}

/** Return the endpoints: the preferred as they were given, then the others, and what failed of late last. */
function byPreference({ endpoints, preferred }: Transport): Endpoint[] {
  const now = performance.now();
  const place = (endpoint: Endpoint) => 2 * Number(endpoint.askLastUntil > now) + Number(!preferred.has(endpoint));
  return [...endpoints].sort((one, other) => place(one) - place(other));
}

/** Ask once. Return why there has to be another attempt; throws where none would help. */
async function attempt<T>(
  kind: Kind<T>,
  transport: Transport,
  endpoint: Endpoint,
  question: Question,
  signal: AbortSignal | undefined,
): Promise<PlannerError | undefined> {
  const url = endpoint.url + question.path;
  const controller = new AbortController();
  const abort = () => controller.abort();
  signal?.throwIfAborted();
  signal?.addEventListener("abort", abort);
  const timer = setTimeout(abort, Math.max(question.milliseconds, 1));
  let response: Response;
  let missing: PlannerError | undefined;
  try {
    response = await transport.fetch(url, {
      method: "POST",
      headers: { ...transport.headers, ...question.headers },
      body: JSON.stringify(question.body),
      redirect: "manual", // planners never redirect, and the target would get the shopper's words
      signal: controller.signal,
    });
    missing = response.status === 200 ? await kind.read(response, url, abort) : await failure(response, url);
  } catch (cause) {
    signal?.throwIfAborted();
    if (cause instanceof PlannerError) {
      abort(); // nobody reads the rest
      throw cause;
    }
    endpoint.askLastUntil = performance.now() + COOL_DOWN_MS;
    const origin = controller.signal.aborted ? undefined : await refused(transport.fetch, endpoint.url, controller.signal);
    if (origin !== undefined) {
      const todo = `${origin} may be refused by the service's allowed origins: name it in PEAKPLAN_CORS_ORIGINS there.`;
      return new OriginRefusedError(`${url} answers, but not this page. ${todo}`);
    }
    const why = controller.signal.aborted ? "too slow" : String(cause);
    return new UnavailableError(`${url} cannot be reached or is too slow (${why}).`);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
  if (response.status === 200) {
    endpoint.askLastUntil = 0;
    return missing;
  }
  if (!(missing instanceof UnavailableError)) throw missing;
  endpoint.askLastUntil = performance.now() + COOL_DOWN_MS;
  return missing;
}

/** Return this page's origin where a service of another answers it, but lets it read nothing: browsers do not say so. */
async function refused(ask: typeof fetch, url: string, signal: AbortSignal): Promise<string | undefined> {
  const origin = globalThis.location?.origin;
  if (!origin || new URL(url).origin === origin) return undefined;
  try {
    await ask(`${url}/healthz`, { mode: "no-cors", signal });
    return origin;
  } catch {
    return undefined;
  }
}

/** Return what an answer's text says. Throws UnexpectedAnswerError where it is no JSON. */
export function parsed(text: string, url: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new UnexpectedAnswerError(`${url} answered 200, but no JSON: is this a planner?`, { status: 200 });
  }
}

async function failure(response: Response, url: string): Promise<PlannerError> {
  const problem = problemOf(response, await textOf(response));
  const seconds = Number.parseFloat(response.headers.get("retry-after") ?? "");
  return errorOf(`${url} answered ${response.status}: ${problem ? problem.detail || problem.title : response.statusText}`, {
    status: response.status,
    problem,
    retryAfter: Number.isNaN(seconds) ? undefined : Math.max(seconds, 0),
  });
}

function problemOf(response: Response, text: string): Problem | undefined {
  if (!response.headers.get("content-type")?.startsWith("application/problem+json")) return undefined;
  try {
    return JSON.parse(text) as Problem;
  } catch {
    return undefined;
  }
}

function sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/**
 * Return an answer's text as it arrives. Throws past the limit, also of a body that is larger only once it is
 * decompressed, where the rest is not read; and whatever the connection does.
 */
export async function textOf(response: Response): Promise<string> {
  if (!response.body) return response.text(); // there is none
  const chunks = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (let read = 0; ; ) {
    const { done, value } = await chunks.read();
    if (done) return text + decoder.decode();
    read += value.length;
    if (read > MOST_BYTES) {
      chunks.cancel().catch(() => undefined); // so long an answer may end in an error, too
      throw new Error(`the answer has more than ${MOST_BYTES} bytes`);
    }
    text += decoder.decode(value, { stream: true });
  }
}
