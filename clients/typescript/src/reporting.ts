/** What happened after plans, sent behind a shop's back: nobody waits, and nothing is sent twice as two events. */

import { textOf } from "./body.js";
import { addresses } from "./call.js";
import type { components } from "./schema.js";

/** An event as OpenSearch's User Behavior Insights names it, with a plan's `request_id` as `query_id`. */
export type ShopperEvent = components["schemas"]["Event"];

const MOST_OF_A_REQUEST = 32; // of the 64 that the service takes, so that they fit into its 16 KiB
const TIMEOUT_MS = 5000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 10_000;

export interface EventSenderOptions {
  /** Sent as the bearer token. Keep it out of pages: whoever reads a page has it. */
  token?: string;
  /** How many events may wait for a service that is down. */
  mostWaiting?: number;
  fetch?: typeof fetch;
}

/**
 * Sends events to `POST /outcomes`: `new EventSender("http://127.0.0.1:8080").put(event)`.
 *
 * They go out in lists, and again with the same `event_id` until the service has them, which keeps each once. A page that
 * is closed lets a request that is under way end (`keepalive`).
 */
export class EventSender {
  /** What the service has, what found no room or no time, and what the service will never take. */
  sent = 0;
  dropped = 0;
  refused = 0;
  readonly #urls: readonly string[];
  readonly #headers: Record<string, string>;
  readonly #fetch: typeof fetch;
  readonly #mostWaiting: number;
  readonly #waiting: ShopperEvent[] = [];
  #sending = 0;
  #endsAt: number | undefined;
  #working: Promise<void> | undefined;
  #wake: () => void = () => undefined;

  /** Take endpoints in order of preference. Throws TypeError for what is no address. */
  constructor(endpoints: string | readonly string[], options: EventSenderOptions = {}) {
    this.#urls = addresses(endpoints).map((url) => `${url}/outcomes`);
    this.#headers = { "content-type": "application/json" };
    if (options.token) this.#headers["authorization"] = `Bearer ${options.token}`;
    this.#fetch = options.fetch ?? ((...given) => globalThis.fetch(...given));
    this.#mostWaiting = options.mostWaiting ?? 10_000;
  }

  /** Take an event; return whether there was room. It gets an `event_id` where it has none. */
  put(event: ShopperEvent): boolean {
    if (this.#endsAt !== undefined || this.#waiting.length + this.#sending >= this.#mostWaiting) {
      this.dropped += 1;
      return false;
    }
    this.#waiting.push({ event_id: newId(), ...event });
    this.#working ??= Promise.resolve().then(() => this.#work());
    return true;
  }

  /** Send what waits, for so long at most; the rest is counted as dropped. */
  async close(timeoutMs = 5000): Promise<void> {
    this.#endsAt = performance.now() + timeoutMs;
    this.#wake();
    await this.#working;
  }

  async #work(): Promise<void> {
    while (this.#waiting.length) {
      const batch = this.#waiting.splice(0, MOST_OF_A_REQUEST);
      this.#sending = batch.length;
      await this.#send(batch);
      this.#sending = 0;
    }
    this.#working = undefined;
  }

  async #send(batch: ShopperEvent[]): Promise<void> {
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      for (const url of this.#urls) if (await this.#isDone(url, batch)) return;
      const left = (this.#endsAt ?? Infinity) - performance.now();
      if (left < pause) {
        this.dropped += batch.length;
        return;
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, pause);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  async #isDone(url: string, batch: ShopperEvent[]): Promise<boolean> {
    let response: Response;
    let refused = batch.length;
    try {
      response = await this.#fetch(url, {
        method: "POST",
        headers: this.#headers,
        body: JSON.stringify(batch),
        keepalive: true,
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
      await this.#send(batch.slice(0, half));
      await this.#send(batch.slice(half));
      return true;
    }
    this.sent += batch.length - refused;
    this.refused += refused;
    return true;
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
