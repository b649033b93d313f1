// A source text and its translation as words; pointing at a word highlights the linked words on the other side.

import { element, rovingTabindex } from "./elements.js";

/** @typedef {"source" | "target"} TextSide */

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

const ENDS = ["pointerup", "pointercancel", "dragend"];

/**
 * @typedef {object} Links
 * @property {import("./types.js").SoftRow[] | null} soft one row per target word
 * @property {[number, number][]} hard pairs of source and target word
 */

/** Two texts with highlighted links. Words are spans, so that the texts can be selected and copied. */
export class LinkedTexts {
  /** @param {{source: HTMLElement, target: HTMLElement, opened: (word: number, span: HTMLElement) => void}} places */
  constructor(places) {
    this.places = places;
    /** @type {Links} */
    this.links = { soft: null, hard: [] };
    /** @type {{side: TextSide, word: number}} the word that stays highlighted; −1 for none */
    this.pinned = { side: "target", word: -1 };
    /** @type {Record<TextSide, HTMLElement[]>} */
    this.words = { source: [], target: [] };
    for (const side of /** @type {const} */ (["source", "target"])) {
      const place = places[side];
      rovingTabindex(place, ".heed-word", () => 1);
      place.addEventListener("pointerover", (event) => this.highlight(side, this.wordOf(side, event)));
      place.addEventListener("pointerleave", () => this.highlight(side, -1));
      place.addEventListener("focusin", (event) => this.highlight(side, this.wordOf(side, event)));
      place.addEventListener("focusout", () => this.highlight(side, -1));
      place.addEventListener("pointerdown", () => this.letSelect(side));
      place.addEventListener("click", (event) => this.clicked(side, event));
      place.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        this.open(side, this.wordOf(side, event));
      });
    }
  }

  /**
   * While a pointer is down, words cannot have the focus: a browser does not begin to select text in them otherwise.
   * @param {TextSide} side
   */
  letSelect(side) {
    const words = this.words[side];
    const stop = Math.max(0, words.findIndex((word) => word.tabIndex === 0));
    for (const word of words) word.removeAttribute("tabindex");
    const restore = () => {
      for (const name of ENDS) window.removeEventListener(name, restore);
      words.forEach((word, i) => (word.tabIndex = i === stop ? 0 : -1));
    };
    for (const name of ENDS) window.addEventListener(name, restore);
  }

  /**
   * A click that selects text is not meant for the word; the second click of a double click selects.
   * @param {TextSide} side @param {MouseEvent} event
   */
  clicked(side, event) {
    const selection = window.getSelection();
    if (event.detail > 1 || (selection && !selection.isCollapsed)) return;
    this.open(side, this.wordOf(side, event));
  }

  /** @param {TextSide} side @param {number} word */
  open(side, word) {
    if (word < 0) return;
    if (side === "target") this.places.opened(word, this.words.target[word]);
    else this.pin(this.pinned.side === "source" && this.pinned.word === word ? -1 : word, "source");
  }

  /**
   * @param {string} source
   * @param {string} target
   * @param {Links} links
   * @param {number} forced number of characters of the forced target prefix
   */
  show(source, target, links, forced) {
    this.links = links;
    this.pinned = { side: "target", word: -1 };
    this.words.source = this.fill("source", source, 0);
    this.words.target = this.fill("target", target, forced);
  }

  /** @param {TextSide} side @param {string} text @param {number} forced */
  fill(side, text, forced) {
    const words = splitWords(text);
    const spans = words.map(({ word, start }, i) => {
      const isForced = side === "target" && start < forced;
      return element("span", {
        role: "button", class: isForced ? "heed-word heed-forced" : "heed-word", tabindex: i ? -1 : 0,
        "aria-haspopup": side === "target" ? "menu" : null,
      }, word);
    });
    const last = words[words.length - 1];
    const after = last ? text.slice(last.start + last.word.length) : "";
    this.places[side].replaceChildren(...spans.flatMap((span, i) => [words[i].before, span]), after);
    return spans;
  }

  /**
   * Give words a class, such as those that something was found in.
   * @param {TextSide} side
   * @param {number[]} words
   * @param {string} [name]
   */
  flag(side, words, name = "heed-flagged") {
    this.words[side].forEach((span, i) => span.classList.toggle(name, words.includes(i)));
  }

  /** @param {TextSide} side @param {Event} event */
  wordOf(side, event) {
    return this.words[side].indexOf(/** @type {HTMLElement} */ (event.target));
  }

  /**
   * The weight of each word of the other side for a word, 0 to 1.
   * @param {TextSide} side
   * @param {number} word
   * @returns {number[]}
   */
  linkStrengths(side, word) {
    const { soft, hard } = this.links;
    const other = this.words[side === "source" ? "target" : "source"];
    return other.map((_, i) => {
      const [source, target] = side === "source" ? [word, i] : [i, word];
      if (soft?.length) {
        const row = soft[target];
        return row?.weights[source - row.first] ?? 0;
      }
      return hard.some(([s, t]) => s === source && t === target) ? 1 : 0;
    });
  }

  /** @param {TextSide} side @param {number} word */
  highlight(side, word) {
    if (word < 0 && this.pinned.word >= 0) {
      this.mark(this.pinned.side, this.pinned.word);
      return;
    }
    this.mark(side, word);
  }

  /** @param {TextSide} side @param {number} word */
  mark(side, word) {
    const other = side === "source" ? "target" : "source";
    this.words[side].forEach((span, i) => {
      span.classList.toggle("heed-hovered", i === word);
      unlink(span);
    });
    const strengths = word < 0 ? [] : this.linkStrengths(side, word);
    this.words[other].forEach((span, i) => {
      const strength = strengths[i] ?? 0;
      const shown = strength >= 0.04;
      span.classList.remove("heed-hovered");
      span.classList.toggle("heed-linked", shown);
      span.classList.toggle("heed-aligned", shown && this.linked(side, word, i));
      span.style.setProperty("--strength", shown ? strength.toFixed(3) : "0");
      if (strength >= 0.1) span.dataset.strength = strength.toFixed(2);
      else delete span.dataset.strength;
    });
    const pointed = this.words[side][word];
    if (pointed) pointed.setAttribute("aria-label", this.described(side, word));
  }

  /**
   * Keep a word highlighted while something else has the focus; -1 ends this.
   * @param {number} word
   * @param {TextSide} [side]
   */
  pin(word, side = "target") {
    this.pinned = { side, word };
    this.mark(side, word);
  }

  /** @param {TextSide} side @param {number} word @param {number} other */
  linked(side, word, other) {
    const [source, target] = side === "source" ? [word, other] : [other, word];
    return this.links.hard.some(([s, t]) => s === source && t === target);
  }

  /** @param {TextSide} side @param {number} word */
  described(side, word) {
    const other = this.words[side === "source" ? "target" : "source"];
    const linked = other
      .map((span, i) => ({ text: span.textContent ?? "", i }))
      .filter(({ i }) => this.linked(side, word, i))
      .map(({ text }) => text);
    const span = this.words[side][word];
    const own = [span.textContent ?? "", ...(span.title ? [span.title] : [])].join(", ");
    return linked.length ? `${own}, linked with ${linked.join(", ")}` : own;
  }
}

/** @param {HTMLElement} span */
function unlink(span) {
  span.classList.remove("heed-linked", "heed-aligned");
  span.style.setProperty("--strength", "0");
  delete span.dataset.strength;
}
