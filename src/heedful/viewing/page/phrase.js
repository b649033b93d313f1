// Alternatives for a phrase: the selected words of a translation, and what else could stand there.

import { splitWords } from "./linked_texts.js";

/** @typedef {import("./sentence_row.js").SentenceRow} SentenceRow */

/**
 * The selected words, if the selection is within the translation of one row and has at least two words.
 * @param {SentenceRow[]} rows
 * @returns {{row: SentenceRow, first: number, last: number} | null}
 */
export function selectedPhrase(rows) {
  const selection = window.getSelection();
  if (!selection || selection.isCollapsed || !selection.rangeCount) return null;
  const range = selection.getRangeAt(0);
  for (const row of rows) {
    if (!row.target.isConnected || !range.intersectsNode(row.target)) continue;
    const chosen = row.linked.words.target.map((span, i) => ({ span, i })).filter(({ span }) => {
      if (!range.intersectsNode(span)) return false;
      // A range that only touches the edge of a word does not select it.
      const text = /** @type {Node} */ (span.firstChild);
      const endsBefore = range.endContainer === text && range.endOffset === 0;
      const startsAfter = range.startContainer === text && range.startOffset === (text.textContent ?? "").length;
      return !endsBefore && !startsAfter;
    });
    if (chosen.length > 1) return { row, first: chosen[0].i, last: chosen[chosen.length - 1].i };
  }
  return null;
}

/**
 * The part of another translation that stands in the place of a phrase: up to the words that follow the phrase in both.
 * @param {string} text the translation
 * @param {string} other begins with the same words up to `first`
 * @param {number} first the first word of the phrase
 * @param {number} last
 */
export function phraseVariant(text, other, first, last) {
  const [own, others] = [splitWords(text), splitWords(other)];
  let same = 0;
  while (
    same < own.length - last - 1 && others.length - same > first + 1
    && own[own.length - 1 - same].word === others[others.length - 1 - same].word
  ) same += 1;
  // Without common words after the phrase, take as many words as it has.
  const rest = same || last === own.length - 1 ? others.length - same - 1 : Math.min(last, others.length - 1);
  const end = others[rest];
  return end ? other.slice(others[first]?.start ?? 0, end.start + end.word.length) : "";
}
