// The slots of a memory as rows, with one column per step.

import { element } from "./elements.js";
import { windowAround, topIndices, rowOf, formatWeight } from "./matrices.js";
import { maxAbsolute, colourStrength } from "./painting.js";

/** @typedef {import("./types.js").AxisView} AxisView */

const MAX_STEPS = 6;
const MAX_SLOTS = 60;

/**
 * @param {import("./types.js").Page} _page
 * @param {import("./types.js").AxisFacts} _axis
 * @param {string[]} labels
 * @returns {AxisView}
 */
export function slotsView(_page, _axis, labels) {
  const body = element("div", { class: "heed-axis-view heed-slots" });
  return {
    body,
    drawing: () => null,
    show(matrix, row, rows) {
      const steps = windowAround(row, matrix.rows, MAX_STEPS);
      const strongest = Float32Array.from(labels, (_, slot) => maxAbsolute(steps.map((step) => rowOf(matrix, step)[slot])));
      const slots = topIndices(strongest, MAX_SLOTS);
      /** @param {number} step */
      const now = (step) => (step === row ? "heed-current" : null);
      const head = steps.map((step) => element("th", { scope: "col", class: now(step), dir: "auto" }, rows[step]));
      const cell = (/** @type {number} */ slot, /** @type {number} */ step) => {
        const weights = rowOf(matrix, step);
        const strength = colourStrength(Math.abs(weights[slot]) / (maxAbsolute(weights) || 1));
        const field = element("td", { class: [now(step), weights[slot] < 0 ? "heed-negative" : ""].join(" ") }, formatWeight(weights[slot]));
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
        element("p", { class: "heed-hint" }, "The largest weight of each column has the full colour."
          + (left > 0 ? ` Shows the ${slots.length} of ${labels.length.toLocaleString("en")} slots with the largest weights, in their order.` : "")),
      );
    },
  };
}
