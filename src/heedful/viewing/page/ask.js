// The Ask panel: a question and a text; the answer is highlighted in the text.

import { barList, fillBars, percent } from "./bars.js";
import { element } from "./elements.js";
import { TextInput } from "./text_input.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Start} Start */
/** @typedef {import("./types.js").ReaderFacts} ReaderFacts */
/** @typedef {import("./types.js").FoundAnswer} FoundAnswer */
/** @typedef {import("./types.js").FoundSpan} FoundSpan */

const NONE = "No answer in this text";

class Ask {
  /** @param {Page} page @param {ReaderFacts[]} readers */
  constructor(page, readers) {
    this.page = page;
    /** @type {FoundAnswer | null} */
    this.found = null;
    /** @type {string[]} the characters (code points) of the text that was searched, as the server counts them */
    this.characters = [];
    this.textInput = new TextInput(page, "ask", readers, {
      label: "Question", placeholder: "Type a question…", submit: (text, signal) => this.submit(text, signal),
      clear: () => this.show(null), busy: (busy) => this.output.setAttribute("aria-busy", String(busy)),
      more: () => ({ second: this.context.value }),
    });
    /** @type {HTMLTextAreaElement} */
    this.context = this.textInput.field("Text with the answer", "Paste the text that has the answer…");
    this.context.rows = 9;
    this.context.value = page.savedInputs.get("ask")?.second ?? "";
    this.answer = element("p", { class: "heed-prediction" });
    this.detail = element("p", { class: "heed-detail" });
    this.bars = barList("Possible answers and their probabilities");
    this.text = element("p", { class: "heed-searched", dir: "auto" });
    this.textSection = element("section", { class: "heed-below", "aria-label": "The answer in the text" }, element("h2", {}, "The answer in the text"), this.text);
    this.output = element(
      "section", { class: "heed-output", "aria-label": "Answer" },
      element("h2", {}, "Answer"), this.answer, this.bars, this.detail,
    );
    const { textInput } = this;
    this.body = element(
      "div", { class: "heed-panel heed-ask" }, textInput.tools,
      element(
        "div", { class: "heed-columns" },
        element(
          "section", { class: "heed-input" }, element("h2", {}, "Question"), textInput.input,
          element("div", { class: "heed-second" }, element("h2", {}, "Text"), this.context),
        ),
        this.output,
      ),
      textInput.notice, this.textSection,
    );
    this.show(null);
  }

  /** @param {string} question @param {AbortSignal} signal @returns {Promise<void>} */
  async submit(question, signal) {
    const { model } = this.textInput;
    const context = this.context.value;
    if (!context.trim()) return this.textInput.clear("type or paste the text as well");
    const { results: [found] } = await this.page.provider.predict(model, { inputs: [{ question, context }] }, signal);
    if (signal.aborted) return;
    this.textInput.notice.textContent = "";
    this.characters = [...context];
    this.show(/** @type {FoundAnswer} */ (/** @type {unknown} */ (found)));
    this.textInput.setSubject({ model, source: question, target: context });
  }

  /** @param {FoundAnswer | null} found */
  show(found) {
    this.found = found;
    this.output.hidden = this.textSection.hidden = !found;
    if (!found) return;
    const [best] = found.candidates;
    this.answer.replaceChildren(element("bdi", {}, found.answer || NONE));
    const probability = found.answer && best ? `Its probability is ${percent(best.probability)}. ` : "";
    const windows = found.windows > 1
      ? `The text is longer than the model reads at once: it was read in ${found.windows} windows that overlap. The best answer is in window ${found.window}.`
      : "";
    this.detail.textContent = `${probability}${windows}`;
    this.highlight(found.answer && best ? best : null);
    this.page.announce(found.answer || NONE);
  }

  /** @param {FoundSpan | null} span the part of the text to highlight */
  highlight(span) {
    const { characters, found } = this;
    const [start, end] = span ? [span.start, span.end] : [0, 0];
    const part = (/** @type {number} */ from, /** @type {number} */ to) => characters.slice(from, to).join("");
    this.text.replaceChildren(part(0, start), ...(span ? [element("mark", {}, part(start, end))] : []), part(end, characters.length));
    const spans = found?.candidates ?? [];
    fillBars(this.bars, spans.map((one) => ({
      text: one.text, probability: one.probability, pressed: one === span, title: "Show this answer in the text",
    })), (row) => this.highlight(spans[row]), "show it in the text");
  }
}

/**
 * @param {Page} page
 * @param {ReaderFacts[]} readers
 * @param {Start} start
 * @returns {Panel}
 */
export function panel(page, readers, start) {
  const ask = new Ask(page, readers);
  const { textInput } = ask;
  if (start.text && !page.savedInputs.get("ask")) {
    textInput.input.value = start.text;
    ask.context.value = start.second ?? "";
  }
  textInput.run();
  return { name: "ask", title: "Ask", body: ask.body, show: () => textInput.restoreSubject(), setText: (text) => textInput.setText(text), hasInput: true, unit: "" };
}
