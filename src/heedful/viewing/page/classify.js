// The Classify panel: one or two texts, the probabilities of the labels, and the importance of each word.

import { barList, fillBars, percent } from "./bars.js";
import { element, messageOf, isAbortError } from "./elements.js";
import { WordImportance } from "./word_importance.js";
import { TextInput } from "./text_input.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Start} Start */
/** @typedef {import("./types.js").ReaderFacts} ReaderFacts */
/** @typedef {import("./types.js").Classified} Classified */

const MAX_LABELS = 10;
// For longer texts, leave-one-out importance is computed only on request.
const MAX_WORDS = 60;
const NONE = "No label reaches its threshold";

class Classify {
  /** @param {Page} page @param {ReaderFacts[]} readers */
  constructor(page, readers) {
    this.page = page;
    /** @type {string | null} the label to explain; null for the most probable one */
    this.label = null;
    /** @type {Classified | null} */
    this.result = null;
    /** @type {TextInput} */
    this.textInput = new TextInput(page, "classify", readers, {
      label: "Text to classify", placeholder: "Type a text…", submit: (text, signal) => this.submit(text, signal),
      clear: () => {
        this.updateFields();
        this.show(null);
      }, busy: (busy) => this.setBusy(busy), more: () => ({ second: this.second.value }),
    });
    /** @type {HTMLTextAreaElement} */
    this.second = this.textInput.field("Second text", "And a second one…");
    this.second.value = page.savedInputs.get("classify")?.second ?? "";
    this.secondPart = element("div", { class: "heed-second" }, element("h2", {}, "Second text"), this.second);
    this.prediction = element("p", { class: "heed-prediction" });
    this.hint = element("p", { class: "heed-detail" });
    this.bars = barList("Labels and their probabilities");
    this.importance = new WordImportance(page);
    this.status = element("p", { class: "heed-detail", role: "status" });
    this.heading = element("h2", {}, "Text");
    const { textInput } = this;
    this.output = element(
      "section", { class: "heed-output", "aria-label": "Label" }, element("h2", {}, "Label"), this.prediction, this.bars, this.hint,
    );
    this.body = element(
      "div", { class: "heed-panel heed-classify" }, textInput.tools,
      element(
        "div", { class: "heed-columns" },
        element("section", { class: "heed-input" }, this.heading, textInput.input, this.secondPart), this.output,
      ),
      textInput.notice, this.status, this.importance.body,
    );
    this.updateFields();
  }

  /** Show one or two text fields, as the model requires; some models accept both. */
  updateFields() {
    const { pairs } = this.textInput.modelFacts;
    this.secondPart.hidden = pairs === false;
    this.heading.textContent = pairs === false ? "Text" : "First text";
    this.second.placeholder = pairs ? "And a second one…" : "Type a second text (optional)…";
  }

  /** @param {string} text @returns {{model: string, text: string, second?: string}} */
  requestBody(text) {
    const { model, modelFacts } = this.textInput;
    const both = modelFacts.pairs || (modelFacts.pairs !== false && this.second.value.trim());
    return { model, text, ...(both ? { second: this.second.value } : {}) };
  }

  /** @param {string} text @param {AbortSignal} signal @returns {Promise<void>} */
  async submit(text, signal) {
    this.updateFields();
    const body = this.requestBody(text);
    if (body.second !== undefined && !body.second.trim()) {
      return this.textInput.clear("type the second text as well");
    }
    const { results: [found] } = await this.page.provider.classify(body, signal);
    if (signal.aborted) return;
    this.textInput.notice.textContent = "";
    this.label = null;
    this.show(found);
    const { model, second } = body;
    const long = found.windows > 1;
    const subject = long ? null : { model, source: text, ...(second === undefined ? {} : { target: second }) };
    this.textInput.setSubject(subject, `this text was split into ${found.windows} windows; classify a part of it to see its attention`);
    if (long) {
      this.importance.clear();
      this.status.textContent = "This text is longer than the model’s context, so the probabilities are averaged over windows. Classify a part of it to see the importance of its words.";
    } else await this.explain(text, signal);
  }

  /**
   * Request the importance of each word. This needs one prediction per word, so it is a separate request.
   * @param {string} text
   * @param {AbortSignal} signal
   * @param {boolean} [force] whether to skip the limit on the number of words
   */
  async explain(text, signal, force = false) {
    const { result } = this;
    const label = this.label ?? strongest(result);
    if (!result || !label) return;
    const count = `${text} ${this.requestBody(text).second ?? ""}`.trim().split(/\s+/u).length;
    if (count > MAX_WORDS && !force) {
      this.importance.clear();
      this.status.replaceChildren(element("button", {
        type: "button", class: "heed-button", onclick: () => this.explain(text, signal, true),
      }, `Compute the importance of ${count} words`));
      return;
    }
    this.status.textContent = "Computing the importance of each word…";
    try {
      const body = { ...this.requestBody(text), explain: true, ...(this.label || result.labels ? { label } : {}) };
      const { results: [explained] } = await this.page.provider.classify(body, signal);
      if (signal.aborted || result !== this.result || label !== (this.label ?? strongest(result))) return;
      this.status.textContent = "";
      this.importance.show(/** @type {import("./types.js").Explained} */ (explained), label);
      const { subject } = this.textInput;
      if (!subject || !("model" in subject)) return;
      const trace = await this.page.session.load({ ...subject, gradients: true });
      if (!signal.aborted && result === this.result) await this.importance.addMaps(trace);
    } catch (error) {
      if (isAbortError(error) || signal.aborted) return;
      this.status.textContent = `Word importance failed: ${messageOf(error)}.`.replace(/\.\.$/, ".");
    }
  }

  /** @param {boolean} busy */
  setBusy(busy) {
    for (const part of [this.output, this.importance.body]) part.setAttribute("aria-busy", String(busy));
  }

  /** @param {Classified | null} found */
  show(found) {
    this.result = found;
    this.status.textContent = "";
    const given = found?.labels ?? (found?.label ? [found.label] : []);
    const chosen = strongest(found) && (this.label ?? strongest(found));
    if (!chosen) this.importance.clear();
    this.prediction.replaceChildren(...given.flatMap((label, i) => [...(i ? [", "] : []), element("bdi", {}, label)]));
    if (found?.labels && found.windows && !given.length) this.prediction.replaceChildren(element("span", { class: "heed-none" }, NONE));
    const names = Object.keys(found?.probabilities ?? {});
    const shown = this.shownLabels(names);
    const { thresholds } = this.textInput.modelFacts;
    fillBars(this.bars, shown.map((text) => ({
      text, probability: found?.probabilities[text] ?? 0, pressed: text === chosen, threshold: thresholds?.[text],
      title: `Show the importance of each word for ${text}`,
    })), (row) => this.selectLabel(shown[row]), "show the importance of each word");
    this.hint.textContent = chosen && names.length > 1
      ? `${this.aboutBars(names.filter((name) => !shown.includes(name)))}Select a label to see the importance of each word for it.` : "";
    const none = found?.labels && found.windows ? NONE : "";
    this.page.announce(given.map((label) => `${label}, ${percent(found?.probabilities[label] ?? 0)}`).join("; ") || none);
  }

  /** @param {string[]} names in the order of the model; if there are many, the most probable ones */
  shownLabels(names) {
    if (names.length <= MAX_LABELS) return names;
    const { probabilities, labels = [] } = /** @type {Classified} */ (this.result);
    const order = [...names].sort((a, b) => Number(labels.includes(b)) - Number(labels.includes(a)) || probabilities[b] - probabilities[a]);
    return order.slice(0, Math.max(MAX_LABELS, labels.length));
  }

  /**
   * What the bars do not say by themselves.
   * @param {string[]} others labels without a bar
   */
  aboutBars(others) {
    const { probabilities, labels } = /** @type {Classified} */ (this.result);
    const all = others.map((name) => probabilities[name]);
    if (!labels) {
      const rest = all.reduce((sum, one) => sum + one, 0);
      return all.length ? `The other ${all.length} labels have a total probability of ${percent(rest)}. ` : "";
    }
    const left = all.length ? `The other ${all.length} labels are not given; the highest of their probabilities is ${percent(Math.max(...all))}. ` : "";
    return `A label is given if its bar reaches the mark, which is the label’s threshold. ${left}`;
  }

  /** @param {string} label */
  selectLabel(label) {
    const { result, textInput } = this;
    if (!result || !textInput.request || result.windows > 1) return;
    this.label = label === strongest(result) ? null : label;
    const names = [...this.bars.querySelectorAll("button")];
    for (const one of names) one.setAttribute("aria-pressed", String(one.textContent === label));
    this.explain(textInput.input.value, textInput.request.signal, !this.importance.body.hidden);
  }
}

/**
 * The label that is explained unless you select another: the most probable one that is given, or of all; none for an empty text.
 * @param {Classified | null} found
 * @returns {string | null}
 */
function strongest(found) {
  if (!found?.labels) return found?.label ?? null;
  const { labels, probabilities } = found;
  return found.windows ? (labels.length ? labels : Object.keys(probabilities)).reduce((best, name) => (probabilities[name] > probabilities[best] ? name : best)) : null;
}

/**
 * @param {Page} page
 * @param {ReaderFacts[]} readers
 * @param {Start} start
 * @returns {Panel}
 */
export function panel(page, readers, start) {
  const classify = new Classify(page, readers);
  const { textInput } = classify;
  if (start.text && !page.savedInputs.get("classify")) {
    textInput.input.value = start.text;
    classify.second.value = start.second ?? "";
  }
  textInput.run();
  return { name: "classify", title: "Classify", body: classify.body, show: () => textInput.restoreSubject(), setText: (text) => textInput.setText(text), hasInput: true, unit: "" };
}
