// The elements of the Translate panel around its texts.

import { Checks } from "./checks.js";
import { element } from "./elements.js";

/**
 * The translation and what belongs to it.
 * @param {{copy: () => void, save: () => void, reset: () => void, phrase: () => void}} callbacks
 */
export function makeOutput({ copy, save, reset, phrase }) {
  const heading = element("h2", {}, "Translation");
  const place = element("div", { class: "heed-translation" });
  const warningPlace = element("div");
  const status = element("p", { class: "heed-detail heed-waiting", role: "status" });
  const score = element("div", { class: "heed-detail heed-score" });
  const copyButton = element("button", { type: "button", class: "heed-button", onclick: copy }, "Copy");
  const saveButton = element("button", { type: "button", class: "heed-button", onclick: save }, "Save HTML");
  const resetButton = element("button", { type: "button", class: "heed-button", onclick: reset }, "Remove the chosen words");
  const phraseButton = element("button", { type: "button", class: "heed-button", onclick: phrase }, "Alternatives for the selected words");
  phraseButton.hidden = true;
  const memory = element("ol", { class: "heed-best", "aria-label": "Translations in the memory" });
  const memorySection = element("section", { class: "heed-memory" }, element("h2", {}, "Translation memory"), memory);
  const body = element(
    "section", { class: "heed-output", "aria-label": "Translation" }, heading, place, warningPlace, status,
    element("div", { class: "heed-tools heed-actions" }, copyButton, saveButton, score, phraseButton, resetButton), memorySection,
  );
  return { body, heading, place, warningPlace, status, score, copyButton, saveButton, phraseButton, resetButton, memory, memorySection };
}

/** The details of the chosen sentence, and the list of sentences. */
export function makeDetails() {
  const checks = new Checks();
  const sourcePlace = element("div");
  const legend = element("p", { class: "heed-hint heed-marks" });
  const sourceSection = element(
    "section", { class: "heed-source-words", "aria-label": "Linked words" }, element("h2", {}, "Linked words"), sourcePlace,
  );
  const hints = element(
    "div", { class: "heed-hints" }, legend,
    element("p", { class: "heed-hint" }, "Point at a word, or move to it with Tab and the arrow keys, to see the linked words. Select a word of the translation to see alternatives."),
  );
  const rowList = element("ol", { class: "heed-rows", "aria-label": "Sentences" });
  const best = element("ol", { class: "heed-best", "aria-label": "Best translations" });
  const bestHeading = element("h2", {}, "Best translations");
  const bestSection = element("section", { class: "heed-others" }, bestHeading, best);
  const body = element("div", { class: "heed-columns" }, element("div", {}, sourceSection, hints, checks.section), bestSection);
  return { body, checks, sourcePlace, legend, sourceSection, hints, rowList, best, bestHeading, bestSection };
}
