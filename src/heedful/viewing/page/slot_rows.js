// Memory slots as rows, with one column per step.

import { element } from "./elements.js";
import { around, largest, rowOf, written } from "./matrices.js";
import { peakOf, strengthOf } from "./painting.js";

/** @typedef {import("./types.js").Places} Places */

const MOST_STEPS = 6;
const MOST_SLOTS = 60;

/**
 * @param {import("./types.js").Page} _page
 * @param {import("./types.js").AxisFacts} _axis
 * @param {string[]} labels
 * @returns {Places}
 */
export function slotRows(_page, _axis, labels) {
  const body = element("div", { class: "heed-places heed-slots" });
  return {
    body,
    drawing: () => null,
    show(matrix, row, rows) {
      const steps = around(row, matrix.rows, MOST_STEPS);
      const strongest = Float32Array.from(labels, (_, slot) => peakOf(steps.map((step) => rowOf(matrix, step)[slot])));
      const slots = largest(strongest, MOST_SLOTS);
      /** @param {number} step */
      const now = (step) => (step === row ? "heed-now" : null);
      const head = steps.map((step) => element("th", { scope: "col", class: now(step), dir: "auto" }, rows[step]));
      const cell = (/** @type {number} */ slot, /** @type {number} */ step) => {
        const weights = rowOf(matrix, step);
        const strength = strengthOf(Math.abs(weights[slot]) / (peakOf(weights) || 1));
        const field = element("td", { class: [now(step), weights[slot] < 0 ? "heed-rises" : ""].join(" ") }, written(weights[slot]));
        field.style.setProperty("--strength", strength.toFixed(3));
        return field;
      };
      const lines = slots.map((slot) => element(
        "tr", {}, element("th", { scope: "row", dir: "auto" }, labels[slot]), ...steps.map((step) => cell(slot, step)),
      ));
      const left = labels.length - slots.length;
      body.replaceChildren(
        element(
          "div", { class: "heed-slots-field", tabindex: 0, role: "region", "aria-label": "Weights over the memory" },
          element("table", {}, element("thead", {}, element("tr", {}, element("td", {}), ...head)), element("tbody", {}, ...lines)),
        ),
        element("p", { class: "heed-hint" }, "Each column in full colour at its largest weight."
          + (left > 0 ? ` The ${slots.length} slots with the largest weights, of ${labels.length.toLocaleString("en")}.` : "")),
      );
    },
  };
}
