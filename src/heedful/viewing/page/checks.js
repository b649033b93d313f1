// The findings of the checks for a translation, and the words that they are about.

import { element } from "./elements.js";
import { splitWords } from "./linked_texts.js";

/** @typedef {import("./types.js").Finding} Finding */

/** A list of findings; hidden if the translation has not been checked. */
export class Checks {
  constructor() {
    this.list = element("ul", { class: "heed-findings", "aria-label": "Findings of the checks" });
    this.none = element("p", { class: "heed-detail" }, "The checks found nothing.");
    this.section = element("section", { class: "heed-checks" }, element("h2", {}, "Checks"), this.none, this.list);
    this.section.hidden = true;
  }

  /**
   * List findings.
   * @param {Finding[] | undefined} findings undefined if the translation has not been checked
   * @param {string} source
   * @param {string} target
   */
  show(findings, source, target) {
    this.section.hidden = !findings || !target;
    this.none.hidden = !!findings?.length;
    this.list.replaceChildren(...(findings ?? []).map((one) => item(one, source, target)));
  }
}

/**
 * @param {Finding} one
 * @param {string} source
 * @param {string} target
 */
function item(one, source, target) {
  const hasParts = one.source.length + one.target.length > 0;
  const detail = one.detail === one.message || hasParts ? "" : `: ${one.detail}`;
  const message = one.serious ? one.message : one.message[0].toUpperCase() + one.message.slice(1);
  return element(
    "li", { class: one.serious ? "heed-serious" : null },
    element("p", {}, one.serious ? element("strong", {}, "Serious: ") : null, `${message}${detail}.`),
    element("p", { class: "heed-parts" }, parts("in the source", source, one.source), parts("in the translation", target, one.target)),
  );
}

/**
 * @param {string} where
 * @param {string} text
 * @param {[number, number][]} ranges
 */
function parts(where, text, ranges) {
  if (!ranges.length) return null;
  const characters = [...text];
  const shown = new Set(ranges.map(([start, end]) => characters.slice(start, end).join("")));
  return element(
    "span", {}, where,
    ...[...shown].flatMap((part) => [" ", element("code", { dir: "auto" }, part)]),
  );
}

/**
 * The indices of the words that ranges of characters are in.
 * @param {string} text
 * @param {[number, number][]} ranges
 */
export function wordsOf(text, ranges) {
  const offsets = [0];
  for (const character of text) offsets.push(offsets[offsets.length - 1] + character.length);
  const found = ranges.map(([start, end]) => [offsets[start], offsets[end]]);
  return splitWords(text).flatMap(({ word, start }, i) => (
    found.some(([first, last]) => first < start + word.length && last > start) ? [i] : []
  ));
}
