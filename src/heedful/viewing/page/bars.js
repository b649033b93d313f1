// A bar chart of probabilities, whose labels can be buttons.

import { element, focusedNear, rovingTabindex } from "./elements.js";

/**
 * @typedef {object} Row
 * @property {string} text
 * @property {number} probability
 * @property {string} [title]
 * @property {boolean} [pressed]
 * @property {number} [threshold] the least probability with which the row is given; it is marked in the bar
 */

/**
 * Replace the rows of a bar chart.
 * @param {HTMLOListElement} list
 * @param {Row[]} rows
 * @param {((row: number) => void) | null} choose
 * @param {string} [action] what selecting a row does, for screen readers
 */
export function fillBars(list, rows, choose, action = "") {
  const focused = [...list.querySelectorAll("button")].indexOf(/** @type {any} */ (focusedNear(list)));
  const stop = Math.max(0, rows.findIndex(({ pressed }) => pressed));
  list.replaceChildren(...rows.map((row, i) => {
    const { threshold } = row;
    const given = threshold === undefined || row.probability >= threshold;
    const fill = element("i", { class: given ? "heed-bar-current" : "heed-bar-below" });
    fill.style.inlineSize = `${Math.min(Math.max(row.probability, 0), 1) * 100}%`;
    const name = choose
      ? element("button", {
        type: "button", class: "heed-bar-button", tabindex: i === stop ? 0 : -1, onclick: () => choose(i), dir: "auto",
        "aria-pressed": row.pressed === undefined ? null : String(row.pressed), title: row.title,
        "aria-label": `${row.text}, ${percent(row.probability)}${threshold === undefined ? "" : `, ${given ? "given" : "not given"}, threshold ${percent(threshold)}`}${action && `: ${action}`}`,
      }, row.text)
      : element("span", { dir: "auto", title: row.title }, row.text);
    const mark = threshold === undefined ? [] : [element("b", { class: "heed-bar-threshold", title: `Threshold: ${percent(threshold)}` })];
    for (const one of mark) one.style.insetInlineStart = `${/** @type {number} */ (threshold) * 100}%`;
    return element(
      "li", {}, element("span", { class: "heed-bar-label" }, name),
      element("span", { class: "heed-bar", "aria-hidden": "true" }, fill, ...mark),
      element("span", { class: "heed-number" }, percent(row.probability)),
    );
  }));
  if (focused >= 0) [...list.querySelectorAll("button")][focused]?.focus();
}

/**
 * @param {string} label
 * @returns {HTMLOListElement}
 */
export function barList(label) {
  const list = element("ol", { class: "heed-bars", "aria-label": label });
  rovingTabindex(list, "button", () => 1);
  return list;
}

/** @param {number} probability */
export function percent(probability) {
  const share = probability * 100;
  if (share > 0 && share < 0.1) return share < 0.001 ? "< 0.001 %" : `${Number(share.toPrecision(2))} %`;
  // Do not round a probability below 1 to 100 %.
  const places = share < 10 || (share > 99 && share < 100) ? 1 : 0;
  return `${Math.min(share, share < 100 ? 99.9 : 100).toFixed(places)} %`;
}
