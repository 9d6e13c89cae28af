/** `answer()`, event by event: the plan, three products with the wishes that each meets, the others, the end. */

import { type Kind, LEAST_DEADLINE_MS, type Question } from "./call.js";
import { PlannerError, UnavailableError, UnexpectedAnswerError } from "./errors.js";
import { isAnswer, NETWORK_MS, type PlanAnswer, type PlanRequest } from "./kinds.js";
import type { components } from "./schema.js";

type Schemas = components["schemas"];
/** One thing that the shopper asked for, in their words. */
export type Wish = Schemas["Wish"];
/** A product, and the wishes that it meets, that it does not, and that its catalogue does not tell. */
export type Option = Schemas["Option"];
/** The first three products; `reason` says why there are none. */
export type Options = Required<Schemas["Options"]>;
/** The products after the first three. */
export type More = Schemas["More"];
/** The milliseconds from the request to the plan, the first products and the end. */
export type Done = Schemas["Done"];

export type AnswerEvent =
  | { event: "plan"; data: PlanAnswer }
  | { event: "options"; data: Options }
  | { event: "more"; data: More }
  | { event: "done"; data: Done };

const MEDIA_TYPE = "text/event-stream";
const MOST_CHARACTERS = 1 << 20; // of a whole answer
const NO_OPTIONS: Options = { options: [], notes: [], nothing: false, missing: [], nearest: [], reason: null, milliseconds: 0 };

/** One question, whose call ends with its first event; `events` reads the rest. */
export class AnswerStream implements Kind<void> {
  readonly #endsAt: number;
  #reader: EventReader | undefined;
  #first: AnswerEvent | undefined;
  #end: () => void = () => undefined;
  #url = "";
  #isLate = false;

  constructor(
    private readonly request: PlanRequest & { deadline_ms: number },
    readonly timeoutMs: number,
  ) {
    this.#endsAt = performance.now() + timeoutMs;
  }

  ask(left: number): Question | undefined {
    const deadline = Math.min(this.request.deadline_ms, Math.floor(left));
    if (deadline < LEAST_DEADLINE_MS) return undefined;
    const headers = { accept: `${MEDIA_TYPE}, application/problem+json` };
    const body = { ...this.request, deadline_ms: deadline };
    return { path: "/answer", body, headers, milliseconds: Math.min(left, deadline + NETWORK_MS) };
  }

  async read(response: Response, url: string, end: () => void): Promise<PlannerError | undefined> {
    this.#reader = new EventReader(response, url);
    [this.#url, this.#end] = [url, end];
    this.#first = await this.#next();
    return this.#first === undefined ? new UnavailableError(`${url} broke off before its first event.`) : undefined;
  }

  result(): void {}

  givenUp(error: PlannerError): never {
    throw error;
  }

  /** Yield every event. To stop reading ends the request. Throws PlannerError, and the signal's reason. */
  async *events(signal: AbortSignal | undefined): AsyncGenerator<AnswerEvent, void, undefined> {
    const late = () => {
      this.#isLate = true;
      this.#end();
    };
    const timer = setTimeout(late, Math.max(this.#endsAt - performance.now(), 0));
    signal?.addEventListener("abort", this.#end);
    try {
      for (let event = this.#first; event !== undefined; event = await this.#next()) {
        signal?.throwIfAborted();
        yield event;
        if (event.event === "done") return;
      }
      throw this.#brokenOff("");
    } catch (cause) {
      signal?.throwIfAborted();
      throw cause instanceof PlannerError ? cause : this.#brokenOff(` (${cause})`);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", this.#end);
      this.#end();
    }
  }

  /** Return the next event of those that this client knows: a newer service may send others. */
  async #next(): Promise<AnswerEvent | undefined> {
    for (;;) {
      const found = await this.#reader?.next();
      if (found === undefined) return undefined;
      const event = typed(found, this.#url);
      if (event !== undefined) return event;
    }
  }

  #brokenOff(why: string): UnavailableError {
    const told = this.#isLate ? "does not end its answer in time" : `broke off in the middle of its answer${why}`;
    return new UnavailableError(`${this.#url} ${told}.`);
  }
}

function typed({ name, data }: ServerEvent, url: string): AnswerEvent | undefined {
  if (!["plan", "options", "more", "done"].includes(name)) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(data);
  } catch {
    // none of a planner's, which is said below
  }
  const { options, total_ms: total } = (value ?? {}) as Partial<Options & Done>;
  if (name === "plan" && isAnswer(value)) return { event: name, data: value };
  if (name === "options" && Array.isArray(options)) return { event: name, data: { ...NO_OPTIONS, ...(value as Options) } };
  if (name === "more" && Array.isArray(options)) return { event: name, data: value as More };
  if (name === "done" && typeof total === "number") return { event: name, data: value as Done };
  throw new UnexpectedAnswerError(`${url}: the event "${name}" is none of a planner's.`, { status: 200 });
}

interface ServerEvent {
  name: string;
  data: string;
}

/**
 * Reads server-sent events one by one, as they come: `EventSource` cannot post. Throws UnexpectedAnswerError, and
 * whatever the connection does.
 */
class EventReader {
  readonly #chunks: ReadableStreamDefaultReader<Uint8Array>;
  readonly #decoder = new TextDecoder();
  #text = "";
  #read = 0;

  constructor(
    response: Response,
    private readonly url: string,
  ) {
    const type = (response.headers.get("content-type") ?? "").split(";")[0]?.trim();
    if (type !== MEDIA_TYPE || response.body === null) {
      throw new UnexpectedAnswerError(`${url} answered 200, but no ${MEDIA_TYPE}: is this a planner?`, { status: 200 });
    }
    this.#chunks = response.body.getReader();
  }

  /** Return the next event; undefined where there are no more. What ends without an empty line is none. */
  async next(): Promise<ServerEvent | undefined> {
    for (;;) {
      const end = /\r\n\r\n|\n\n|\r\r/.exec(this.#text);
      if (end !== null) {
        const block = this.#text.slice(0, end.index);
        this.#text = this.#text.slice(end.index + end[0].length);
        return eventOf(block);
      }
      const { done, value } = await this.#chunks.read();
      if (done) return undefined;
      const more = this.#decoder.decode(value, { stream: true });
      this.#read += more.length;
      if (this.#read > MOST_CHARACTERS) {
        throw new UnexpectedAnswerError(`${this.url} answered more than ${MOST_CHARACTERS} characters.`, { status: 200 });
      }
      this.#text += more;
    }
  }
}

function eventOf(block: string): ServerEvent {
  let name = "message";
  const data: string[] = [];
  for (const line of block.split(/\r\n|\n|\r/)) {
    const [, field, value] = /^(event|data): ?(.*)$/.exec(line) ?? [];
    if (field === "event") name = value ?? "";
    if (field === "data") data.push(value ?? "");
  }
  return { name, data: data.join("\n") };
}
