// The Fill in panel: a text with masks, and the candidates for each mask.

import { barList, fillBars, percent } from "./bars.js";
import { element } from "./elements.js";
import { TextInput } from "./text_input.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Start} Start */
/** @typedef {import("./types.js").ReaderFacts} ReaderFacts */
/** @typedef {import("./types.js").Filled} Filled */

const CANDIDATES = 6;

class Fill {
  /** @param {Page} page @param {ReaderFacts[]} readers */
  constructor(page, readers) {
    this.page = page;
    /** @type {string[]} the texts before each inserted candidate, for undo */
    this.history = [];
    /** @type {Filled | null} */
    this.result = null;
    this.textInput = new TextInput(page, "fill", readers, {
      label: "Text with masks", placeholder: `Type a text that contains ${readers[0].masks?.[0] ?? "[MASK]"}…`,
      submit: (text, signal) => this.submit(text, signal), clear: () => this.show(null),
      busy: (busy) => this.output.setAttribute("aria-busy", String(busy)),
    });
    this.textInput.input.addEventListener("input", () => this.clearHistory());
    this.maskButton = element("button", { type: "button", class: "heed-button", onclick: () => this.maskWord() }, "Mask the word at the cursor");
    this.undoButton = element("button", { type: "button", class: "heed-button", onclick: () => this.undo() }, "Undo");
    this.filledText = element("p", { class: "heed-text", dir: "auto" });
    this.candidates = element("div", { class: "heed-masks" });
    this.output = element(
      "section", { class: "heed-output", "aria-label": "Filled in" }, element("h2", {}, "Most probable text"), this.filledText,
      this.candidates,
    );
    const { textInput } = this;
    this.body = element(
      "div", { class: "heed-panel heed-fill" }, textInput.tools,
      element(
        "div", { class: "heed-columns" },
        element(
          "section", { class: "heed-input" }, element("h2", {}, "Text"), textInput.input,
          element("div", { class: "heed-tools heed-actions" }, this.maskButton, this.undoButton),
        ),
        this.output,
      ),
      textInput.notice,
    );
    this.clearHistory();
    this.show(null);
  }

  /** A regular expression that matches the masks of the model. */
  get maskPattern() {
    const names = this.textInput.modelFacts.masks ?? ["[MASK]"];
    return new RegExp(names.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|"), "gu");
  }

  /** @param {string} text @param {AbortSignal} signal */
  async submit(text, signal) {
    if (!text.match(this.maskPattern)) {
      this.textInput.clear("mask a word first");
      this.textInput.showError(`The text has no mask: move the cursor to a word and press “${this.maskButton.textContent}”.`);
      return;
    }
    const { model } = this.textInput;
    const { result } = await this.page.provider.fill({ model, text, count: CANDIDATES }, signal);
    if (signal.aborted) return;
    this.textInput.notice.textContent = "";
    this.show(result);
    this.textInput.setSubject({ model, source: text });
  }

  /** @param {Filled | null} found */
  show(found) {
    this.result = found;
    this.output.hidden = !found?.masks.length;
    const parts = found?.source.split(this.maskPattern) ?? [];
    this.filledText.replaceChildren(...parts.flatMap((part, i) => {
      const best = found?.masks[i]?.[0];
      return best ? [part, element("mark", {}, best.word.trim() || best.token)] : [part];
    }));
    const several = (found?.masks.length ?? 0) > 1;
    this.candidates.replaceChildren(...(found?.masks ?? []).map((candidates, place) => {
      const name = several ? `Mask ${place + 1}` : "Mask";
      const list = barList(`${name}: candidates`);
      fillBars(list, candidates.map(({ word, token, probability, text }) => ({ text: word.trim() || token, probability, title: text })),
        (row) => this.insert(place, candidates[row].word), "insert");
      return element("div", { role: "group", "aria-label": name }, element("h2", {}, name), list);
    }));
    this.page.announce((found?.masks ?? []).map(([best]) => `${best.word}, ${percent(best.probability)}`).join("; "));
  }

  /**
   * Insert a candidate at a mask; candidates for the remaining masks are predicted again.
   * @param {number} place
   * @param {string} word
   */
  insert(place, word) {
    const { input } = this.textInput;
    if (input.value !== this.result?.source) return;
    this.history.push(input.value);
    let at = 0;
    input.value = input.value.replace(this.maskPattern, (name) => (at++ === place ? word.trim() : name));
    this.undoButton.hidden = false;
    const left = at > 1;
    if (left) this.textInput.run();
    else this.finish();
    this.undoButton.focus();
  }

  /** Finish after the last mask has been replaced. */
  finish() {
    this.textInput.clear("the text has no mask");
    this.textInput.save();
    this.page.announce(this.textInput.input.value);
  }

  undo() {
    const text = this.history.pop();
    if (text === undefined) return;
    this.textInput.input.value = text;
    this.undoButton.hidden = !this.history.length;
    if (this.undoButton.hidden) this.textInput.input.focus();
    this.textInput.run();
  }

  /** Forget the inserted candidates; typed text can be undone in the text field itself. */
  clearHistory() {
    this.history = [];
    this.undoButton.hidden = true;
  }

  /** Mask the selection, or the word at the cursor. */
  maskWord() {
    const { input } = this.textInput;
    let { selectionStart: from, selectionEnd: to } = input;
    if (from === to) {
      from -= /[\p{L}\p{M}\p{N}’']*$/u.exec(input.value.slice(0, from))?.[0].length ?? 0;
      to += /^[\p{L}\p{M}\p{N}’']*/u.exec(input.value.slice(to))?.[0].length ?? 0;
    }
    const mask = this.textInput.modelFacts.masks?.[0] ?? "[MASK]";
    input.setRangeText(mask, from, to, "end");
    input.focus();
    this.clearHistory();
    this.textInput.run();
  }
}

/**
 * @param {Page} page
 * @param {ReaderFacts[]} readers
 * @param {Start} start
 * @returns {Panel}
 */
export function panel(page, readers, start) {
  const fill = new Fill(page, readers);
  if (start.text && !page.savedInputs.get("fill")) fill.textInput.input.value = start.text;
  fill.textInput.run();
  return { name: "fill", title: "Fill in", body: fill.body, show: () => fill.textInput.restoreSubject(), setText: (text) => fill.textInput.setText(text), hasInput: true };
}
