// Talking to the service, and errors that say in words what went wrong. Where it requires a bearer token, the page asks its
// visitor once, and keeps the token for as long as this tab is open.

const PATIENCE_MS = 30_000;

/** What went wrong, in words; `retryable` where asking the same again may help, else the question is at fault. */
export class Failure extends Error {
  constructor(message, { retryable = false, needsToken = false } = {}) {
    super(message);
    this.retryable = retryable;
    this.needsToken = needsToken;
  }
}

async function exchange(path, body, signal, token, accept, read) {
  const authorization = token === null ? {} : { authorization: `Bearer ${token}` };
  let response;
  try {
    response = await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json", accept, ...authorization },
      body: JSON.stringify(body),
      signal: AbortSignal.any([signal, AbortSignal.timeout(PATIENCE_MS)]),
    });
    if (response.ok) return await read(response);
  } catch (error) {
    if (signal.aborted || error instanceof Shown) throw error;
    if (error.name === "TimeoutError") {
      throw new Failure(`The planner has not answered for ${PATIENCE_MS / 1000} seconds.`, { retryable: true });
    }
    if (response) throw new Failure("The planner broke off in the middle of its answer.", { retryable: true });
    throw new Failure("The planner cannot be reached. Is the server still running?", { retryable: true });
  }
  throw await problemOf(response);
}

/** A fault of the page itself while it shows an event; the network has no part in it. */
class Shown extends Error {}

async function readEvents(response, take) {
  let rest = "";
  for await (const text of pieces(response.body.pipeThrough(new TextDecoderStream()))) {
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(block);
      const parsed = JSON.parse(data);
      try {
        await take(name, parsed);
      } catch (error) {
        throw new Shown(error.message, { cause: error });
      }
    }
  }
}

/** The pieces of a stream: not every browser iterates over streams by itself. */
async function* pieces(streamed) {
  const reader = streamed.getReader();
  for (let read = await reader.read(); !read.done; read = await reader.read()) yield read.value;
}

/** The Failure that an RFC 9457 problem document, or an answer that is none, stands for. */
async function problemOf(response) {
  if (response.status === 401) {
    return new Failure("This planner answers only with an access token.", { retryable: true, needsToken: true });
  }
  const problem = await response.json().catch(() => null);
  const retryable = [408, 429].includes(response.status) || response.status >= 500;
  if (problem === null || typeof problem !== "object") {
    return new Failure(`The planner answered with status ${response.status} and no reason.`, { retryable });
  }
  const reasons = (problem.errors ?? []).map(({ detail }) => detail.replace(/^query /, "The question "));
  const said = reasons.join(" ") || problem.detail || problem.title || `Status ${response.status}.`;
  const seconds = Number(response.headers.get("retry-after"));
  const wait = retryable && seconds > 0 ? ` Try again in ${seconds === 1 ? "a second" : `${seconds} seconds`}.` : "";
  return new Failure(`${said}${wait}`, { retryable });
}

const KEY = "peakplan-token";
const SENDABLE = /^[\x21-\x7e]+$/; // what may stand in a header

const byId = (id) => document.getElementById(id);
let known = stored();

/** POST a JSON body and return the JSON answer. Throws Failure, or AbortError when `signal` is aborted. */
export function post(path, body, signal) {
  return withToken(signal, (token) => exchange(path, body, signal, token, "application/json", (response) => response.json()));
}

/** POST a JSON body and call `take(name, data)` for each event of the answer. Throws as `post` does. */
export function stream(path, body, signal, take) {
  return withToken(signal, (token) => exchange(path, body, signal, token, "text/event-stream", (response) => readEvents(response, take)));
}

/** Asks for a token as often as the service refuses the one it gets. */
async function withToken(signal, ask) {
  for (;;) {
    try {
      return await ask(known);
    } catch (error) {
      if (!(error instanceof Failure) || !error.needsToken) throw error;
      await askForToken(error, signal);
    }
  }
}

/** Shows the dialog until it gives a token. Throws `refusal` when it is closed without one. */
function askForToken(refusal, signal) {
  const [dialog, form, input] = [byId("access"), byId("access-form"), byId("token")];
  say(known === null ? "" : "The planner does not know this token.");
  keep(null);
  return new Promise((resolve, reject) => {
    const ended = new AbortController();
    const when = (target, event, react) => target.addEventListener(event, react, { signal: ended.signal });
    const end = (settle) => {
      ended.abort();
      input.value = "";
      dialog.close();
      settle();
    };
    when(form, "submit", (event) => {
      event.preventDefault();
      const typed = input.value.trim();
      if (!SENDABLE.test(typed)) return say(typed === "" ? "Type the token first." : "A token has no spaces and no accents.");
      keep(typed);
      return end(resolve);
    });
    when(input, "input", () => say(""));
    when(byId("access-cancel"), "click", () => end(() => reject(refusal)));
    when(dialog, "cancel", () => end(() => reject(refusal))); // the Escape key
    when(signal, "abort", () => end(() => reject(signal.reason)));
    dialog.showModal();
  });
}

function say(words) {
  byId("token-error").textContent = words;
  byId("token").setAttribute("aria-invalid", String(words !== ""));
}

function keep(token) {
  known = token;
  try {
    if (token === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, token);
  } catch {
    // A browser that keeps nothing for pages: the token lives as long as this one.
  }
}

function stored() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}
