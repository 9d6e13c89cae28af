// The page: takes a question, asks POST /answer, then what a shop finds besides and POST /trace, and shows the answers.

import { Failure, post, stream } from "./client.js";
import { decodingView } from "./decoding.js";
import { element } from "./dom.js";
import { loadVocabulary, planView, sentence } from "./plan.js";
import { optionsTitle, optionsView, shopView } from "./shop.js";

const MAX_CHARACTERS = 512;
const MAX_HISTORY = 8;
const EXAMPLES = [
  { kind: "Keywords", text: "nike running shoes red size 10" },
  { kind: "Conversation, price", text: "I need a quiet blender for smoothies, under $80 please" },
  { kind: "Product question", text: "does the instant pot duo fit a whole chicken?" },
  { kind: "Support", text: "where is my order? it should have come on monday" },
  { kind: "Misspelt", text: "blutooth hedphones noise canceling" },
  { kind: "Several things", text: "a tent and a sleeping bag for kids, no nylon, cheapest first" },
  { kind: "Follow-up", text: "what about in blue?", after: "red rain jacket for women" },
];

const SHOPPER = Math.random().toString(36).slice(2); // whose choices belong together, until the page is loaded again
const SECTIONS = ["plan", "options", "shop", "decoding"];

const byId = (id) => document.getElementById(id);
const form = byId("ask");
const question = byId("question");
const followUp = byId("follow-up");
const state = {
  thread: [], // the questions answered so far that belong together, oldest first
  asking: null, // {key, controller} of what is under way
};

function showThread() {
  followUp.disabled = state.thread.length === 0;
  byId("thread").textContent = state.thread.length === 0 ? "" : `: ${state.thread.join(" → ")}`;
}

function showCounter() {
  const characters = [...question.value].length;
  byId("counter").hidden = characters <= 0.8 * MAX_CHARACTERS;
  byId("counter").textContent = `${characters} of ${MAX_CHARACTERS} characters`;
}

/** Why a question cannot be sent, or null; the service checks again and has the last word. */
function objection(text) {
  if (text.trim() === "") return "Type a question first.";
  const characters = [...text].length;
  return characters > MAX_CHARACTERS
    ? `This question has ${characters} characters; at most ${MAX_CHARACTERS} fit. Shorten it, please.`
    : null;
}

/** The words of a failure, with a button where asking again may help; the focus then goes from it to `home`. */
function problemView(failure, retry, home) {
  const words = element("span", {}, failure.message);
  if (!failure.retryable) return [words];
  const button = element("button", { type: "button", class: "retry" }, "Try again");
  button.addEventListener("click", () => {
    home.focus({ preventScroll: true });
    retry();
  });
  return [words, " ", button];
}

function showProblem(failure, retry) {
  byId("question-error").replaceChildren(...problemView(failure, retry, question));
  question.setAttribute("aria-invalid", String(!failure.retryable));
  if (!failure.retryable) question.focus();
}

function clearProblem() {
  byId("question-error").replaceChildren();
  question.removeAttribute("aria-invalid");
}

/** Marks the page as busy and says so; `message` goes to the status line, which screen readers announce. */
function setBusy(message, sections) {
  byId("status").textContent = message;
  form.classList.toggle("busy", sections.length > 0);
  for (const id of SECTIONS) byId(id).setAttribute("aria-busy", String(sections.includes(id)));
}

/** Runs `work(signal)` unless the same is under way (a double click asks once); a newer question ends an older one. */
async function newest(key, work) {
  if (state.asking?.key === key) return;
  state.asking?.controller.abort();
  const asking = { key, controller: new AbortController() };
  state.asking = asking;
  clearProblem();
  try {
    await work(asking.controller.signal);
  } catch (error) {
    if (asking.controller.signal.aborted) return;
    setBusy("", []);
    const failure = new Failure("The page cannot show this answer; the browser’s console says why.", { retryable: true });
    showProblem(failure, () => location.reload());
    throw error;
  } finally {
    if (state.asking === asking) state.asking = null;
  }
}

function ask(body) {
  // Not the history itself: it grows as soon as the plan is there, while the trace is still under way.
  return newest(JSON.stringify([body.query, body.history.length > 0, body.deadline_ms]), async (signal) => {
    const answer = await plan(body, signal);
    if (answer === null) return;
    await shop(body, answer, signal);
    await trace(body, answer, signal);
  });
}

/** Shows and returns the plan of a question; null where there is none, and then it says why beside the question. */
async function plan(body, signal) {
  setBusy("Planning…", SECTIONS);
  try {
    let answer = null;
    await stream("/answer", body, signal, async (name, data) => {
      if (name === "plan") {
        await vocabulary;
        answer = data;
        showPlan(answer, [...body.history, body.query]);
      }
      if (name === "options" && answer.plan.queries.length > 0) showOptions(data);
    });
    return answer;
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    setBusy("", []);
    showProblem(error, () => ask(body));
    return null;
  }
}

function showPlan(answer, utterances) {
  byId("plan-body").replaceChildren(...planView(answer, utterances));
  byId("plan").hidden = false;
  for (const id of SECTIONS.slice(1)) byId(id).hidden = true; // they show another question's
  bringIntoView(byId("plan"));
  state.thread = utterances.slice(-MAX_HISTORY);
  showThread();
  byId("announcement").textContent = `Planned: ${sentence(answer.plan).join(", ")}.`;
}

function showOptions(found) {
  byId("options-title").textContent = optionsTitle(found);
  byId("options-body").replaceChildren(...optionsView(found));
  byId("options").hidden = false;
  const names = found.options.map(({ name }) => name).join(", ");
  if (names) byId("announcement").textContent += ` First found: ${names}.`;
}

/** Shows what the shop finds; where there is no shop, why. */
async function shop(body, answer, signal) {
  if (answer.plan.queries.length === 0) return;
  setBusy("Searching the shop…", ["shop", "decoding"]);
  try {
    const asked = { query: body.query, plan: answer.plan, request_id: answer.request_id };
    const found = await post("/shop/search", asked, signal);
    const chosen = (hit, ordinal) => found.counted && credit(answer.request_id, hit, ordinal);
    byId("shop-body").replaceChildren(...shopView(found, chosen));
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    byId("shop-body").replaceChildren(element("p", { class: "hint" }, error.message));
  }
  byId("shop").hidden = false;
}

/** Tells the service which search's product was chosen, for `peakplan value`. */
function credit(queryId, { id, team }, ordinal) {
  const whose = team === "" ? {} : { experiment: "sample-shop", team };
  const attributes = { object: { object_id: id }, position: { ordinal }, ...whose };
  const event = { action_name: "click", query_id: queryId, client_id: SHOPPER, event_attributes: attributes };
  const lost = ({ message }) => {
    byId("announcement").textContent = `The service did not keep this choice. ${message}`;
  };
  post("/outcomes", event, new AbortController().signal).catch(lost);
}

/** Shows how a question is decoded. Asked for after the plan, so as not to slow the plan whose time the page shows. */
async function trace(body, planned, signal) {
  setBusy("Tracing the decoding…", ["decoding"]);
  try {
    const { query, history } = body;
    const answer = await post("/trace", { query, history }, signal);
    byId("decoding-body").replaceChildren(...decodingView(answer, planned));
    setBusy("The plan and its decoding are below.", []);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    const retry = () => newest(`trace ${JSON.stringify(body)}`, (again) => trace(body, planned, again));
    const view = problemView(error, retry, byId("decoding-title"));
    byId("decoding-body").replaceChildren(element("div", { class: "problem" }, ...view));
    setBusy(`The plan is below; its decoding could not be traced. ${error.message}`, []);
  }
  byId("decoding").hidden = false;
}

/** The deadline that was set; none leaves it to the service. */
function deadline() {
  const milliseconds = byId("deadline").valueAsNumber;
  return Number.isNaN(milliseconds) ? {} : { deadline_ms: milliseconds };
}

/** On a small screen the answer starts below the fold; a large one is left where it is. */
function bringIntoView(section) {
  if (section.getBoundingClientRect().top > 0.75 * innerHeight) section.scrollIntoView();
}

function submit() {
  const query = question.value.trim();
  const wrong = objection(question.value);
  if (wrong) showProblem(new Failure(wrong));
  else ask({ query, history: followUp.checked ? state.thread : [], ...deadline() });
}

function tryExample({ text, after }) {
  if (after) state.thread = [after];
  showThread();
  followUp.checked = Boolean(after);
  question.value = text;
  showCounter();
  submit();
}

function showExamples() {
  for (const example of EXAMPLES) {
    const kind = example.after ? `${example.kind} to “${example.after}”` : example.kind;
    const button = element(
      "button",
      { type: "button" },
      element("span", { class: "kind" }, kind),
      element("span", {}, example.text),
    );
    button.addEventListener("click", () => tryExample(example));
    byId("examples").append(element("li", {}, button));
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
question.addEventListener("input", () => {
  showCounter();
  clearProblem();
});
question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});
/** What the service says of itself: what computes the model, and whether most plans would be late on this machine. */
async function showService() {
  const ready = await fetch("/readyz", { headers: { accept: "application/json" } }).catch(() => null);
  const { notice, kernel, deadline_ms: deadlineMs } = (ready?.ok ? await ready.json().catch(() => null) : null) ?? {};
  byId("notice").textContent = notice ?? "";
  byId("notice").hidden = !notice;
  if (deadlineMs) byId("deadline").placeholder = deadlineMs;
  byId("kernel").textContent = kernel ? ` Computed here by: ${kernel}.` : "";
}

const vocabulary = loadVocabulary();
showExamples();
showThread();
showCounter();
showService();
