// The decoding of one question, twice: with Medusa heads, and beside it plain greedy decoding.

import { count, element, mark, milliseconds, unseen } from "./dom.js";
import { sentenceView } from "./plan.js";

const STATUSES = {
  accepted: "a head guessed it, the model agrees",
  rejected: "a head guessed it, the model wants another",
  forced: "the grammar leaves no choice, so it costs nothing",
  sampled: "the model’s own choice, where the guesses ended",
};

/** What POST /trace answered, compared: the numbers that the page says in words, in a table and as lanes. */
export function compare({ greedy, medusa }) {
  const written = tokensOf(medusa);
  const plain = tokensOf(greedy);
  const differs = written.findIndex((token, index) => token !== plain[index]);
  const same = differs < 0 && written.length === plain.length;
  return { same, firstDifference: same ? null : (differs < 0 ? written.length : differs) + 1, tokens: written.length };
}

/** One sentence: forwards and milliseconds, Medusa against greedy. */
export function verdict({ greedy, medusa }) {
  const forwards = `Medusa wrote the plan in ${count(medusa.usage.steps, "forward")}, greedy in ${greedy.usage.steps}`;
  const time = `${milliseconds(medusa.milliseconds)} against ${milliseconds(greedy.milliseconds)}`;
  const times = greedy.milliseconds / medusa.milliseconds;
  return `${forwards}; ${time}, ${pace(times)}.`;
}

function pace(times) {
  if (times > 0.95 && times < 1.05) return "as fast";
  return times > 1 ? `${times.toFixed(1)} times as fast` : `${(1 / times).toFixed(1)} times as slow`;
}

const BEFORE = {
  model: "This is another run of the same question, made for show after the plan above: its times are not that plan’s.",
  cache: "The plan above came from the cache. Here the model decodes the question anew.",
  fallback: "The small reader wrote the plan above. This is what the model writes where it has the time.",
};

/** Says plainly that the plan above, the answer `planned`, is of another run, and whether the plans are the same. */
function anotherRun(plan, planned) {
  const same = JSON.stringify(plan) === JSON.stringify(planned.plan);
  const words = element("p", { class: "hint another-run" }, BEFORE[planned.source], same ? "" : " Its plan is another:");
  return same ? [words] : [words, sentenceView(plan)];
}

/** The whole answer of POST /trace, beside the answer of POST /plan that is shown above it. */
export function decodingView(trace, planned) {
  return [
    ...anotherRun(trace.medusa.plan, planned),
    element("p", { class: "verdict" }, verdict(trace)),
    sameness(compare(trace)),
    lanes(trace),
    element("div", { class: "totals" }, totals(trace), legend()),
    element(
      "div",
      { class: "runs" },
      run("Medusa, a tree each forward", "medusa", trace.medusa, treeStep),
      run("Greedy, a decision each forward", "greedy", trace.greedy, plainStep),
    ),
  ];
}

function tokensOf(decoding) {
  return decoding.steps.flatMap((step) => step.emitted);
}

function sameness({ same, firstDifference, tokens }) {
  if (same) return element("p", { class: "same" }, mark("accepted"), ` Both wrote the same ${count(tokens, "token")}.`);
  const words = ` They wrote different tokens, from token ${firstDifference} on.`;
  return element("p", { class: "same same-not" }, mark("rejected"), words);
}

/** Two lanes on one time scale, a block a forward, its number of tokens inside. */
function lanes({ greedy, medusa }) {
  const scale = Math.max(medusa.milliseconds, greedy.milliseconds) || 1;
  const lane = (label, shown) => {
    const blocks = shown.steps.map((step) => {
      const block = element("span", { class: "block" }, String(step.emitted.length));
      block.style.flexGrow = Math.max(step.milliseconds, scale / 200);
      return block;
    });
    const bar = element("div", { class: "lane-bar", "aria-hidden": "true" }, blocks);
    bar.style.width = `${(100 * shown.milliseconds) / scale}%`;
    return element("div", { class: `lane lane-${label.toLowerCase()}` }, element("span", {}, label), bar);
  };
  return element(
    "figure",
    { class: "lanes" },
    lane("Medusa", medusa),
    lane("Greedy", greedy),
    element("figcaption", {}, "A block is a forward, as wide as the time it took; in it, how many tokens it wrote."),
  );
}

function totals({ greedy, medusa }) {
  const rows = [
    ["Forwards of the model", ({ usage }) => usage.steps],
    ["Tokens written", ({ usage }) => usage.plan_tokens],
    ["Tokens a forward", ({ tokens_per_step }) => tokens_per_step.toFixed(2)],
    ["Milliseconds", (one) => one.milliseconds.toFixed(1)],
  ];
  return element(
    "table",
    {},
    element("caption", { class: "caption" }, "In total"),
    element("thead", {}, element("tr", {}, ["", "Medusa", "Greedy"].map((column) => columnHead(column)))),
    element(
      "tbody",
      {},
      rows.map(([what, of]) =>
        element(
          "tr",
          {},
          element("th", { scope: "row" }, what),
          element("td", {}, String(of(medusa))),
          element("td", {}, String(of(greedy))),
        ),
      ),
    ),
  );
}

function columnHead(name) {
  return name === "" ? element("td") : element("th", { scope: "col" }, name);
}

function legend() {
  const entries = Object.entries(STATUSES).map(([status, meaning]) =>
    element(
      "div",
      {},
      element("dt", {}, element("span", { class: `token token-${status}` }, mark(status), status)),
      element("dd", {}, meaning),
    ),
  );
  const caption = element("p", { class: "caption" }, "How tokens are marked");
  return element("div", {}, caption, element("dl", { class: "legend" }, entries));
}

function run(title, name, decoding, stepView) {
  const id = `run-${name}`;
  return element(
    "section",
    { class: `run run-${name}`, "aria-labelledby": id },
    element("h3", { id }, title),
    element("ol", { class: "steps" }, decoding.steps.map((step) => stepView(step, decoding))),
    element("p", { class: "plan-text" }, "Plan text: ", element("code", {}, decoding.plan_text.trim())),
  );
}

function stepHead(step, decoding) {
  const prompt = count(decoding.usage.prompt_tokens, "token");
  const reading = step === decoding.steps[0] ? ` · reads ${prompt} of prompt` : "";
  return element(
    "p",
    { class: "step-head" },
    element("strong", {}, count(step.emitted.length, "token")),
    ` · ${milliseconds(step.milliseconds)}${reading}`,
  );
}

function treeStep(step, decoding) {
  const tree = step.nodes.length > 0 ? element("div", { class: "tree" }, branches(step.nodes)) : null;
  const wrote = element("p", { class: "wrote" }, "wrote ", writtenTokens(step, decoding));
  return element("li", { class: "step" }, stepHead(step, decoding), tree, wrote);
}

function plainStep(step, decoding) {
  const wrote = element("p", { class: "row" }, writtenTokens(step, decoding));
  return element("li", { class: "step" }, wrote, stepHead(step, decoding));
}

/** What a step wrote: the guesses that held, the model's own choice after them, then what that choice forces. */
function writtenTokens(step, decoding) {
  const drafted = step.nodes.findIndex(({ status }) => status === "accepted" || status === "rejected");
  const fresh = drafted < 0 ? [] : step.nodes.slice(drafted); // those before it were written by the step before
  // Nothing comes before the first step: what it reads besides the prompt was forced, and counts as its own.
  const held = (step === decoding.steps[0] ? step.nodes : fresh).filter(({ status }) => status !== "rejected");
  const statusAt = (index) => held[index]?.status ?? (index === held.length ? "sampled" : "forced");
  return step.emitted.map((text, index) => tokenView(text, statusAt(index)));
}

/** The tree as nested lists. Where a token has one child alone, both stand in one row: only choices branch. */
function branches(nodes) {
  const children = Map.groupBy(nodes.keys(), (index) => nodes[index].parent);
  const item = (first) => {
    const row = [first];
    for (let next = children.get(first); next?.length === 1; next = children.get(next[0])) row.push(next[0]);
    const below = children.get(row.at(-1)) ?? [];
    const isKept = nodes[row[0]].status !== "rejected";
    return element(
      "li",
      { class: isKept ? "kept" : null },
      element("span", { class: "row" }, row.map((index) => tokenView(nodes[index].token_text, nodes[index].status))),
      below.length > 0 ? element("ul", {}, below.map(item)) : null,
    );
  };
  return element("ul", {}, (children.get(-1) ?? []).map(item));
}

/** A token; its space is drawn, since it says whether a word starts or goes on. */
function tokenView(text, status) {
  const isMarked = status in STATUSES;
  const space = text.startsWith(" ") ? element("span", { class: "space", "aria-hidden": "true" }) : null;
  return element(
    "span",
    { class: `token token-${status ?? "plain"}` },
    isMarked ? mark(status) : null,
    space,
    element("bdi", { class: "token-text" }, visible(text.slice(space ? 1 : 0))),
    isMarked ? unseen(` ${status}`) : null,
    " ",
  );
}

/** White space and characters without a shape, made visible. */
function visible(text) {
  const code = (character) => `\\u${character.codePointAt(0).toString(16).padStart(4, "0")}`;
  return text.replace(/[\s\p{Cc}\p{Cf}]/gu, code);
}
