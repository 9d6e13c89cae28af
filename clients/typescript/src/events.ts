/** Server-sent events of a response, as they come. `EventSource` cannot post, so the stream is read here. */

import { UnexpectedAnswerError } from "./errors.js";

export const MEDIA_TYPE = "text/event-stream";
const MOST_CHARACTERS = 1 << 20; // of a whole answer

export interface ServerEvent {
  name: string;
  data: string;
}

/** Reads events one by one. Throws UnexpectedAnswerError, and whatever the connection does. */
export class EventReader {
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
        return parsed(block);
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

function parsed(block: string): ServerEvent {
  let name = "message";
  const data: string[] = [];
  for (const line of block.split(/\r\n|\n|\r/)) {
    const [, field, value] = /^(event|data): ?(.*)$/.exec(line) ?? [];
    if (field === "event") name = value ?? "";
    if (field === "data") data.push(value ?? "");
  }
  return { name, data: data.join("\n") };
}
