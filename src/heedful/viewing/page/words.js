// A text as interactive words, linked with words of the other side.

import { element, roving } from "./elements.js";

/**
 * Splits a text into words and white space.
 * @param {string} text
 * @returns {{word: string, start: number, before: string}[]}
 */
export function wordsIn(text) {
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
 * @property {import("./types.js").SoftRow[] | null} soft one a target word
 * @property {[number, number][]} hard pairs of source word and target word
 */

/** Two texts whose linked words are highlighted together. */
export class LinkedTexts {
  /** @param {{source: HTMLElement, target: HTMLElement, opened: (word: number, button: HTMLElement) => void}} places */
  constructor(places) {
    this.places = places;
    /** @type {Links} */
    this.links = { soft: null, hard: [] };
    this.held = -1;
    /** @type {Record<"source" | "target", HTMLElement[]>} */
    this.buttons = { source: [], target: [] };
    for (const side of /** @type {const} */ (["source", "target"])) {
      const place = places[side];
      roving(place, ".heed-word", () => 1);
      place.addEventListener("pointerover", (event) => this.light(side, this.wordOf(side, event)));
      place.addEventListener("pointerleave", () => this.light(side, -1));
      place.addEventListener("focusin", (event) => this.light(side, this.wordOf(side, event)));
      place.addEventListener("focusout", () => this.light(side, -1));
    }
  }

  /**
   * @param {string} source
   * @param {string} target
   * @param {Links} links
   * @param {number} forced number of forced characters of the target
   */
  show(source, target, links, forced) {
    this.links = links;
    this.buttons.source = this.fill("source", source, 0);
    this.buttons.target = this.fill("target", target, forced);
  }

  /** @param {"source" | "target"} side @param {string} text @param {number} forced */
  fill(side, text, forced) {
    const words = wordsIn(text);
    const buttons = words.map(({ word, start }, i) => {
      const given = side === "target" && start < forced;
      return element("button", {
        type: "button", class: given ? "heed-word heed-given" : "heed-word", tabindex: i ? -1 : 0,
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

  /** @param {"source" | "target"} side @param {Event} event */
  wordOf(side, event) {
    return this.buttons[side].indexOf(/** @type {HTMLElement} */ (event.target));
  }

  /**
   * The weights of links of a word, 0 to 1.
   * @param {"source" | "target"} side
   * @param {number} word
   * @returns {number[]}
   */
  partners(side, word) {
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
  light(side, word) {
    if (word < 0 && this.held >= 0) {
      this.light("target", this.held);
      return;
    }
    const other = side === "source" ? "target" : "source";
    this.buttons[side].forEach((button, i) => button.classList.toggle("heed-pointed", i === word));
    const strengths = word < 0 ? [] : this.partners(side, word);
    this.buttons[other].forEach((button, i) => {
      const strength = strengths[i] ?? 0;
      const shown = strength >= 0.04;
      button.classList.toggle("heed-partner", shown);
      button.classList.toggle("heed-strong", shown && this.linked(side, word, i));
      button.style.setProperty("--strength", shown ? strength.toFixed(3) : "0");
      if (strength >= 0.1) button.dataset.strength = strength.toFixed(2);
      else delete button.dataset.strength;
    });
    const pointed = this.buttons[side][word];
    if (pointed) pointed.setAttribute("aria-label", this.described(side, word));
  }

  /**
   * Keeps a target word highlighted while another element has the focus; -1 releases it.
   * @param {number} word
   */
  hold(word) {
    this.held = word;
    this.light("target", word);
  }

  /** @param {"source" | "target"} side @param {number} word @param {number} other */
  linked(side, word, other) {
    const [source, target] = side === "source" ? [word, other] : [other, word];
    return this.links.hard.some(([s, t]) => s === source && t === target);
  }

  /** @param {"source" | "target"} side @param {number} word */
  described(side, word) {
    const other = this.buttons[side === "source" ? "target" : "source"];
    const partners = other
      .map((button, i) => ({ text: button.textContent ?? "", i }))
      .filter(({ i }) => this.linked(side, word, i))
      .map(({ text }) => text);
    const own = this.buttons[side][word].textContent ?? "";
    return partners.length ? `${own}, linked with ${partners.join(", ")}` : own;
  }
}
