// The weights of one query over a list of labels: each label shaded by its weight, with the number below it.

import { element } from "./elements.js";
import { topIndices, rowOf, formatWeight } from "./matrices.js";
import { colourStrength } from "./painting.js";

/** @typedef {import("./types.js").AxisView} AxisView */

const MOST = 400;

/**
 * @param {string[]} labels
 * @param {string | undefined} lang the language of the labels
 * @returns {AxisView}
 */
export function tokenWeights(labels, lang) {
  const list = element("ol", { class: "heed-weights", "aria-label": "Weights of the keys", lang });
  const note = element("p", { class: "heed-hint" });
  return {
    body: element("div", {}, list, note),
    drawing: () => null,
    show(matrix, row) {
      const weights = rowOf(matrix, row);
      const places = weights.length > MOST ? topIndices(weights, MOST) : Array.from(weights.keys());
      list.replaceChildren(...places.map((place) => {
        const weight = weights[place];
        const item = element(
          "li", { class: weight < 0 ? "heed-negative" : "" }, element("span", { dir: "auto" }, labels[place]),
          element("span", { class: "heed-number" }, formatWeight(weight)),
        );
        item.style.setProperty("--strength", matrix.peak ? colourStrength(Math.abs(weight) / matrix.peak).toFixed(3) : "0");
        return item;
      }));
      const left = weights.length - places.length;
      note.textContent = left > 0 ? `Shows the ${places.length} largest of ${weights.length.toLocaleString("en")} weights; ${left.toLocaleString("en")} are left out.` : "";
    },
  };
}
