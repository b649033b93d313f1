// The Translate panel: translation while typing, sentence by sentence, with linked words and alternatives.

import { element, messageOf, isAbortError, debounce } from "./elements.js";
import { AlternativesMenu } from "./alternatives_menu.js";
import { sureness } from "./confidence.js";
import { makeDetails, makeOutput } from "./desk_layout.js";
import { DeskFiles } from "./desk_files.js";
import { DeskInput, languageName } from "./desk_input.js";
import { copyText, describeScore, formatFindings, hypothesisItem } from "./hypotheses.js";
import { UnreachableError } from "./providers.js";
import { selectedPhrase } from "./phrase.js";
import { replaceSentence } from "./sentence_bar.js";
import { SentenceRow } from "./sentence_row.js";
import { saveTranslation } from "./translation_html.js";
import { isFirstVisit, playLinks, welcome } from "./welcome.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").ModelFacts} ModelFacts */
/** @typedef {import("./types.js").Hypothesis} Hypothesis */
/** @typedef {import("./types.js").Translated} Translated */

const PAUSE = 350;
const NUM_BEST = 5;
// Maximum characters of a text with linked words; for longer texts, the weights would take megabytes.
const MAX_LINKED = 5000;
const RETRY = 2000;

class Translate {
  /** @param {Page} page @param {ModelFacts[]} models */
  constructor(page, models) {
    this.page = page;
    this.models = models;
    const before = page.savedInputs.get("translate");
    this.model = (models.find(({ name }) => name === before?.model) ?? models[0])?.name ?? "";
    /** @type {SentenceRow[]} */
    this.rows = [];
    /** @type {ReturnType<typeof selectedPhrase>} the selected words of a translation */
    this.phrase = null;
    /** @type {SentenceRow | null} the row that the other panels show */
    this.row = null;
    /** @type {import("./session.js").Subject | null} */
    this.subject = null;
    /** @type {AbortController | null} */
    this.request = null;
    this.busy = false; // then the translation that is shown is outdated
    /** @type {number | undefined} */
    this.retry = undefined;
    const runLater = debounce(PAUSE, () => this.translate());
    this.input = new DeskInput(models, this.model, {
      typed: () => {
        this.save();
        this.request?.abort();
        this.setBusy(this.input.field.value.trim() !== "");
        runLater();
      },
      submitted: () => this.translate(),
      modelChosen: (name) => this.setModel(name),
      swapped: (name) => this.swap(name),
    });
    this.out = makeOutput({ copy: () => this.copy(), save: () => saveTranslation(this.rows, this.input.modelFacts ?? {}, this.page.announce), reset: () => this.row && this.continueFrom(this.row, "", 0), phrase: () => this.openPhrase() });
    document.addEventListener("selectionchange", () => {
      // The selection ends when the button is pressed; the button then still has its phrase.
      const phrase = selectedPhrase(this.rows);
      if (phrase || !this.out.phraseButton.matches(":hover, :focus")) this.phrase = phrase;
      this.out.phraseButton.hidden = !this.phrase;
    });
    this.details = makeDetails();
    this.notice = element("p", { class: "heed-notice", role: "alert" });
    this.welcomePlace = element("div");
    this.after = "";
    this.body = element(
      "div", { class: "heed-panel heed-translate" }, this.welcomePlace, this.input.tools,
      element("div", { class: "heed-columns" }, this.input.body, this.out.body), this.notice, this.details.rowList, this.details.body,
    );
    this.files = new DeskFiles(page, this.body, () => this.input.modelFacts);
    this.input.actions.append(this.files.button);
    this.input.body.append(this.files.body);
    this.menu = new AlternativesMenu(page, this.body, (row, prefix, word) => this.continueFrom(row, prefix, word));
    this.show(null);
  }

  /** @param {string} name */
  setModel(name) {
    this.model = name;
    this.input.setModel(name);
    this.translate();
  }

  /**
   * Translate the translation back.
   * @param {string} name the model of the opposite direction
   */
  swap(name) {
    const text = this.text;
    if (text.trim()) this.input.field.value = text;
    this.setModel(name);
  }

  /** The whole translation. */
  get text() {
    return this.rows.map((row) => (row.result.gap ?? "") + row.text).join("") + (this.rows.length ? this.after : "");
  }

  async copy() {
    const done = await copyText(this.text.trim());
    this.out.copyButton.textContent = done ? "Copied" : "Select the text to copy it";
    this.page.announce(this.out.copyButton.textContent);
    window.setTimeout(() => (this.out.copyButton.textContent = "Copy"), 1500);
  }

  async translate() {
    // White space around a text is not translated: it is often the space before the next word.
    const text = this.input.field.value.trim();
    this.save();
    this.menu.close();
    window.clearTimeout(this.retry);
    this.request?.abort();
    if (!text) return this.show(null);
    const request = new AbortController();
    this.request = request;
    this.setBusy(true);
    try {
      const aligns = this.input.modelFacts?.aligns !== false;
      const short = text.length <= MAX_LINKED;
      const body = { model: this.model, text, nbest: NUM_BEST, alignments: aligns && short, matches: true, checks: short, rows: true };
      const { translations } = await this.page.provider.translate(body, request.signal);
      // Ignore the response to an earlier request.
      if (request !== this.request) return;
      this.notice.textContent = aligns && !short ? `Words are linked only in texts of up to ${MAX_LINKED} characters.` : "";
      this.show(translations[0]);
    } catch (error) {
      if (isAbortError(error) || request !== this.request) return;
      this.fail(error);
    } finally {
      if (request === this.request) this.setBusy(false);
    }
  }

  /** @param {unknown} error */
  fail(error) {
    const message = messageOf(error);
    const again = error instanceof UnreachableError;
    this.show(null, `not translated: ${message}`);
    this.notice.textContent = `Not translated: ${message}${again ? ". Trying again until it returns…" : "."}`.replace(/\.\.$/, ".");
    if (again) this.retry = window.setTimeout(() => this.translate(), RETRY);
  }

  /**
   * Dim the previous result while a request is running, and say so.
   * @param {boolean} busy
   */
  setBusy(busy) {
    this.busy = busy;
    this.out.status.textContent = busy ? "Translating…" : "";
    for (const part of [this.out.body, this.details.sourceSection, this.details.bestSection, this.details.checks.section, this.details.rowList]) part.setAttribute("aria-busy", String(busy));
  }

  /** @param {Translated | null} result @param {string} [reason] why there is none */
  show(result, reason) {
    const { source, target } = this.input.modelFacts ?? {};
    this.menu?.close();
    this.out.heading.textContent = languageName(target) || "Translation";
    this.after = result?.after ?? "";
    const found = result?.rows?.length ? result.rows : result ? [result] : [];
    this.rows = found.map((one) => new SentenceRow(one, { source, target }, (row, word, span) => {
      this.choose(row);
      if (!this.busy) this.menu.open(row, this.model, word, span);
    }));
    const several = this.rows.length > 1;
    this.details.rowList.hidden = !several;
    this.details.rowList.replaceChildren(...(several ? this.rows.map((row, i) => this.rowItem(row, i)) : []));
    this.out.copyButton.hidden = this.out.saveButton.hidden = !this.rows.length;
    if (!result) this.setBusy(false);
    this.drawWhole();
    this.choose(this.rows[0] ?? null, reason);
    this.page.announce(result ? `Translation: ${result.text}${formatFindings(result)}` : "");
  }

  /** A single sentence is shown with its words; several are shown as text, with a row for each below. */
  drawWhole() {
    const [first, ...others] = this.rows;
    const empty = element("p", { class: "heed-text heed-target" });
    const whole = element("p", { class: "heed-text heed-whole", dir: "auto", lang: this.input.modelFacts?.target }, this.text);
    this.out.place.replaceChildren(others.length ? whole : first?.target ?? empty);
    this.details.sourcePlace.replaceChildren(others.length || !first ? "" : first.source);
    this.out.warningPlace.replaceChildren(others.length || !first ? "" : first.warnings);
    this.details.sourceSection.hidden = !first || others.length > 0;
    this.details.hints.hidden = !first;
  }

  /** @param {SentenceRow} row @param {number} i */
  rowItem(row, i) {
    const look = element("button", { type: "button", class: "heed-button heed-look", onclick: () => this.lookInside(row) }, "Look inside");
    const item = element("li", { "aria-label": `Sentence ${i + 1}` }, row.source, element("div", {}, row.target, row.warnings), look);
    for (const name of ["click", "focusin"]) item.addEventListener(name, () => this.choose(row));
    return item;
  }

  /**
   * Open the first of the panels that show attention.
   * @param {SentenceRow} row
   */
  lookInside(row) {
    this.choose(row);
    /** @type {HTMLElement | null} */ (this.page.root.querySelector(".heed-inside + [role=tab]"))?.click();
  }

  /** When the panel is opened, show its text again, unless a saved trace is selected. */
  restoreSubject() {
    const now = this.page.session.subject;
    if (this.subject && !(now && "trace" in now)) this.page.session.setSubject(this.subject);
    this.input.grow();
  }

  /**
   * Show the details of a row here and in the other panels.
   * @param {SentenceRow | null} row
   * @param {string} [reason] why there is none
   */
  choose(row, reason) {
    if (row && row === this.row && this.rows.includes(row)) return;
    this.row = row;
    [...this.details.rowList.children].forEach((item, i) => {
      item.classList.toggle("heed-chosen-row", this.rows[i] === row);
      if (this.rows[i] === row) item.setAttribute("aria-current", "true");
      else item.removeAttribute("aria-current");
    });
    this.showDetails(reason);
  }

  /** @param {string} [reason] */
  showDetails(reason) {
    const { row } = this;
    const result = row?.result ?? null;
    const place = row && this.rows.length > 1 ? ` of sentence ${this.rows.indexOf(row) + 1}` : "";
    this.out.resetButton.hidden = !row?.prefix;
    this.out.score.replaceChildren(...(row ? describeScore(row.hypothesis, place) : []));
    const marks = [row?.marked.unsure ? "Words on orange: the model was unsure." : "", row?.marked.unread ? "Dotted source words: hardly read." : ""];
    this.details.legend.textContent = marks.filter(Boolean).join(" ");
    this.details.bestHeading.textContent = `Best translations${place}`;
    this.showBest(result);
    this.showMemory(result?.match ?? null);
    this.details.checks.show(row?.hypothesis.findings, result?.source ?? "", row?.text ?? "");
    this.updateSubject(row?.text ?? "", reason);
  }

  openPhrase() {
    if (!this.phrase || this.busy) return;
    const { row, first, last } = this.phrase;
    this.choose(row);
    this.menu.open(row, this.model, first, row.linked.words.target[first], last);
  }

  /**
   * Set the subject of the other panels.
   * @param {string} target
   * @param {string} [reason] why there is no translation
   */
  updateSubject(target, reason) {
    const { row } = this;
    this.subject = row && target.trim() ? { model: this.model, source: row.result.source, target } : null;
    if (this.page.input === "translate") this.page.session.setSubject(this.subject, reason);
  }

  /** @param {Translated | null} result */
  showBest(result) {
    const all = result ? [result, ...result.alternatives.filter(({ text }) => text !== result.text)] : [];
    this.details.bestSection.hidden = all.length < 2;
    this.details.best.replaceChildren(...all.map((one, i) => hypothesisItem(
      one, i === 0, sureness(one), (button) => this.selectHypothesis(one, button), { lang: this.input.modelFacts?.target, best: i ? result?.text : undefined },
    )));
  }

  /** @param {import("./types.js").MemoryMatch | null} match */
  showMemory(match) {
    /** @type {Hypothesis[]} */
    const all = match ? [match, ...match.others.map((text) => ({ text }))] : [];
    this.out.memorySection.hidden = !match;
    this.out.memory.replaceChildren(...all.map((one, i) => (
      hypothesisItem(one, false, i ? "other translation" : "exact match", (button) => this.selectHypothesis(one, button), { lang: this.input.modelFacts?.target })
    )));
  }

  /**
   * Show another of the best translations, with the links from its trace.
   * @param {Hypothesis} one
   * @param {HTMLElement} button
   */
  async selectHypothesis(one, button) {
    const { row } = this;
    if (!row) return;
    const lists = [this.details.best, this.out.memory];
    for (const other of lists.flatMap((list) => [...list.querySelectorAll("button")])) other.setAttribute("aria-pressed", String(other === button));
    const { result } = row;
    /** @param {import("./linked_texts.js").Links} links */
    const show = (links) => {
      row.show(one, links);
      if (this.rows.length > 1) this.drawWhole();
      this.out.score.replaceChildren(...describeScore(one, ""));
      this.details.checks.show(one.findings, result.source, one.text);
    };
    this.updateSubject(one.text);
    if (one === result) return show({ soft: result.soft ?? null, hard: result.alignment ?? [] });
    show({ soft: null, hard: [] });
    try {
      const { matrix } = await (await this.page.session.current()).wordAlignment();
      if (button.getAttribute("aria-pressed") !== "true" || !button.isConnected || row !== this.row) return;
      const soft = Array.from({ length: matrix.rows }, (_, i) => ({
        first: 0, weights: [...matrix.values.subarray(i * matrix.columns, (i + 1) * matrix.columns)],
      }));
      /** @type {[number, number][]} */
      const hard = soft.map(({ weights }, target) => [weights.indexOf(Math.max(...weights)), target]);
      show({ soft, hard });
    } catch {
      // Without a trace, show the text without links.
    }
  }

  /**
   * Translate one sentence with a given beginning; the other sentences stay.
   * @param {SentenceRow} row
   * @param {string} prefix empty for the model's own translation
   * @param {number} word the word to focus
   */
  async continueFrom(row, prefix, word) {
    this.menu.close();
    if (!this.rows.includes(row)) return;
    this.notice.textContent = "";
    const request = new AbortController();
    this.request?.abort();
    this.request = request;
    this.setBusy(true);
    try {
      const alignments = this.input.modelFacts?.aligns !== false;
      const body = { model: this.model, text: row.result.source, nbest: NUM_BEST, alignments, matches: true, checks: true, ...(prefix ? { prefix } : {}) };
      const { translations: [found] } = await this.page.provider.translate(body, request.signal);
      if (request !== this.request) return;
      const { gap, unknown } = row.result;
      row.prefix = prefix;
      row.setResult({ ...found, gap, unknown });
      this.row = row;
      this.drawWhole();
      this.showDetails();
      row.linked.words.target[word]?.focus();
    } catch (error) {
      if (!isAbortError(error) && request === this.request) this.notice.textContent = `${messageOf(error)}.`;
    } finally {
      if (request === this.request) this.setBusy(false);
    }
  }

  save() {
    this.page.savedInputs.set("translate", { model: this.model, text: this.input.field.value });
  }

  /** Greet a first visitor with a tour and a translated example. */
  async greet() {
    const [example] = this.input.modelFacts?.examples ?? [];
    if (!example || !isFirstVisit()) return;
    this.input.field.value = example;
    this.input.changed();
    await this.translate();
    this.welcomePlace.replaceChildren(welcome([
      { text: "type or paste a text, or drop a file; it is translated as you type.", part: () => this.input.field },
      { text: "point at a word to see the words that it was read from; select it for alternatives.", part: () => this.out.place },
      { text: "look inside: the tabs at the top show every head of the model.", part: () => this.page.root.querySelector(".heed-tabs") },
    ]));
    if (this.row) playLinks(this.row.linked);
  }
}

/**
 * @param {Page} page
 * @param {ModelFacts[]} models
 * @param {import("./types.js").Start} start
 * @returns {Panel}
 */
export function panel(page, models, start) {
  const translate = new Translate(page, models);
  const text = page.savedInputs.get("translate")?.text ?? start.text;
  if (text) translate.input.setText(text);
  else translate.greet();
  let opened = false;
  return {
    name: "translate", title: "Translate", body: translate.body, hasInput: true, writes: true,
    show: () => {
      translate.restoreSubject();
      // A touch keyboard would cover the page.
      if (!opened && !window.matchMedia("(pointer: coarse)").matches) translate.input.field.focus({ preventScroll: true });
      opened = true;
    },
    setText: (text, before) => translate.input.setText(replaceSentence(translate.input.field.value, text, before)),
    // Each model makes its own translation.
    subjectFor: async (model, { source }) => {
      const { translations } = await page.provider.translate({ model, text: source, nbest: NUM_BEST, alignments: false });
      return { model, source, target: translations[0].text };
    },
  };
}
