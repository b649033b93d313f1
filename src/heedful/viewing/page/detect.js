// The Detect panel: the tokens of a text with the probability that each was replaced.

import { percent } from "./bars.js";
import { wordPanel } from "./word_panel.js";

/** @typedef {{tokens: string[], probabilities: number[]}} Detected */

const HALF = 0.5;

/** @type {import("./word_panel.js").WordPanelOptions} */
const OPTIONS = {
  name: "detect", title: "Detect", placeholder: "Type a text with a wrong word…", heading: "Tokens", unit: "decisions",
  hint: "Tokens whose probability is above 50 % look replaced, and are marked.",
  idle: "The bar below a token is the probability that it was replaced. Point at a token, or move to it with Tab and the arrow keys.",
  bars: (result) => {
    const { tokens, probabilities } = /** @type {Detected} */ (/** @type {unknown} */ (result));
    return tokens.map((word, i) => {
      const share = probabilities[i];
      return { word, label: percent(share), share, said: `replaced with probability ${percent(share)}`, marked: share > HALF };
    });
  },
  announced: (bars) => {
    const marked = bars.filter((bar) => bar.marked).map(({ word }) => word);
    return marked.length ? `look replaced: ${marked.join(", ")}` : "no token looks replaced";
  },
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
