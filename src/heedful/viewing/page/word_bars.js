// The words of a text, each with a label and the bar of a probability; the word that is pointed at is described below.

import { element, rovingTabindex } from "./elements.js";

/**
 * A word with its label, the share of its bar from 0 to 1, and what is said of it after its name.
 * @typedef {{word: string, label: string, share: number, said: string, marked?: boolean}} WordBar
 */

export class WordBars {
  /** @param {{label: string, idle: string}} options */
  constructor({ label, idle }) {
    this.idle = idle;
    /** @type {WordBar[]} */
    this.bars = [];
    this.words = element("div", { class: "heed-tagged", dir: "auto", role: "group", "aria-label": label });
    rovingTabindex(this.words, "button", () => 1);
    this.readout = element("p", { class: "heed-readout heed-idle" });
    for (const event of ["pointerover", "focusin"]) this.words.addEventListener(event, ({ target }) => this.showReadout(target));
    for (const event of ["pointerleave", "focusout"]) this.words.addEventListener(event, () => this.showReadout(null));
    this.body = element("div", {}, this.words, this.readout);
  }

  /** @param {WordBar[]} bars */
  show(bars) {
    this.bars = bars;
    this.words.replaceChildren(...bars.map(({ word, label, share, said, marked }, i) => {
      const fill = element("i", {});
      fill.style.inlineSize = `${share * 100}%`;
      return element(
        "button", {
          type: "button", tabindex: i ? -1 : 0, "data-word": i, "aria-label": `${word} ${said}`, class: marked ? "heed-marked" : "",
        },
        element("span", { dir: "auto" }, word), " ", element("small", {}, label), element("span", { class: "heed-probability" }, fill),
      );
    }));
    this.showReadout(null);
  }

  /** @param {EventTarget | null} target */
  showReadout(target) {
    const button = target instanceof Element ? target.closest("button") : null;
    this.readout.classList.toggle("heed-idle", !button);
    if (!button) {
      this.readout.textContent = this.idle;
      return;
    }
    const { word, said } = this.bars[Number(button.dataset.word)];
    this.readout.replaceChildren(element("bdi", {}, element("strong", {}, word)), `: ${said}`);
  }
}
