// Base classes of the panels for single texts: a model and a text field.

import { selectField, element, messageOf, isAbortError, debounce } from "./elements.js";
import { architectureName } from "./glossary.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").ReaderFacts} ReaderFacts */
/** @typedef {import("./session.js").Subject} Subject */

const PAUSE = 350;
// Milliseconds after which the page says that it is waiting.
const SLOW = 90;

/** Selects one of the models of a panel, and sets the subject of the other panels. */
export class ModelChooser {
  /**
   * @param {Page} page
   * @param {string} name the name of the panel
   * @param {ReaderFacts[]} readers
   * @param {() => void} changed called when another model is selected
   */
  constructor(page, name, readers, changed) {
    this.page = page;
    this.name = name;
    this.readers = readers;
    const before = page.savedInputs.get(name)?.model;
    this.model = readers.some((one) => one.name === before) ? String(before) : readers[0].name;
    /** @type {Subject | null} */
    this.subject = null;
    this.select = selectField("Model", readers.map((one) => ({ value: one.name, text: one.name })), this.model, (chosen) => {
      this.model = chosen;
      this.setFacts();
      changed();
    });
    this.facts = element("p", { class: "heed-detail" });
    this.notice = element("p", { class: "heed-notice", role: "alert" });
    this.pending = element("p", { class: "heed-detail", role: "status" });
    this.tools = element("div", { class: "heed-tools" }, this.select.field, this.facts, this.pending);
    this.setFacts();
  }

  /** The facts about the selected model, from the server. */
  get modelFacts() {
    return this.readers.find(({ name }) => name === this.model) ?? this.readers[0];
  }

  setFacts() {
    const { architecture, parameters, maps } = this.modelFacts;
    const size = parameters === undefined ? "" : `${(parameters / 1e6).toFixed(parameters < 1e5 ? 3 : 1)} M parameters`;
    const blind = maps && !maps.length ? "without attention" : "";
    this.facts.textContent = [architecture && architectureName(architecture), size, blind].filter(Boolean).join(", ");
  }

  /**
   * Set the subject of the other panels, if this is the panel whose input they show.
   * @param {Subject | null} subject
   * @param {string} [reason] why there is no subject
   */
  setSubject(subject, reason) {
    this.subject = subject;
    if (this.page.input === this.name) this.page.session.setSubject(subject, reason);
  }

  /** When the panel is opened, show its text again, unless a saved trace is selected. */
  restoreSubject() {
    const now = this.page.session.subject;
    if (this.subject && !(now && "trace" in now)) this.page.session.setSubject(this.subject);
  }

  /** @param {unknown} error */
  showError(error) {
    this.notice.textContent = `${messageOf(error)}.`.replace(/\.\.$/, ".");
  }
}

/**
 * The functions of a panel whose text is submitted when typing pauses.
 * @typedef {object} InputCallbacks
 * @property {string} label
 * @property {string} placeholder
 * @property {(text: string, signal: AbortSignal) => Promise<void>} submit
 * @property {() => void} clear removes the result
 * @property {(busy: boolean) => void} busy shows whether a request is running
 * @property {() => Record<string, string>} [more] returns further fields to save
 */

export class TextInput extends ModelChooser {
  /**
   * @param {Page} page
   * @param {string} name
   * @param {ReaderFacts[]} readers
   * @param {InputCallbacks} callbacks
   */
  constructor(page, name, readers, callbacks) {
    super(page, name, readers, () => this.run());
    this.callbacks = callbacks;
    /** @type {AbortController | null} */
    this.request = null;
    this.runLater = debounce(PAUSE, () => this.run());
    this.input = this.field(callbacks.label, callbacks.placeholder);
    this.input.value = page.savedInputs.get(name)?.text ?? "";
  }

  /** @param {string} label @param {string} placeholder */
  field(label, placeholder) {
    return element("textarea", {
      dir: "auto", rows: 3, spellcheck: "false", "aria-label": label, placeholder, oninput: () => this.changed(),
    });
  }

  /** The text has changed; submit it when typing pauses. */
  changed() {
    this.request?.abort();
    this.save();
    this.runLater();
  }

  /** @param {string} text */
  setText(text) {
    this.input.value = text;
    this.run();
  }

  save() {
    this.page.savedInputs.set(this.name, { model: this.model, text: this.input.value, ...this.callbacks.more?.() });
  }

  async run() {
    this.save();
    this.request?.abort();
    const text = this.input.value;
    const request = new AbortController();
    this.request = request;
    if (!text.trim()) return this.clear();
    this.callbacks.busy(true);
    this.pending.textContent = "";
    const slow = window.setTimeout(() => (this.pending.textContent = "Computing…"), SLOW);
    try {
      await this.callbacks.submit(text, request.signal);
    } catch (error) {
      // Ignore the response to an earlier request.
      if (isAbortError(error) || request !== this.request) return;
      this.clear(messageOf(error));
      this.showError(error);
    } finally {
      window.clearTimeout(slow);
      if (request === this.request) this.pending.textContent = "";
      if (request === this.request) this.callbacks.busy(false);
    }
  }

  /** @param {string} [reason] */
  clear(reason) {
    this.notice.textContent = "";
    this.callbacks.busy(false);
    this.callbacks.clear();
    this.setSubject(null, reason);
  }
}
