// A panel for models that give a number for each word or token of a text: the text, and below it the words with bars.

import { element } from "./elements.js";
import { TextInput } from "./text_input.js";
import { WordBars } from "./word_bars.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Start} Start */
/** @typedef {import("./types.js").ReaderFacts} ReaderFacts */

/**
 * What such a panel shows of a model's result.
 * @typedef {object} WordPanelOptions
 * @property {string} name
 * @property {string} title
 * @property {string} placeholder
 * @property {string} heading above the words
 * @property {string} hint below the text
 * @property {string} idle what is said while no word is pointed at
 * @property {string} unit
 * @property {(result: Record<string, unknown>) => import("./word_bars.js").WordBar[]} bars
 * @property {(bars: import("./word_bars.js").WordBar[]) => string} announced what a screen reader says of them
 */

/** The symbols before and after the tokens of a text. */
const AROUND = 2;

class WordPanel {
  /** @param {Page} page @param {ReaderFacts[]} readers @param {WordPanelOptions} options */
  constructor(page, readers, options) {
    this.page = page;
    this.readers = readers;
    this.options = options;
    this.textInput = new TextInput(page, options.name, readers, {
      label: "Text", placeholder: options.placeholder, submit: (text, signal) => this.submit(text, signal),
      clear: () => this.show([]), busy: (busy) => this.output.setAttribute("aria-busy", String(busy)),
    });
    this.bars = new WordBars({ label: options.heading, idle: options.idle });
    this.output = element("section", { class: "heed-below", "aria-label": options.heading }, element("h2", {}, options.heading), this.bars.body);
    const { textInput } = this;
    this.body = element(
      "div", { class: `heed-panel heed-${options.name}` }, textInput.tools,
      element("section", { class: "heed-input" }, element("h2", {}, "Text"), textInput.input, element("p", { class: "heed-hint" }, options.hint)),
      textInput.notice, this.output,
    );
    this.show([]);
  }

  /** @param {string} text @param {AbortSignal} signal */
  async submit(text, signal) {
    const { model } = this.textInput;
    const { results: [found] } = await this.page.provider.predict(model, { inputs: [text] }, signal);
    if (signal.aborted) return;
    this.textInput.notice.textContent = "";
    const bars = this.options.bars(found);
    this.show(bars);
    const reason = this.untraced(model, bars.length);
    this.textInput.setSubject(reason ? null : { model, source: text }, reason);
  }

  /**
   * Why the attention for a text cannot be shown; empty if it can.
   * @param {string} model
   * @param {number} count
   */
  untraced(model, count) {
    const facts = this.readers.find(({ name }) => name === model);
    if (!facts?.maps?.length) return "this model has no attention";
    const long = count + AROUND > (facts.max_tokens ?? Infinity);
    return long ? "this text is longer than the model’s context; enter a part of it to see its attention" : "";
  }

  /** @param {import("./word_bars.js").WordBar[]} bars */
  show(bars) {
    this.output.hidden = !bars.length;
    this.bars.show(bars);
    this.page.announce(bars.length ? this.options.announced(bars) : "");
  }
}

/**
 * @param {Page} page
 * @param {ReaderFacts[]} readers
 * @param {Start} start
 * @param {WordPanelOptions} options
 * @returns {Panel}
 */
export function wordPanel(page, readers, start, options) {
  const { name, title, unit } = options;
  const made = new WordPanel(page, readers, options);
  if (start.text && !page.savedInputs.get(name)) made.textInput.input.value = start.text;
  made.textInput.run();
  return {
    name, title, body: made.body, show: () => made.textInput.restoreSubject(), setText: (text) => made.textInput.setText(text), hasInput: true, unit,
  };
}
