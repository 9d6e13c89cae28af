// Services that ask for a bearer token: the page asks its visitor once, and keeps it for as long as this tab is open.

import { Failure, post as send, stream as listen } from "./client.js";

const KEY = "peakplan-token";
const SENDABLE = /^[\x21-\x7e]+$/; // what may stand in a header

const byId = (id) => document.getElementById(id);
let known = stored();

/** `post` of client.js, which asks for a token as often as the service refuses the one it gets. */
export function post(path, body, signal) {
  return withToken(signal, (token) => send(path, body, signal, token));
}

/** `stream` of client.js, which asks for a token in the same way. */
export function stream(path, body, signal, take) {
  return withToken(signal, (token) => listen(path, body, signal, token, take));
}

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
