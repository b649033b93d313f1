// What attention shows and what it does not, with a measurement for the current sentence.

import { element, messageOf } from "./elements.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Models} Models */

/**
 * @param {Page} page
 * @param {Models} models
 * @returns {{body: HTMLElement, refresh: () => Promise<void>}}
 */
export function honesty(page, models) {
  const figure = element("span", { class: "heed-figure", role: "status" });
  const check = element("button", { type: "button", class: "heed-quiet", onclick: () => run() }, "Test it on this sentence");
  let asked = 0;

  async function run() {
    const { subject } = page.session;
    if (!subject || !("source" in subject)) return;
    const mine = ++asked;
    check.disabled = true;
    figure.textContent = "Removing words…";
    try {
      const { model, source, target } = subject;
      const found = await page.provider.faithfulness({ model, source, ...(target === undefined ? {} : { target }) });
      if (mine === asked) figure.textContent = told(found);
    } catch (error) {
      if (mine === asked) figure.textContent = messageOf(error);
    } finally {
      check.disabled = false;
    }
  }

  const body = element(
    "aside", { class: "heed-honest", "aria-label": "What attention shows" },
    element(
      "p", {},
      element("strong", {}, "How to read this. "),
      "Attention weights show where one part of the model took information from, not why it decided. Other layers, "
        + "the residual stream and the attended values also matter, and very different weights can give the same output. ",
      check,
      " ", figure,
    ),
  );
  /** A trace may have come with its figure; of a sentence it is computed when it is asked for. */
  async function refresh() {
    const mine = ++asked;
    figure.textContent = "";
    const { subject } = page.session;
    const typed = subject && "model" in subject ? subject : null;
    check.hidden = !models.models.some(({ name, aligns }) => name === typed?.model && aligns !== false);
    if (!subject || typed) return;
    try {
      const { faithfulness } = (await page.session.current()).summary;
      if (faithfulness && mine === asked) figure.textContent = told(faithfulness);
    } catch {
      // The panel shows the error of the trace.
    }
  }

  refresh();
  return { body, refresh };
}

/** @param {import("./types.js").Faithfulness} found */
function told(found) {
  const one = found.words === 1;
  const names = found.dropped?.length ? ` (${found.dropped.join(", ")})` : "";
  const most = `Without ${one ? "the most attended source word" : `the ${found.words} most attended source words`}${names}`;
  const spread = found.draws > 1 ? ` ± ${found.random_spread.toFixed(1)}` : "";
  const higher = found.higher === undefined ? ""
    : ` ${found.higher} of these ${found.draws} random choices lowered it at least as much.`;
  return `${most} the translation’s log-probability ${change(found.attended)}; without ${one ? "a random one" : `${found.words} random ones`} `
    + `it ${change(found.random)}${spread} (${found.draws} draws).${higher}`;
}

/** @param {number} fall */
function change(fall) {
  return fall >= 0 ? `falls by ${fall.toFixed(1)}` : `rises by ${(-fall).toFixed(1)}`;
}
