// A source text and its translation as words; pointing at a word highlights the aligned words on the other side.

import { element, rovingTabindex } from "./elements.js";

/**
 * Split a text into words and the white space before them.
 * @param {string} text
 * @returns {{word: string, start: number, before: string}[]}
 */
export function splitWords(text) {
  const found = [];
  let last = 0;
  for (const match of text.matchAll(/\S+/gu)) {
    const start = match.index ?? 0;
    found.push({ word: match[0], start, before: text.slice(last, start) });
    last = start + match[0].length;
  }
  return found;
}

/**
 * @typedef {object} Links
 * @property {import("./types.js").SoftRow[] | null} soft one row per target word
 * @property {[number, number][]} hard pairs of source and target word
 */

/** Two texts with highlighted alignment. */
export class LinkedTexts {
  /** @param {{source: HTMLElement, target: HTMLElement, opened: (word: number, button: HTMLElement) => void}} places */
  constructor(places) {
    this.places = places;
    /** @type {Links} */
    this.links = { soft: null, hard: [] };
    this.pinned = -1;
    /** @type {Record<"source" | "target", HTMLElement[]>} */
    this.buttons = { source: [], target: [] };
    for (const side of /** @type {const} */ (["source", "target"])) {
      const place = places[side];
      rovingTabindex(place, ".heed-word", () => 1);
      place.addEventListener("pointerover", (event) => this.highlight(side, this.wordOf(side, event)));
      place.addEventListener("pointerleave", () => this.highlight(side, -1));
      place.addEventListener("focusin", (event) => this.highlight(side, this.wordOf(side, event)));
      place.addEventListener("focusout", () => this.highlight(side, -1));
    }
  }

  /**
   * @param {string} source
   * @param {string} target
   * @param {Links} links
   * @param {number} forced number of characters of the forced target prefix
   */
  show(source, target, links, forced) {
    this.links = links;
    this.buttons.source = this.fill("source", source, 0);
    this.buttons.target = this.fill("target", target, forced);
  }

  /** @param {"source" | "target"} side @param {string} text @param {number} forced */
  fill(side, text, forced) {
    const words = splitWords(text);
    const buttons = words.map(({ word, start }, i) => {
      const isForced = side === "target" && start < forced;
      return element("button", {
        type: "button", class: isForced ? "heed-word heed-forced" : "heed-word", tabindex: i ? -1 : 0,
        "aria-describedby": null, "aria-haspopup": side === "target" ? "menu" : null,
        onclick: (/** @type {MouseEvent} */ event) => {
          if (side === "target") this.places.opened(i, /** @type {HTMLElement} */ (event.currentTarget));
        },
      }, word);
    });
    const last = words[words.length - 1];
    const after = last ? text.slice(last.start + last.word.length) : "";
    this.places[side].replaceChildren(...buttons.flatMap((button, i) => [words[i].before, button]), after);
    return buttons;
  }

  /**
   * Mark words as those that something was found in.
   * @param {"source" | "target"} side
   * @param {number[]} words
   */
  flag(side, words) {
    this.buttons[side].forEach((button, i) => button.classList.toggle("heed-flagged", words.includes(i)));
  }

  /** @param {"source" | "target"} side @param {Event} event */
  wordOf(side, event) {
    return this.buttons[side].indexOf(/** @type {HTMLElement} */ (event.target));
  }

  /**
   * The weight of each word of the other side for a word, 0 to 1.
   * @param {"source" | "target"} side
   * @param {number} word
   * @returns {number[]}
   */
  linkStrengths(side, word) {
    const { soft, hard } = this.links;
    const other = this.buttons[side === "source" ? "target" : "source"];
    return other.map((_, i) => {
      const [source, target] = side === "source" ? [word, i] : [i, word];
      if (soft?.length) {
        const row = soft[target];
        return row?.weights[source - row.first] ?? 0;
      }
      return hard.some(([s, t]) => s === source && t === target) ? 1 : 0;
    });
  }

  /** @param {"source" | "target"} side @param {number} word */
  highlight(side, word) {
    if (word < 0 && this.pinned >= 0) {
      this.highlight("target", this.pinned);
      return;
    }
    const other = side === "source" ? "target" : "source";
    this.buttons[side].forEach((button, i) => button.classList.toggle("heed-hovered", i === word));
    const strengths = word < 0 ? [] : this.linkStrengths(side, word);
    this.buttons[other].forEach((button, i) => {
      const strength = strengths[i] ?? 0;
      const shown = strength >= 0.04;
      button.classList.toggle("heed-linked", shown);
      button.classList.toggle("heed-aligned", shown && this.linked(side, word, i));
      button.style.setProperty("--strength", shown ? strength.toFixed(3) : "0");
      if (strength >= 0.1) button.dataset.strength = strength.toFixed(2);
      else delete button.dataset.strength;
    });
    const pointed = this.buttons[side][word];
    if (pointed) pointed.setAttribute("aria-label", this.described(side, word));
  }

  /**
   * Keep a target word highlighted while something else has the focus; -1 ends this.
   * @param {number} word
   */
  pin(word) {
    this.pinned = word;
    this.highlight("target", word);
  }

  /** @param {"source" | "target"} side @param {number} word @param {number} other */
  linked(side, word, other) {
    const [source, target] = side === "source" ? [word, other] : [other, word];
    return this.links.hard.some(([s, t]) => s === source && t === target);
  }

  /** @param {"source" | "target"} side @param {number} word */
  described(side, word) {
    const other = this.buttons[side === "source" ? "target" : "source"];
    const aligned = other
      .map((button, i) => ({ text: button.textContent ?? "", i }))
      .filter(({ i }) => this.linked(side, word, i))
      .map(({ text }) => text);
    const own = this.buttons[side][word].textContent ?? "";
    return aligned.length ? `${own}, linked with ${aligned.join(", ")}` : own;
  }
}
