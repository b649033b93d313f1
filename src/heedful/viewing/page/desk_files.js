// Translation of files in the Translate panel: drop or choose a file, and download its translation.

import { download, element, inputField, isAbortError, messageOf } from "./elements.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").ModelFacts} ModelFacts */

const TABLE = /\.(csv|tsv)$/i;

export class DeskFiles {
  /**
   * @param {Page} page
   * @param {HTMLElement} panel files can be dropped on it
   * @param {() => ModelFacts | undefined} model returns the selected model
   */
  constructor(page, panel, model) {
    this.page = page;
    this.model = model;
    /** @type {File | null} */
    this.file = null;
    /** @type {AbortController | null} */
    this.request = null;
    this.chosen = element("input", {
      type: "file", class: "heed-visually-hidden", tabindex: -1, "aria-label": "File to translate", onchange: () => {
        const [file] = this.chosen.files ?? [];
        if (file) this.take(file);
        this.chosen.value = "";
      },
    });
    this.button = element("button", { type: "button", class: "heed-button", onclick: () => this.chosen.click() }, "Translate a file…");
    this.column = inputField("Column", { type: "text", placeholder: "name or number" }, () => undefined);
    this.start = element("button", { type: "button", class: "heed-button", onclick: () => this.translate() }, "Translate");
    this.table = element("div", { class: "heed-tools heed-actions" }, this.column.field, this.start);
    this.status = element("p", { class: "heed-detail", role: "status" });
    this.result = element("p", {});
    this.table.hidden = true;
    this.body = element("div", { class: "heed-files" }, this.chosen, this.table, this.status, this.result);
    this.listen(panel);
  }

  /** @param {HTMLElement} panel */
  listen(panel) {
    /** @param {DragEvent} event */
    const hasFile = (event) => event.dataTransfer?.types.includes("Files") ?? false;
    panel.addEventListener("dragover", (event) => {
      if (!hasFile(event)) return;
      event.preventDefault();
      panel.classList.add("heed-drop");
    });
    panel.addEventListener("dragleave", (event) => {
      if (!panel.contains(/** @type {Node | null} */ (event.relatedTarget))) panel.classList.remove("heed-drop");
    });
    panel.addEventListener("drop", (event) => {
      panel.classList.remove("heed-drop");
      if (!hasFile(event)) return;
      event.preventDefault();
      const [file] = event.dataTransfer?.files ?? [];
      if (file) this.take(file);
    });
  }

  /** @param {File} file */
  take(file) {
    this.request?.abort();
    this.file = file;
    this.result.replaceChildren();
    this.table.hidden = !TABLE.test(file.name);
    if (this.table.hidden) this.translate();
    else {
      this.status.textContent = `${file.name} is a table: which column is to be translated?`;
      this.column.input.focus();
    }
  }

  async translate() {
    const { file } = this;
    const model = this.model();
    if (!file || !model) return;
    this.request?.abort();
    const request = new AbortController();
    this.request = request;
    this.result.replaceChildren();
    this.status.textContent = `Translating ${file.name}…`;
    try {
      const fields = {
        model: model.name, source: model.source ?? "", target: model.target ?? "",
        ...(TABLE.test(file.name) ? { source_column: this.column.input.value.trim() || "1" } : {}),
      };
      const { blob } = await this.page.provider.translateFile(file, fields, request.signal);
      if (request.signal.aborted) return;
      const name = translatedName(file.name, model.target ?? "translated");
      this.status.textContent = `${file.name} is translated.`;
      this.result.replaceChildren(element("button", {
        type: "button", class: "heed-button heed-submit", onclick: () => download(blob, name),
      }, `Download ${name}`));
    } catch (error) {
      if (isAbortError(error) || request.signal.aborted) return;
      this.status.textContent = `${file.name} was not translated: ${messageOf(error)}.`.replace(/\.\.$/, ".");
    }
  }
}

/**
 * @param {string} name
 * @param {string} language
 */
export function translatedName(name, language) {
  const dot = name.lastIndexOf(".");
  return dot > 0 ? `${name.slice(0, dot)}.${language}${name.slice(dot)}` : `${name}.${language}`;
}
