// The Tag panel: the words of a sentence with their tags.

import { percent } from "./bars.js";
import { element, rovingTabindex } from "./elements.js";
import { TextInput } from "./text_input.js";

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
    this.words = element("div", { class: "heed-tagged", dir: "auto", role: "group", "aria-label": "Words and their tags" });
    rovingTabindex(this.words, "button", () => 1);
    this.readout = element("p", { class: "heed-readout heed-idle" });
    this.long = element("p", { class: "heed-detail" });
    for (const event of ["pointerover", "focusin"]) this.words.addEventListener(event, ({ target }) => this.showReadout(target));
    for (const event of ["pointerleave", "focusout"]) this.words.addEventListener(event, () => this.showReadout(null));
    this.output = element(
      "section", { class: "heed-below", "aria-label": "Tags" }, element("h2", {}, "Words and their tags"), this.words, this.readout, this.long,
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
    this.found = found;
    this.output.hidden = !found?.words.length;
    this.long.textContent = "";
    this.words.replaceChildren(...(found?.words ?? []).map((word, i) => {
      const { tag, probability } = this.at(i);
      const fill = element("i", {});
      fill.style.inlineSize = `${probability * 100}%`;
      return element(
        "button", { type: "button", tabindex: i ? -1 : 0, "data-word": i, "aria-label": `${word} ${tag}, ${percent(probability)}` },
        element("span", { dir: "auto" }, word), " ", element("small", {}, tag), element("span", { class: "heed-probability" }, fill),
      );
    }));
    this.showReadout(null);
    this.page.announce(found ? found.words.map((word, i) => `${word} ${found.tags[i]}`).join(", ") : "");
  }

  /** @param {number} word */
  at(word) {
    return { tag: this.found?.tags[word] ?? "", probability: this.found?.probabilities[word] ?? 0 };
  }

  /** @param {EventTarget | null} target */
  showReadout(target) {
    const button = target instanceof Element ? target.closest("button") : null;
    this.readout.classList.toggle("heed-idle", !button);
    if (!button || !this.found) {
      this.readout.textContent = IDLE;
      return;
    }
    const word = Number(button.dataset.word);
    const { tag, probability } = this.at(word);
    this.readout.replaceChildren(element("bdi", {}, element("strong", {}, this.found.words[word])), `: ${tag}, ${percent(probability)}`);
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
