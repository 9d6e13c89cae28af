/** What happened after plans, sent behind a shop's back: nobody waits, and nothing is sent twice as two events. */

import { addresses, textOf } from "./call.js";
import type { components } from "./schema.js";

/** An event as OpenSearch's User Behavior Insights names it, with a plan's `request_id` as `query_id`. */
export type ShopperEvent = components["schemas"]["Event"];

const MOST_OF_A_REQUEST = 64; // as many as the service takes, and as many bytes, unless its operator has set other limits
const MOST_BYTES = 16 * 1024;
const LINGER_MS = 500;
const TIMEOUT_MS = 5000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 10_000;

export interface EventSenderOptions {
  /** Sent as the bearer token. Keep it out of pages: their readers could use it. */
  token?: string;
  /** How long an event waits for others to share a request, at most (500); 0 sends at once what waits. */
  lingerMs?: number;
  /** How many events may wait for a service that is down. */
  mostWaiting?: number;
  fetch?: typeof fetch;
}

interface Waiting {
  /** The event as JSON, and the bytes that it takes in a list. */
  text: string;
  bytes: number;
  /** When it has lingered long enough. */
  due: number;
}

/**
 * Sends events to `POST /outcomes`: `new EventSender("http://127.0.0.1:8080").put(event)`.
 *
 * They linger for a moment, so that those which come together go out in one list, and are sent again with the same
 * `event_id` until the service has them, which keeps each once. A page that is hidden or left sends what waits, in
 * requests that outlive it (`keepalive`).
 */
export class EventSender {
  /** What the service has, what found no room or no time, and what the service will never take. */
  sent = 0;
  dropped = 0;
  refused = 0;
  readonly #urls: readonly string[];
  readonly #headers: Record<string, string>;
  readonly #fetch: typeof fetch;
  readonly #lingerMs: number;
  readonly #mostWaiting: number;
  readonly #waiting: Waiting[] = [];
  #waitingBytes = 0;
  #sending = 0;
  #endsAt: number | undefined;
  #working: Promise<void> | undefined;
  readonly #flushing = new Set<Promise<void>>();
  readonly #naps = new Set<() => void>();
  #endLinger: () => void = () => undefined;

  /** Take endpoints in order of preference. Throws TypeError for what is no address. */
  constructor(endpoints: string | readonly string[], options: EventSenderOptions = {}) {
    this.#urls = addresses(endpoints).map((url) => `${url}/outcomes`);
    this.#headers = { "content-type": "application/json" };
    if (options.token) this.#headers["authorization"] = `Bearer ${options.token}`;
    this.#fetch = options.fetch ?? ((...given) => globalThis.fetch(...given));
    this.#lingerMs = options.lingerMs ?? LINGER_MS;
    this.#mostWaiting = options.mostWaiting ?? 10_000;
    if (typeof document !== "undefined") {
      document.addEventListener("visibilitychange", this.#leave); // phones tell nothing later than this
      addEventListener("pagehide", this.#leave);
    }
  }

  /** Take an event; return whether it was taken: there was room, and it is JSON. It gets an `event_id` where it has none. */
  put(event: ShopperEvent): boolean {
    if (this.#endsAt !== undefined || this.#waiting.length + this.#sending >= this.#mostWaiting) {
      this.dropped += 1;
      return false;
    }
    const text = jsonOf({ event_id: newId(), ...event });
    if (text === undefined) {
      this.refused += 1;
      return false;
    }
    const bytes = new TextEncoder().encode(text).length + 1;
    this.#waiting.push({ text, bytes, due: performance.now() + this.#lingerMs });
    this.#waitingBytes += bytes;
    if (this.#isFull()) this.#endLinger();
    this.#working ??= Promise.resolve().then(() => this.#work());
    return true;
  }

  /** Send what waits, for so long at most; the rest is counted as dropped. */
  async close(timeoutMs = 5000): Promise<void> {
    this.#endsAt = performance.now() + timeoutMs;
    this.#wakeAll();
    await Promise.all([this.#working, ...this.#flushing]);
    if (typeof document !== "undefined") {
      document.removeEventListener("visibilitychange", this.#leave);
      removeEventListener("pagehide", this.#leave);
    }
  }

  async #work(): Promise<void> {
    while (this.#waiting.length) {
      await this.#linger();
      const batch = this.#take();
      if (batch.length) await this.#send(batch); // a page that is left has taken them
    }
    this.#working = undefined;
  }

  async #linger(): Promise<void> {
    const left = (this.#waiting[0]?.due ?? 0) - performance.now();
    if (left > 0 && !this.#isFull() && this.#endsAt === undefined) {
      await this.#nap(left, (end) => (this.#endLinger = end));
    }
  }

  /** Send what waits now, side by side: a page that is left has no time for one after another. */
  readonly #leave = (event: Event): void => {
    if (event.type !== "pagehide" && document.visibilityState !== "hidden") return;
    while (this.#waiting.length) {
      const flushed: Promise<void> = this.#send(this.#take()).finally(() => this.#flushing.delete(flushed));
      this.#flushing.add(flushed);
    }
    this.#wakeAll();
  };

  #isFull(): boolean {
    return this.#waiting.length >= MOST_OF_A_REQUEST || this.#waitingBytes + 1 > MOST_BYTES; // a comma each, and a bracket
  }

  #take(): string[] {
    const batch: string[] = [];
    let size = 1;
    for (let next = this.#waiting[0]; next && batch.length < MOST_OF_A_REQUEST; next = this.#waiting[0]) {
      size += next.bytes;
      if (batch.length && size > MOST_BYTES) break;
      this.#waiting.shift();
      this.#waitingBytes -= next.bytes;
      batch.push(next.text);
    }
    return batch;
  }

  async #send(batch: readonly string[]): Promise<void> {
    this.#sending += batch.length;
    await this.#sendUntilDone(batch);
    this.#sending -= batch.length;
  }

  async #sendUntilDone(batch: readonly string[]): Promise<void> {
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      for (const url of this.#urls) if (await this.#isDone(url, batch)) return;
      const left = (this.#endsAt ?? Infinity) - performance.now();
      if (left < pause) {
        this.dropped += batch.length;
        return;
      }
      await this.#nap(pause);
    }
  }

  /** Wait, less where the sender is closed or its page is left; `told` gets what ends this wait alone. */
  #nap(milliseconds: number, told: (end: () => void) => void = () => undefined): Promise<void> {
    return new Promise<void>((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        this.#naps.delete(end);
        resolve();
      };
      const timer = setTimeout(end, milliseconds);
      this.#naps.add(end);
      told(end);
    });
  }

  #wakeAll(): void {
    for (const end of [...this.#naps]) end();
  }

  async #isDone(url: string, batch: readonly string[]): Promise<boolean> {
    let response: Response;
    let refused = batch.length;
    try {
      response = await this.#fetch(url, {
        method: "POST",
        headers: this.#headers,
        body: `[${batch.join(",")}]`,
        keepalive: true,
        redirect: "error", // see call.ts
        signal: AbortSignal.timeout(TIMEOUT_MS),
      });
      const text = await textOf(response);
      if (response.status === 202) refused = refusedOf(text);
    } catch {
      return false;
    }
    if (response.status === 429 || response.status >= 500) return false;
    if (response.status === 413 && batch.length > 1) {
      const half = batch.length >> 1;
      await this.#sendUntilDone(batch.slice(0, half));
      await this.#sendUntilDone(batch.slice(half));
      return true;
    }
    this.sent += batch.length - refused;
    this.refused += refused;
    return true;
  }
}

function jsonOf(event: ShopperEvent): string | undefined {
  try {
    return JSON.stringify(event);
  } catch {
    return undefined;
  }
}

function refusedOf(text: string): number {
  try {
    const { refused } = JSON.parse(text) as { refused?: unknown };
    return Array.isArray(refused) ? refused.length : 0;
  } catch {
    return 0;
  }
}

/** Return an id that nobody else has; `crypto.randomUUID` is for secure contexts alone. */
function newId(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
