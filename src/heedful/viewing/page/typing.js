// Shared parts of the panels for single texts: a text field and the choice of a model.

import { choice, element, messageOf, wasAborted, whenQuiet } from "./elements.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").ReaderFacts} ReaderFacts */
/** @typedef {import("./session.js").Subject} Subject */

const PAUSE = 350;

/** The chosen model of a panel, and the subject of the other panels. */
export class Asking {
  /**
   * @param {Page} page
   * @param {string} name the panel's
   * @param {ReaderFacts[]} readers
   * @param {() => void} changed called when another model is chosen
   */
  constructor(page, name, readers, changed) {
    this.page = page;
    this.name = name;
    this.readers = readers;
    const before = page.kept.of(name)?.model;
    this.model = readers.some((one) => one.name === before) ? String(before) : readers[0].name;
    /** @type {Subject | null} */
    this.subject = null;
    this.chooser = choice("Model", readers.map((one) => ({ value: one.name, text: one.name })), this.model, (chosen) => {
      this.model = chosen;
      this.setFacts();
      changed();
    });
    this.facts = element("p", { class: "heed-where" });
    this.notice = element("p", { class: "heed-notice", role: "alert" });
    this.tools = element("div", { class: "heed-tools" }, this.chooser.field, this.facts);
    this.setFacts();
  }

  /** The server's description of the chosen model. */
  get known() {
    return this.readers.find(({ name }) => name === this.model) ?? this.readers[0];
  }

  setFacts() {
    const { architecture, parameters, maps } = this.known;
    const size = parameters === undefined ? "" : `${(parameters / 1e6).toFixed(parameters < 1e5 ? 3 : 1)} M parameters`;
    const blind = maps && !maps.length ? "without attention" : "";
    this.facts.textContent = [architecture, size, blind].filter(Boolean).join(", ");
  }

  /**
   * Sets the subject of the other panels.
   * @param {Subject | null} subject
   * @param {string} [why] why there is none
   */
  look(subject, why) {
    this.subject = subject;
    this.page.session.look(subject, why);
  }

  /** The panel was opened: its text becomes the subject again, unless a saved trace is. */
  again() {
    const now = this.page.session.subject;
    if (this.subject && !(now && "trace" in now)) this.page.session.look(this.subject);
  }

  /** @param {unknown} error */
  tell(error) {
    this.notice.textContent = `${messageOf(error)}.`.replace(/\.\.$/, ".");
  }
}

/**
 * A text field that sends a request whenever typing pauses.
 * @typedef {object} How
 * @property {string} label
 * @property {string} placeholder
 * @property {(text: string, signal: AbortSignal) => Promise<void>} ask
 * @property {() => void} clear called when there is nothing to show
 * @property {(busy: boolean) => void} busy
 * @property {() => Record<string, string>} [more] further fields to save
 */

export class Typing extends Asking {
  /**
   * @param {Page} page
   * @param {string} name
   * @param {ReaderFacts[]} readers
   * @param {How} how
   */
  constructor(page, name, readers, how) {
    super(page, name, readers, () => this.run());
    this.how = how;
    /** @type {AbortController | null} */
    this.asking = null;
    this.soon = whenQuiet(PAUSE, () => this.run());
    this.input = this.field(how.label, how.placeholder);
    this.input.value = page.kept.of(name)?.text ?? "";
  }

  /** @param {string} label @param {string} placeholder */
  field(label, placeholder) {
    return element("textarea", {
      dir: "auto", rows: 3, spellcheck: "false", "aria-label": label, placeholder, oninput: () => this.changed(),
    });
  }

  /** The text has changed; send a request when typing pauses. */
  changed() {
    this.asking?.abort();
    this.keep();
    this.soon();
  }

  keep() {
    this.page.kept.put(this.name, { model: this.model, text: this.input.value, ...this.how.more?.() });
  }

  async run() {
    this.keep();
    this.asking?.abort();
    const text = this.input.value;
    const asking = new AbortController();
    this.asking = asking;
    if (!text.trim()) return this.nothing();
    this.how.busy(true);
    try {
      await this.how.ask(text, asking.signal);
    } catch (error) {
      // Use the response to the last request only.
      if (wasAborted(error) || asking !== this.asking) return;
      this.nothing();
      this.tell(error);
    } finally {
      if (asking === this.asking) this.how.busy(false);
    }
  }

  /** @param {string} [why] */
  nothing(why) {
    this.notice.textContent = "";
    this.how.busy(false);
    this.how.clear();
    this.look(null, why);
  }
}
