// The classify panel: one or two texts, label probabilities, and the importance of words.

import { barList, fillBars, percent } from "./bars.js";
import { element, messageOf, wasAborted } from "./elements.js";
import { Reasons } from "./reasons.js";
import { Typing } from "./typing.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Start} Start */
/** @typedef {import("./types.js").ReaderFacts} ReaderFacts */
/** @typedef {import("./types.js").Classified} Classified */

const MOST_LABELS = 10;
// For longer texts, the user must request the importance of words.
const AT_ONCE = 60;

class Classify {
  /** @param {Page} page @param {ReaderFacts[]} readers */
  constructor(page, readers) {
    this.page = page;
    /** @type {string | null} the explained label, if it is not the most probable one */
    this.label = null;
    /** @type {Classified | null} */
    this.result = null;
    /** @type {Typing} */
    this.typing = new Typing(page, "classify", readers, {
      label: "Text to classify", placeholder: "Type a text…", ask: (text, signal) => this.ask(text, signal),
      clear: () => this.show(null), busy: (busy) => this.setBusy(busy), more: () => ({ second: this.second.value }),
    });
    /** @type {HTMLTextAreaElement} */
    this.second = this.typing.field("Second text", "And a second one…");
    this.second.value = page.kept.of("classify")?.second ?? "";
    this.secondPart = element("div", { class: "heed-second" }, element("h2", {}, "Second text"), this.second);
    this.verdict = element("p", { class: "heed-verdict" });
    this.said = element("p", { class: "heed-where" });
    this.bars = barList("Labels and their probabilities");
    this.reasons = new Reasons(page);
    this.wait = element("p", { class: "heed-where", role: "status" });
    this.heading = element("h2", {}, "Text");
    const { typing } = this;
    this.output = element(
      "section", { class: "heed-output", "aria-label": "Label" }, element("h2", {}, "Label"), this.verdict, this.bars, this.said,
    );
    this.body = element(
      "div", { class: "heed-panel heed-classify" }, typing.tools,
      element(
        "div", { class: "heed-two" },
        element("section", { class: "heed-input" }, this.heading, typing.input, this.secondPart), this.output,
      ),
      typing.notice, this.wait, this.reasons.body,
    );
    this.setTexts();
  }

  /** One or two text fields, as the model requires; some models accept both. */
  setTexts() {
    const { pairs } = this.typing.known;
    this.secondPart.hidden = pairs === false;
    this.heading.textContent = pairs === false ? "Text" : "First text";
    this.second.placeholder = pairs ? "And a second one…" : "And a second one, or none…";
  }

  /** @param {string} text @returns {{model: string, text: string, second?: string}} */
  asked(text) {
    const { model, known } = this.typing;
    const both = known.pairs || (known.pairs !== false && this.second.value.trim());
    return { model, text, ...(both ? { second: this.second.value } : {}) };
  }

  /** @param {string} text @param {AbortSignal} signal @returns {Promise<void>} */
  async ask(text, signal) {
    this.setTexts();
    const body = this.asked(text);
    if (body.second !== undefined && !body.second.trim()) {
      return this.typing.nothing("type the second text, too");
    }
    const { results: [found] } = await this.page.provider.classify(body, signal);
    if (signal.aborted) return;
    this.typing.notice.textContent = "";
    this.label = null;
    this.show(found);
    const { model, second } = body;
    const long = found.windows > 1;
    const subject = long ? null : { model, source: text, ...(second === undefined ? {} : { target: second }) };
    this.typing.look(subject, `this text was processed in ${found.windows} windows; to see attention, classify a part of it`);
    if (long) {
      this.reasons.clear();
      this.wait.textContent = "It is longer than the model reads at once: the probabilities are the mean of its windows’. For the words that count, classify a part of it.";
    } else await this.explain(text, signal);
  }

  /**
   * Requests the importance of words after the label; it needs one forward pass per word.
   * @param {string} text
   * @param {AbortSignal} signal
   * @param {boolean} [anyway] even for a long text
   */
  async explain(text, signal, anyway = false) {
    const { result } = this;
    const label = this.label ?? result?.label;
    if (!result || !label) return;
    const count = `${text} ${this.asked(text).second ?? ""}`.trim().split(/\s+/u).length;
    if (count > AT_ONCE && !anyway) {
      this.reasons.clear();
      this.wait.replaceChildren(element("button", {
        type: "button", class: "heed-quiet", onclick: () => this.explain(text, signal, true),
      }, `Leave out each of the ${count} words`));
      return;
    }
    this.wait.textContent = "Leaving out each word…";
    try {
      const body = { ...this.asked(text), explain: true, ...(this.label ? { label } : {}) };
      const { results: [why] } = await this.page.provider.classify(body, signal);
      if (signal.aborted || result !== this.result || label !== (this.label ?? result.label)) return;
      this.wait.textContent = "";
      this.reasons.show(/** @type {import("./types.js").Explained} */ (why), label);
      const { subject } = this.typing;
      if (subject && "model" in subject) await this.reasons.addMaps(await this.page.session.load({ ...subject, gradients: true }));
    } catch (error) {
      if (wasAborted(error) || signal.aborted) return;
      this.wait.textContent = `The words: ${messageOf(error)}.`.replace(/\.\.$/, ".");
    }
  }

  /** @param {boolean} busy */
  setBusy(busy) {
    for (const part of [this.output, this.reasons.body]) part.setAttribute("aria-busy", String(busy));
  }

  /** @param {Classified | null} found */
  show(found) {
    this.result = found;
    this.wait.textContent = "";
    if (!found?.label) this.reasons.clear();
    this.verdict.replaceChildren(...(found?.label ? [element("bdi", {}, found.label)] : []));
    const names = Object.keys(found?.probabilities ?? {});
    const shown = this.shownLabels(names);
    fillBars(this.bars, shown.map((text) => ({
      text, probability: found?.probabilities[text] ?? 0, pressed: text === (this.label ?? found?.label),
      title: `Importance of words for ${text}`,
    })), (row) => this.take(shown[row]), "importance of words");
    const others = names.filter((name) => !shown.includes(name));
    const rest = others.reduce((sum, name) => sum + (found?.probabilities[name] ?? 0), 0);
    const left = others.length ? `${others.length} other labels have ${percent(rest)} together. ` : "";
    this.said.textContent = found?.label && names.length > 1 ? `${left}Choose a label to see the importance of words for it.` : left;
    this.page.announce(found?.label ? `${found.label}, ${percent(found.probability)}` : "");
  }

  /** @param {string[]} names in the order of the model, unless there are many */
  shownLabels(names) {
    if (names.length <= MOST_LABELS) return names;
    const { probabilities } = /** @type {Classified} */ (this.result);
    return [...names].sort((a, b) => probabilities[b] - probabilities[a]).slice(0, MOST_LABELS);
  }

  /** @param {string} label */
  take(label) {
    const { result, typing } = this;
    if (!result || !typing.asking || result.windows > 1) return;
    this.label = label === result.label ? null : label;
    const names = [...this.bars.querySelectorAll("button")];
    for (const one of names) one.setAttribute("aria-pressed", String(one.textContent === label));
    this.explain(typing.input.value, typing.asking.signal, !this.reasons.body.hidden);
  }
}

/**
 * @param {Page} page
 * @param {ReaderFacts[]} readers
 * @param {Start} start
 * @returns {Panel}
 */
export function panel(page, readers, start) {
  const classify = new Classify(page, readers);
  const { typing } = classify;
  if (start.text && !page.kept.of("classify")) {
    typing.input.value = start.text;
    classify.second.value = start.second ?? "";
  }
  typing.run();
  return { name: "classify", title: "Classify", body: classify.body, show: () => typing.again(), types: true, unit: "" };
}
