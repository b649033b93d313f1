// The fill panel: a text with masks, and candidates for each mask.

import { barList, fillBars, percent } from "./bars.js";
import { element } from "./elements.js";
import { Typing } from "./typing.js";

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
    /** @type {string[]} the texts before a candidate was taken */
    this.before = [];
    /** @type {Filled | null} */
    this.found = null;
    this.typing = new Typing(page, "fill", readers, {
      label: "Text with masks", placeholder: `Type a text with ${readers[0].masks?.[0] ?? "[MASK]"} in it…`,
      ask: (text, signal) => this.ask(text, signal), clear: () => this.show(null),
      busy: (busy) => this.output.setAttribute("aria-busy", String(busy)),
    });
    this.typing.input.addEventListener("input", () => this.forget());
    this.hide = element("button", { type: "button", class: "heed-quiet", onclick: () => this.hideWord() }, "Mask the word at the cursor");
    this.undo = element("button", { type: "button", class: "heed-quiet", onclick: () => this.takeBack() }, "Undo");
    this.whole = element("p", { class: "heed-text", dir: "auto" });
    this.places = element("div", { class: "heed-places" });
    this.output = element(
      "section", { class: "heed-output", "aria-label": "Filled in" }, element("h2", {}, "Filled in with the most probable words"), this.whole,
      this.places,
    );
    const { typing } = this;
    this.body = element(
      "div", { class: "heed-panel heed-fill" }, typing.tools,
      element(
        "div", { class: "heed-two" },
        element(
          "section", { class: "heed-input" }, element("h2", {}, "Text"), typing.input,
          element("div", { class: "heed-tools heed-after" }, this.hide, this.undo),
        ),
        this.output,
      ),
      typing.notice,
    );
    this.forget();
    this.show(null);
  }

  /** A regular expression for masks. */
  get hidden() {
    const names = this.typing.known.masks ?? ["[MASK]"];
    return new RegExp(names.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|"), "gu");
  }

  /** @param {string} text @param {AbortSignal} signal */
  async ask(text, signal) {
    if (!text.match(this.hidden)) {
      this.typing.nothing("mask a word first");
      this.typing.tell(`The text has no mask: move the cursor to a word and choose “${this.hide.textContent}”.`);
      return;
    }
    const { model } = this.typing;
    const { result } = await this.page.provider.fill({ model, text, count: CANDIDATES }, signal);
    if (signal.aborted) return;
    this.typing.notice.textContent = "";
    this.show(result);
    this.typing.look({ model, source: text });
  }

  /** @param {Filled | null} found */
  show(found) {
    this.found = found;
    this.output.hidden = !found?.masks.length;
    const parts = found?.source.split(this.hidden) ?? [];
    this.whole.replaceChildren(...parts.flatMap((part, i) => {
      const best = found?.masks[i]?.[0];
      return best ? [part, element("mark", {}, best.word.trim() || best.token)] : [part];
    }));
    const several = (found?.masks.length ?? 0) > 1;
    this.places.replaceChildren(...(found?.masks ?? []).map((candidates, place) => {
      const name = several ? `Mask ${place + 1}` : "Mask";
      const list = barList(`${name}: candidates`);
      fillBars(list, candidates.map(({ word, token, probability, text }) => ({ text: word.trim() || token, probability, title: text })),
        (row) => this.take(place, candidates[row].word), "fill it in");
      return element("div", { role: "group", "aria-label": name }, element("h2", {}, name), list);
    }));
    this.page.announce((found?.masks ?? []).map(([best]) => `${best.word}, ${percent(best.probability)}`).join("; "));
  }

  /**
   * Replaces a mask by a candidate, and requests candidates for the remaining masks.
   * @param {number} place
   * @param {string} word
   */
  take(place, word) {
    const { input } = this.typing;
    if (input.value !== this.found?.source) return;
    this.before.push(input.value);
    let at = 0;
    input.value = input.value.replace(this.hidden, (name) => (at++ === place ? word.trim() : name));
    this.undo.hidden = false;
    const left = at > 1;
    if (left) this.typing.run();
    else this.done();
    this.undo.focus();
  }

  /** The last hidden place was written: there is nothing more to ask. */
  done() {
    this.typing.nothing("no mask is left");
    this.typing.keep();
    this.page.announce(this.typing.input.value);
  }

  takeBack() {
    const text = this.before.pop();
    if (text === undefined) return;
    this.typing.input.value = text;
    this.undo.hidden = !this.before.length;
    if (this.undo.hidden) this.typing.input.focus();
    this.typing.run();
  }

  /** Typing clears the undo history. */
  forget() {
    this.before = [];
    this.undo.hidden = true;
  }

  /** Hides what is selected, or the word that the cursor stands in. */
  hideWord() {
    const { input } = this.typing;
    let { selectionStart: from, selectionEnd: to } = input;
    if (from === to) {
      from -= /[\p{L}\p{M}\p{N}’']*$/u.exec(input.value.slice(0, from))?.[0].length ?? 0;
      to += /^[\p{L}\p{M}\p{N}’']*/u.exec(input.value.slice(to))?.[0].length ?? 0;
    }
    const mask = this.typing.known.masks?.[0] ?? "[MASK]";
    input.setRangeText(mask, from, to, "end");
    input.focus();
    this.forget();
    this.typing.run();
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
  if (start.text && !page.kept.of("fill")) fill.typing.input.value = start.text;
  fill.typing.run();
  return { name: "fill", title: "Fill in", body: fill.body, show: () => fill.typing.again(), types: true };
}
