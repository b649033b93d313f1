// Buttons that save the words of a recording as subtitles, which the server makes.

import { download, element, messageOf } from "./elements.js";

/** @typedef {import("./types.js").Page} Page */

/**
 * @param {Page} page
 * @param {string} model
 * @param {string[]} forms the formats that the model offers
 * @param {Record<string, unknown>} result of the model, with words
 * @returns {HTMLElement}
 */
export function subtitleButtons(page, model, forms, result) {
  const problem = element("span", { class: "heed-notice", role: "alert" });
  /** @param {string} form */
  const save = async (form) => {
    problem.textContent = "";
    try {
      const { subtitles } = await page.provider.subtitles({ model, result: { words: result.words }, form });
      download(new Blob([subtitles], { type: form === "vtt" ? "text/vtt" : "application/x-subrip" }), `subtitles.${form}`);
      page.announce(`subtitles.${form} is saved`);
    } catch (error) {
      problem.textContent = messageOf(error);
    }
  };
  return element(
    "div", { class: "heed-export", role: "group", "aria-label": "Save subtitles" },
    element("span", { class: "heed-label" }, "Save subtitles"),
    ...forms.map((form) => element("button", {
      type: "button", class: "heed-button", "aria-label": `Save subtitles as ${form.toUpperCase()}`, onclick: () => save(form),
    }, form.toUpperCase())), problem,
  );
}
