// The tag panel: the words of a sentence with their tags.

import { percent } from "./bars.js";
import { element, roving } from "./elements.js";
import { Typing } from "./typing.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Start} Start */
/** @typedef {import("./types.js").ReaderFacts} ReaderFacts */
/** @typedef {import("./types.js").TaggedWords} TaggedWords */

const IDLE = "The bar below a tag is its probability. Point at a word, or use Tab and the arrow keys, to see the number.";

class Tag {
  /** @param {Page} page @param {ReaderFacts[]} readers */
  constructor(page, readers) {
    this.page = page;
    this.typing = new Typing(page, "tag", readers, {
      label: "Sentence to tag", placeholder: "Type a sentence…", ask: (text, signal) => this.ask(text, signal),
      clear: () => this.show(null), busy: (busy) => this.output.setAttribute("aria-busy", String(busy)),
    });
    this.words = element("div", { class: "heed-tagged", dir: "auto", role: "group", "aria-label": "Words and their tags" });
    roving(this.words, "button", () => 1);
    this.readout = element("p", { class: "heed-readout heed-idle" });
    this.long = element("p", { class: "heed-where" });
    for (const event of ["pointerover", "focusin"]) this.words.addEventListener(event, ({ target }) => this.tell(target));
    for (const event of ["pointerleave", "focusout"]) this.words.addEventListener(event, () => this.tell(null));
    this.output = element(
      "section", { class: "heed-below", "aria-label": "Tags" }, element("h2", {}, "Words and their tags"), this.words, this.readout, this.long,
    );
    const { typing } = this;
    this.body = element(
      "div", { class: "heed-panel heed-tag" }, typing.tools,
      element(
        "section", { class: "heed-input" }, element("h2", {}, "Sentence"), typing.input,
        element("p", { class: "heed-hint" }, "Words are parted by spaces; a full stop is a word of its own where it was one in what the model learnt from."),
      ),
      typing.notice, this.output,
    );
    this.show(null);
  }

  /** @param {string} text @param {AbortSignal} signal */
  async ask(text, signal) {
    const { model } = this.typing;
    const { results: [found] } = await this.page.provider.tag({ model, text }, signal);
    if (signal.aborted) return;
    this.typing.notice.textContent = "";
    this.show(found);
    const long = found.windows > 1;
    this.typing.look(long ? null : { model, source: text }, "this sentence was processed in windows; to see attention, tag a part of it");
    this.long.textContent = long ? `Processed in ${found.windows} windows, because it exceeds the model’s maximum length.` : "";
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
        "button", { type: "button", tabindex: i ? -1 : 0, "data-word": i, "aria-label": `${word}: ${tag}, ${percent(probability)}` },
        element("span", { dir: "auto" }, word), element("small", {}, tag), element("span", { class: "heed-sure" }, fill),
      );
    }));
    this.tell(null);
    this.page.announce(found ? found.words.map((word, i) => `${word} ${found.tags[i]}`).join(", ") : "");
  }

  /** @param {number} word */
  at(word) {
    return { tag: this.found?.tags[word] ?? "", probability: this.found?.probabilities[word] ?? 0 };
  }

  /** @param {EventTarget | null} target */
  tell(target) {
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
  if (start.text && !page.kept.of("tag")) tag.typing.input.value = start.text;
  tag.typing.run();
  return { name: "tag", title: "Tag", body: tag.body, show: () => tag.typing.again(), types: true, unit: "tags" };
}
