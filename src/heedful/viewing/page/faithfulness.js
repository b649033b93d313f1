// A note on what attention weights show, with the faithfulness of the current sentence.

import { element, messageOf } from "./elements.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Models} Models */

/**
 * @param {Page} page
 * @param {Models} models
 * @returns {{body: HTMLElement, refresh: () => Promise<void>}}
 */
export function faithfulnessNote(page, models) {
  const figure = element("span", { class: "heed-figure", role: "status" });
  const check = element("button", { type: "button", class: "heed-button", onclick: () => run() }, "Test it on this sentence");
  let requests = 0;
  /** The sentence that the figure belongs to; it stays the same when other maps of it are shown. */
  let tested = "";

  async function run() {
    const { subject } = page.session;
    if (!subject || !("source" in subject)) return;
    const request = ++requests;
    tested = sentenceKey(subject);
    check.disabled = true;
    figure.textContent = "Computing faithfulness…";
    try {
      const { model, source, target } = subject;
      const found = await page.provider.faithfulness({ model, source, ...(target === undefined ? {} : { target }) });
      if (request === requests) figure.textContent = describeFaithfulness(found);
    } catch (error) {
      if (request === requests) figure.textContent = messageOf(error);
    } finally {
      if (request === requests) check.disabled = false;
    }
  }

  const body = element(
    "aside", { class: "heed-faithfulness", "aria-label": "What attention shows" },
    element(
      "p", {},
      element("strong", {}, "Attention is not an explanation. "),
      "Attention weights show where one module read information from, not why the model decided: other layers, the "
        + "residual connections and the values also count, and very different weights can give the same output. ",
      check,
      " ", figure,
    ),
  );
  /** Show the figure of a saved trace, if it has one; for a sentence, it is computed on request. */
  async function refresh() {
    const { subject } = page.session;
    const sameSentence = tested !== "" && sentenceKey(subject) === tested;
    if (sameSentence) return;
    const request = ++requests;
    tested = figure.textContent = "";
    check.disabled = false;
    const input = subject && "model" in subject ? subject : null;
    check.hidden = !models.models.some(({ name, aligns }) => name === input?.model && aligns !== false);
    if (!subject || input) return;
    try {
      const { faithfulness } = (await page.session.current()).summary;
      if (faithfulness && request === requests) figure.textContent = describeFaithfulness(faithfulness);
    } catch {
      // The panel shows the error.
    }
  }

  refresh();
  return { body, refresh };
}

/** @param {import("./session.js").Subject | null} subject */
function sentenceKey(subject) {
  return subject && "source" in subject ? JSON.stringify([subject.model, subject.source, subject.target]) : "";
}

/** @param {import("./types.js").Faithfulness} found */
function describeFaithfulness(found) {
  const one = found.words === 1;
  const names = found.dropped?.length ? ` (${found.dropped.join(", ")})` : "";
  const attended = `Without ${one ? "the most attended source word" : `the ${found.words} most attended source words`}${names}`;
  const spread = found.draws > 1 ? ` ± ${found.random_spread.toFixed(1)}` : "";
  const higher = found.higher === undefined ? ""
    : ` ${found.higher} of these ${found.draws} random draws had at least the same effect.`;
  return `${conclusion(found)} ${attended}, the translation’s log-probability ${formatChange(found.attended)}; without ${one ? "a random one" : `${found.words} random ones`} `
    + `it ${formatChange(found.random)}${spread} (${found.draws} draws).${higher}`;
}

/**
 * What the comparison means for this sentence, in one sentence.
 * @param {import("./types.js").Faithfulness} found
 */
function conclusion(found) {
  const words = found.words === 1 ? "word matters" : "words matter";
  const draws = found.draws;
  const higher = found.higher ?? (found.random >= found.attended ? draws : 0);
  if (found.attended < found.random && higher > draws / 2) {
    return `In this sentence, the most attended ${words} less than random ones: do not read this picture as an explanation.`;
  }
  // The most attended words themselves may be among the draws.
  if (found.attended > found.random && higher <= Math.max(1, draws / 20)) {
    return `In this sentence, the most attended ${words} more than random ones: the weights point at words that the model used.`;
  }
  return `In this sentence, it is not clear that the most attended ${words} more than random ones: do not rely on this picture.`;
}

/** @param {number} fall */
function formatChange(fall) {
  return fall >= 0 ? `falls by ${fall.toFixed(1)}` : `rises by ${(-fall).toFixed(1)}`;
}
