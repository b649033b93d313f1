// The source side of the Translate panel: languages, text field, counter, and examples.

import { element, selectField } from "./elements.js";
import { architectureName } from "./glossary.js";
import { splitWords } from "./linked_texts.js";

/** @typedef {import("./types.js").ModelFacts} ModelFacts */

/**
 * The name of a language in English; the code itself if the browser knows no name.
 * @param {string | null | undefined} code
 */
export function languageName(code) {
  if (!code) return "";
  try {
    return /** @type {any} */ (Intl).DisplayNames ? new /** @type {any} */ (Intl).DisplayNames(["en"], { type: "language" }).of(code) ?? code : code;
  } catch {
    return code;
  }
}

/**
 * The names of the models to choose from: their languages, and the run's name where several share them.
 * @param {ModelFacts[]} models
 */
export function modelNames(models) {
  const pairs = models.map(({ name, source, target }) => (source && target ? `${languageName(source)} → ${languageName(target)}` : name));
  return models.map(({ name }, i) => ({
    value: name, text: pairs[i] === name || pairs.filter((one) => one === pairs[i]).length < 2 ? pairs[i] : `${pairs[i]} · ${name}`,
  }));
}

export class DeskInput {
  /**
   * @param {ModelFacts[]} models
   * @param {string} model
   * @param {{typed: () => void, submitted: () => void, modelChosen: (name: string) => void, swapped: (name: string) => void}} callbacks
   */
  constructor(models, model, callbacks) {
    this.models = models;
    this.callbacks = callbacks;
    this.chooser = selectField("Languages", modelNames(models), model, (name) => callbacks.modelChosen(name));
    this.swapButton = element("button", {
      type: "button", class: "heed-button", "aria-label": "Swap the languages", title: "Swap the languages",
      onclick: () => this.reverse && callbacks.swapped(this.reverse.name),
    }, "⇄");
    this.facts = element("p", { class: "heed-detail" });
    this.heading = element("h2", {}, "Source");
    this.field = element("textarea", {
      dir: "auto", rows: 3, spellcheck: "false", "aria-label": "Text to translate", placeholder: "Type or paste a text, or drop a file…",
      oninput: () => {
        this.changed();
        callbacks.typed();
      },
    });
    this.counter = element("span", { class: "heed-detail" });
    this.clearButton = element("button", { type: "button", class: "heed-button", onclick: () => this.clear() }, "Clear");
    this.examples = element("div", { class: "heed-examples", role: "group", "aria-label": "Examples" });
    this.tools = element("div", { class: "heed-tools heed-languages" }, this.chooser.field, this.swapButton, this.facts);
    this.actions = element("div", { class: "heed-tools heed-actions" }, this.counter, this.clearButton);
    this.body = element("section", { class: "heed-input" }, this.heading, this.field, this.actions, this.examples);
    this.setModel(model);
  }

  /** The facts about the selected model, from the server. */
  get modelFacts() {
    return this.models.find(({ name }) => name === this.chooser.input.value);
  }

  /** The model for the opposite direction. */
  get reverse() {
    const own = this.modelFacts;
    return this.models.find(({ source, target }) => own?.source && own.target && source === own.target && target === own.source);
  }

  /** @param {string} name */
  setModel(name) {
    this.chooser.input.value = name;
    const facts = this.modelFacts;
    this.swapButton.hidden = !this.reverse;
    this.facts.textContent = facts
      ? `${architectureName(facts.architecture)}, ${(facts.parameters / 1e6).toFixed(1)} M parameters${facts.aligns === false ? ", without word alignment" : ""}`
      : "";
    this.heading.textContent = languageName(facts?.source) || "Source";
    this.field.lang = facts?.source ?? "";
    this.examples.replaceChildren(element("span", { class: "heed-detail" }, "Try:"), ...(facts?.examples ?? []).map((text) => element(
      "button", { type: "button", class: "heed-example", lang: facts?.source, dir: "auto", onclick: () => this.setText(text) }, text,
    )));
    this.changed();
  }

  /** The text has changed: update the counter and the height. */
  changed() {
    const { value } = this.field;
    const words = splitWords(value).length;
    this.counter.textContent = value ? `${words.toLocaleString("en")} ${words === 1 ? "word" : "words"}, ${[...value].length.toLocaleString("en")} characters` : "";
    this.clearButton.hidden = this.counter.hidden = !value;
    this.examples.hidden = value.trim() !== "" || this.examples.childElementCount < 2;
    this.grow();
  }

  /** The field is as high as its text. */
  grow() {
    const { field } = this;
    field.style.blockSize = "auto";
    if (field.scrollHeight > 0) field.style.blockSize = `${Math.min(field.scrollHeight + 4, window.innerHeight * 0.6)}px`;
  }

  clear() {
    this.setText("");
    this.field.focus();
  }

  /** @param {string} text */
  setText(text) {
    this.field.value = text;
    this.changed();
    this.callbacks.submitted();
  }
}
