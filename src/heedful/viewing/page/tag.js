// The Tag panel: the words of a sentence with their tags.

import { percent } from "./bars.js";
import { element } from "./elements.js";
import { TextInput } from "./text_input.js";
import { WordBars } from "./word_bars.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Start} Start */
/** @typedef {import("./types.js").ReaderFacts} ReaderFacts */
/** @typedef {import("./types.js").TaggedWords} TaggedWords */

const IDLE = "The bar below a tag is its probability. Point at a word, or move to it with Tab and the arrow keys, to see the number.";

class Tag {
  /** @param {Page} page @param {ReaderFacts[]} readers */
  constructor(page, readers) {
    this.page = page;
    this.textInput = new TextInput(page, "tag", readers, {
      label: "Sentence to tag", placeholder: "Type a sentence…", submit: (text, signal) => this.submit(text, signal),
      clear: () => this.show(null), busy: (busy) => this.output.setAttribute("aria-busy", String(busy)),
    });
    this.bars = new WordBars({ label: "Words and their tags", idle: IDLE });
    this.long = element("p", { class: "heed-detail" });
    this.output = element(
      "section", { class: "heed-below", "aria-label": "Tags" }, element("h2", {}, "Words and their tags"), this.bars.body, this.long,
    );
    const { textInput } = this;
    this.body = element(
      "div", { class: "heed-panel heed-tag" }, textInput.tools,
      element(
        "section", { class: "heed-input" }, element("h2", {}, "Sentence"), textInput.input,
        element("p", { class: "heed-hint" }, "Separate words by spaces. Separate punctuation if it is separate in the training data."),
      ),
      textInput.notice, this.output,
    );
    this.show(null);
  }

  /** @param {string} text @param {AbortSignal} signal */
  async submit(text, signal) {
    const { model } = this.textInput;
    const { results: [found] } = await this.page.provider.tag({ model, text }, signal);
    if (signal.aborted) return;
    this.textInput.notice.textContent = "";
    this.show(found);
    const long = found.windows > 1;
    this.textInput.setSubject(long ? null : { model, source: text }, "this sentence was split into windows; tag a part of it to see its attention");
    this.long.textContent = long ? `Split into ${found.windows} windows, because it is longer than the model’s context.` : "";
  }

  /** @param {TaggedWords | null} found */
  show(found) {
    this.output.hidden = !found?.words.length;
    this.long.textContent = "";
    this.bars.show((found?.words ?? []).map((word, i) => {
      const [label, share] = [found?.tags[i] ?? "", found?.probabilities[i] ?? 0];
      return { word, label, share, said: `${label}, ${percent(share)}` };
    }));
    this.page.announce(found ? found.words.map((word, i) => `${word} ${found.tags[i]}`).join(", ") : "");
  }
}

/**
 * @param {Page} page
 * @param {ReaderFacts[]} readers
 * @param {Start} start
 * @returns {Panel}
 */
export function panel(page, readers, start) {
  const tag = new Tag(page, readers);
  if (start.text && !page.savedInputs.get("tag")) tag.textInput.input.value = start.text;
  tag.textInput.run();
  return { name: "tag", title: "Tag", body: tag.body, show: () => tag.textInput.restoreSubject(), setText: (text) => tag.textInput.setText(text), hasInput: true, unit: "tags" };
}
