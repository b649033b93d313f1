// A bar chart of probabilities, whose labels can be buttons.

import { element, focusedNear, rovingTabindex } from "./elements.js";

/**
 * @typedef {object} Row
 * @property {string} text
 * @property {number} probability
 * @property {string} [title]
 * @property {boolean} [pressed]
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
    const fill = element("i", { class: "heed-bar-current" });
    fill.style.inlineSize = `${Math.min(Math.max(row.probability, 0), 1) * 100}%`;
    const name = choose
      ? element("button", {
        type: "button", class: "heed-bar-button", tabindex: i === stop ? 0 : -1, onclick: () => choose(i), dir: "auto",
        "aria-pressed": row.pressed === undefined ? null : String(row.pressed), title: row.title,
        "aria-label": `${row.text}, ${percent(row.probability)}${action && `: ${action}`}`,
      }, row.text)
      : element("span", { dir: "auto", title: row.title }, row.text);
    return element(
      "li", {}, element("span", { class: "heed-bar-label" }, name),
      element("span", { class: "heed-bar", "aria-hidden": "true" }, fill),
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
