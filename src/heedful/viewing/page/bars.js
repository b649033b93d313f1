// A list of probabilities as bars, which can be selectable.

import { element, roving } from "./elements.js";

/**
 * @typedef {object} Row
 * @property {string} text
 * @property {number} probability
 * @property {string} [title]
 * @property {boolean} [pressed]
 */

/**
 * Fills a list.
 * @param {HTMLOListElement} list
 * @param {Row[]} rows
 * @param {((row: number) => void) | null} choose
 * @param {string} [does] what a selection does, for screen readers
 */
export function fillBars(list, rows, choose, does = "") {
  const focused = [...list.querySelectorAll("button")].indexOf(/** @type {any} */ (document.activeElement));
  const stop = Math.max(0, rows.findIndex(({ pressed }) => pressed));
  list.replaceChildren(...rows.map((row, i) => {
    const fill = element("i", { class: "heed-bar-now" });
    fill.style.inlineSize = `${Math.min(Math.max(row.probability, 0), 1) * 100}%`;
    const name = choose
      ? element("button", {
        type: "button", class: "heed-bar-choice", tabindex: i === stop ? 0 : -1, onclick: () => choose(i), dir: "auto",
        "aria-pressed": row.pressed === undefined ? null : String(row.pressed), title: row.title,
        "aria-label": `${row.text}, ${percent(row.probability)}${does && `: ${does}`}`,
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
  roving(list, "button", () => 1);
  return list;
}

/** @param {number} probability */
export function percent(probability) {
  const share = probability * 100;
  if (share > 0 && share < 0.1) return share < 0.001 ? "< 0.001 %" : `${Number(share.toPrecision(2))} %`;
  // Probabilities below 1 are never rounded to 100 %.
  const places = share < 10 || (share > 99 && share < 100) ? 1 : 0;
  return `${Math.min(share, share < 100 ? 99.9 : 100).toFixed(places)} %`;
}
