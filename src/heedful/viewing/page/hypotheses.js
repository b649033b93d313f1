// Hypotheses of a translation: how sure the model is of each, where they differ, and copying one.

import { differences, sureness } from "./confidence.js";
import { element } from "./elements.js";
import { splitWords } from "./linked_texts.js";
import { formatSigned } from "./matrices.js";

/** @typedef {import("./types.js").Hypothesis} Hypothesis */
/** @typedef {import("./types.js").Translated} Translated */

/**
 * An item of a list of translations, which shows the translation when it is selected.
 * @param {Hypothesis} one
 * @param {boolean} isShown
 * @param {string} note
 * @param {(button: HTMLButtonElement) => void} selected
 * @param {{lang?: string | null, best?: string}} how the language, and the translation whose differences are marked
 */
export function hypothesisItem(one, isShown, note, selected, { lang, best }) {
  /** @type {HTMLButtonElement} */
  const button = element(
    "button", { type: "button", class: "heed-hypothesis", "aria-pressed": String(isShown), onclick: () => selected(button) },
    element("span", { dir: "auto", lang }, ...(best === undefined ? [one.text] : markedWords(one.text, best))), element("small", {}, note),
  );
  return element("li", {}, button);
}

/**
 * Sure or unsure first; the numbers on request.
 * @param {Hypothesis} one
 * @param {string} place
 * @returns {(Node | string)[]}
 */
export function describeScore(one, place) {
  if (one.score === undefined || one.log_probability === undefined) return ["From the translation memory"];
  const numbers = `score ${formatSigned(one.score, 2)}, log-probability ${formatSigned(one.log_probability, 2)}`;
  return [
    element("span", { class: "heed-sureness" }, `${sureness(one)}${place && ` (translation${place})`} `),
    element("details", { class: "heed-numbers" }, element("summary", {}, "Numbers"), numbers),
  ];
}

/**
 * A text whose words that another one does not have are marked.
 * @param {string} text
 * @param {string} other
 */
export function markedWords(text, other) {
  const differs = differences(text, other);
  return splitWords(text).flatMap(({ word, before }, i) => [before, differs[i] ? element("mark", { class: "heed-differs" }, word) : word]);
}

/**
 * The number of findings and whether there is a match in the memory, for screen readers.
 * @param {Translated} result
 */
export function formatFindings({ rows, findings, match }) {
  /** @type {{findings?: unknown[]}[]} */
  const all = rows ?? [{ findings }];
  const count = all.reduce((sum, one) => sum + (one.findings?.length ?? 0), 0);
  const found = count ? `; the checks found ${count} ${count > 1 ? "problems" : "problem"}` : "";
  return `${found}${match ? "; there is an exact match in the translation memory" : ""}`;
}

/**
 * Copy a text; false if the browser does not allow it. Without https, only the older way works.
 * @param {string} text
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = element("textarea", { class: "heed-visually-hidden" });
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}
