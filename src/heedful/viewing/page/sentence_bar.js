// The text and the model above the panels that look inside; the text can be edited in place.

import { element, focusedNear } from "./elements.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */

// Panels that show texts themselves.
const OWN_TEXTS = ["compare"];
/** A field of one line removes line breaks, so that they are shown as this. */
const BREAK = "⏎";

export class SentenceBar {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.before = "";
    /** @type {HTMLInputElement} */
    this.field = element("input", {
      type: "text", class: "heed-sentence-field", dir: "auto", spellcheck: "false", "aria-label": "Text; edit it to look at another one",
      onchange: () => this.edited(), onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Escape") this.field.value = inOneLine(this.before);
      },
    });
    this.model = element("span", { class: "heed-detail" });
    this.body = element("section", { class: "heed-sentence-bar", "aria-label": "Text and model", hidden: true }, this.field, this.model);
  }

  /**
   * Show the subject of the session.
   * @param {Panel | undefined} panel the one that is open
   */
  show(panel) {
    const { subject } = this.page.session;
    const typed = subject && "model" in subject && "source" in subject ? subject : null;
    this.body.hidden = !panel || panel.hasInput === true || OWN_TEXTS.includes(panel.name) || !typed || !this.owner?.setText;
    if (!typed) return;
    this.before = typed.source;
    if (focusedNear(this.field) !== this.field) this.field.value = inOneLine(typed.source);
    this.model.textContent = typed.model;
  }

  /** The panel that the text was typed in. */
  get owner() {
    const { subject } = this.page.session;
    return subject && "model" in subject ? this.page.panelOf(subject.model) : undefined;
  }

  edited() {
    const { value } = this.field;
    const text = (this.before.includes("\n") ? value.replaceAll(BREAK, "\n") : value).trim();
    const { owner } = this;
    if (!text) this.field.value = inOneLine(this.before);
    else if (owner && text !== this.before.trim()) {
      this.page.input = owner.name;
      owner.setText?.(text, this.before);
    }
  }
}

/** @param {string} text */
function inOneLine(text) {
  return text.replaceAll("\n", BREAK);
}

/**
 * A text in which a sentence is replaced, or the new sentence if the text does not have the old one.
 * @param {string} whole
 * @param {string} sentence
 * @param {string} before
 */
export function replaceSentence(whole, sentence, before) {
  return before && whole.includes(before) ? whole.replace(before, () => sentence) : sentence;
}
