// The generic panel, for tasks without their own: a form generated from the schema of the inputs, and the result.

import { imageField } from "./image_field.js";
import { selectField, element, debounce, isAbortError, messageOf } from "./elements.js";
import { isWords, resultRows } from "./result_view.js";
import { soundField } from "./sound_field.js";
import { subtitleButtons } from "./subtitles.js";
import { ModelChooser } from "./text_input.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Start} Start */
/** @typedef {import("./types.js").Schema} Schema */
/** @typedef {import("./types.js").ReaderFacts} ReaderFacts */

const PAUSE = 350;

/**
 * A field of the form: its element, its input, its value (undefined if it is empty), what to do after its input was restored, and what plays a
 * part of its sound.
 * @typedef {{
 *   body: HTMLElement, input: HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement, value: () => unknown, restored?: () => void,
 *   play?: import("./result_view.js").Play,
 * }} Field
 */

/** Bytes of a request around a sound: the other fields of the input, and what is asked of the model. */
const AROUND = 1 << 12;

/** Browsers limit the size of what is saved with a history entry; larger inputs, such as photos, are not saved. */
const MOST_SAVED = 100_000;

class Predict {
  /** @param {Page} page @param {ReaderFacts[]} models */
  constructor(page, models) {
    this.page = page;
    this.models = models;
    this.chooser = new ModelChooser(page, "predict", models, () => this.setFields());
    /** @type {AbortController | null} */
    this.request = null;
    this.runLater = debounce(PAUSE, () => this.run());
    /** @type {[string, Field][]} */
    this.fields = [];
    this.form = element("section", { class: "heed-input" });
    this.result = element("dl", { class: "heed-result" });
    this.saving = element("div");
    this.output = element("section", { class: "heed-output", "aria-label": "Result" }, element("h2", {}, "Result"), this.result, this.saving);
    this.body = element(
      "div", { class: "heed-panel heed-predict" }, this.chooser.tools,
      element("div", { class: "heed-columns" }, this.form, this.output), this.chooser.notice,
    );
    this.setFields();
  }

  /** Show the fields of the selected model, with the saved inputs. */
  setFields() {
    const typed = Object.fromEntries(this.fields.map(([name, { input }]) => [name, input.value]));
    const saved = { ...this.page.savedInputs.get("predict"), ...typed };
    this.fields = makeFields(this.schema, this.page.maxBody, () => this.changed());
    for (const [name, { input, restored }] of this.fields) {
      if (!saved[name]) continue;
      input.value = saved[name];
      restored?.();
    }
    this.form.replaceChildren(...this.fields.map(([, { body }]) => body));
    this.save();
    this.run();
  }

  /** @returns {Schema} */
  get schema() {
    const own = this.page.inputs[this.chooser.model] ?? { type: "string" };
    const { pairs } = this.models.find(({ name }) => name === this.chooser.model) ?? {};
    return pairs === false ? own.anyOf?.find(({ type }) => type === "string") ?? own : own;
  }

  changed() {
    this.save();
    this.request?.abort();
    this.runLater();
  }

  save() {
    const typed = this.fields.map(([name, { input }]) => [name, input.value.length <= MOST_SAVED ? input.value : ""]);
    // Inputs of other models' fields are kept.
    this.page.savedInputs.set("predict", { ...this.page.savedInputs.get("predict"), model: this.chooser.model, ...Object.fromEntries(typed) });
  }

  /** The typed input in the form of the schema; undefined if all fields are empty. */
  get input() {
    const values = this.fields.map(([name, { value }]) => /** @type {const} */ ([name, value()]));
    const given = values.filter(([, value]) => value !== undefined);
    if (!given.length) return undefined;
    if (this.schema.type === "object") return Object.fromEntries(given);
    const all = given.map(([, value]) => value);
    return isPair(this.schema) || all.length > 1 ? values.map(([, value]) => value ?? "") : all[0];
  }

  async run() {
    this.request?.abort();
    const request = new AbortController();
    this.request = request;
    const { model } = this.chooser;
    this.chooser.notice.textContent = "";
    try {
      const { input } = this;
      if (input === undefined) return this.clear();
      this.output.setAttribute("aria-busy", "true");
      const { results: [found] } = await this.page.provider.predict(model, { inputs: [input] }, request.signal);
      if (request.signal.aborted) return;
      this.show(found);
      this.chooser.setSubject({ model, input });
    } catch (error) {
      if (isAbortError(error) || request.signal.aborted) return;
      this.clear(messageOf(error));
      this.chooser.showError(error);
    } finally {
      if (request === this.request) this.output.setAttribute("aria-busy", "false");
    }
  }

  /** @param {string} [reason] */
  clear(reason = "fill in the fields first") {
    this.output.hidden = true;
    this.chooser.setSubject(null, reason);
  }

  /** @param {Record<string, unknown>} found */
  show(found) {
    this.output.hidden = false;
    const rows = resultRows(found, this.fields.find(([, { play }]) => play)?.[1].play);
    this.result.replaceChildren(...rows.flatMap(([name, , shown]) => [
      element("dt", {}, titleOf(name)), element("dd", { dir: "auto" }, ...shown),
    ]));
    const forms = this.chooser.modelFacts.subtitles ?? [];
    this.saving.replaceChildren(forms.length && isWords(found.words) ? subtitleButtons(this.page, this.chooser.model, forms, found) : "");
    this.page.announce(rows.map(([name, text]) => `${titleOf(name)}: ${text}`).join("; "));
  }
}

/**
 * Parse a JSON object; null if the text is not one.
 * @param {string} text
 * @returns {Record<string, unknown> | null}
 */
function parseObject(text) {
  try {
    const found = JSON.parse(text);
    return found && typeof found === "object" ? found : null;
  } catch {
    return null;
  }
}

/**
 * The text that represents a value in a field.
 * @param {unknown} value
 */
function fieldText(value) {
  if (value === undefined) return "";
  if (Array.isArray(value) && value.every((one) => typeof one === "string")) return value.join("\n");
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** @param {string} name */
function titleOf(name) {
  const words = name.replace(/_/g, " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** @param {Schema} schema */
function isPair(schema) {
  return schema.type === "array" && schema.minItems === 2 && schema.maxItems === 2;
}

/**
 * Whether a value is a list of texts, typed one per line.
 * @param {Schema} schema
 */
function isLines(schema) {
  return schema.type === "array" && schema.items?.type === "string" && !isPair(schema);
}

/**
 * @param {Schema} schema the schema of one input
 * @param {number} maxBody the largest body of a request in bytes
 * @param {() => void} changed
 * @returns {[string, Field][]}
 */
function makeFields(schema, maxBody, changed) {
  if (schema.type === "object" && schema.properties) {
    return Object.entries(schema.properties).map(([name, own]) => [name, makeField(own.title ?? titleOf(name), own, maxBody, changed)]);
  }
  const texts = schema.anyOf ? schema.anyOf.some(isPair) : isPair(schema);
  if (texts) {
    return [["first", "First text"], ["second", "Second text"]].map(([name, title]) => [name, makeField(title, { type: "string" }, maxBody, changed)]);
  }
  return [["input", makeField(schema.title ?? "Input", schema, maxBody, changed)]];
}

/**
 * @param {string} title
 * @param {Schema} schema
 * @param {number} maxBody
 * @param {() => void} changed
 * @returns {Field}
 */
function makeField(title, schema, maxBody, changed) {
  if (schema.contentMediaType?.startsWith("image/")) return imageField(title, changed);
  if (schema.contentMediaType?.startsWith("audio/")) return soundField(title, Math.min(schema.maxLength ?? Infinity, maxBody - AROUND), changed);
  const about = [schema.description, isLines(schema) ? "One per line." : ""].filter(Boolean).join(" ");
  const hint = about ? [element("p", { class: "heed-hint" }, about)] : [];
  if (schema.enum) {
    const options = ["", ...schema.enum].map((value) => ({ value: String(value), text: String(value) }));
    const { field, input } = selectField(title, options, "", changed);
    return { body: element("div", {}, field, ...hint), input, value: () => schema.enum?.find((one) => String(one) === input.value) };
  }
  /** @type {HTMLTextAreaElement} */
  const input = element("textarea", {
    dir: "auto", rows: isLines(schema) ? 6 : schema.type === "string" ? 3 : 1, spellcheck: "false", "aria-label": title, oninput: changed,
  });
  const value = () => {
    if (!input.value.trim()) return undefined;
    if (schema.type === "string") return input.value;
    if (isLines(schema)) return input.value.split("\n").filter((line) => line.trim());
    try {
      return JSON.parse(input.value);
    } catch {
      throw new Error(`${title}: give ${schema.type ?? "a value"} as JSON`);
    }
  };
  return { body: element("div", {}, element("h2", {}, title), input, ...hint), input, value };
}

/**
 * @param {Page} page
 * @param {ReaderFacts[]} models
 * @param {Start} start
 * @returns {Panel}
 */
export function panel(page, models, start) {
  const before = page.savedInputs.get("predict");
  const predict = new Predict(page, models);
  const given = [start.text, start.second];
  if (start.text && !before) {
    const named = predict.schema.type === "object" ? parseObject(start.text) : null;
    predict.fields.forEach(([name, { input, restored }], i) => {
      input.value = named ? fieldText(named[name]) : given[i] ?? "";
      restored?.();
    });
    predict.run();
  }
  return { name: "predict", title: "Predict", body: predict.body, show: () => predict.chooser.restoreSubject(), hasInput: true };
}
