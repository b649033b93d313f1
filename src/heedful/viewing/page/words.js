// The Words panel: the words of a text with their probabilities, given the words before them and those after them.

import { percent } from "./bars.js";
import { wordPanel } from "./word_panel.js";

/** @typedef {{words: string[], known: boolean[], forward: number[], backward: number[]}} WordScores log-probabilities in nats */

/** @type {import("./word_panel.js").WordPanelOptions} */
const OPTIONS = {
  name: "words", title: "Words", placeholder: "Type a text…", heading: "Words and their probabilities", unit: "decisions",
  hint: "Below a word is its probability given the words before it, then given the words after it. The bar is the mean of both.",
  idle: "Point at a word, or move to it with Tab and the arrow keys. Words that the model does not know are marked.",
  bars: (result) => {
    const { words, known, forward, backward } = /** @type {WordScores} */ (/** @type {unknown} */ (result));
    return words.map((word, i) => {
      const [before, after] = [Math.exp(forward[i]), Math.exp(backward[i])];
      return {
        word, label: `${percent(before)} · ${percent(after)}`, share: (before + after) / 2, marked: !known[i],
        said: `${percent(before)} given the words before it, ${percent(after)} given those after it${known[i] ? "" : "; any unknown word"}`,
      };
    });
  },
  announced: (bars) => bars.map(({ word, label }) => `${word} ${label}`).join(", "),
};

/**
 * @param {import("./types.js").Page} page
 * @param {import("./types.js").ReaderFacts[]} readers
 * @param {import("./types.js").Start} start
 * @returns {import("./types.js").Panel}
 */
export function panel(page, readers, start) {
  return wordPanel(page, readers, start, OPTIONS);
}
