// The Translate panel: translation while typing, word alignment, and alternative words.

import { selectField, element, messageOf, rovingTabindex, focusItem, isAbortError, debounce } from "./elements.js";
import { architectureName } from "./glossary.js";
import { formatSigned } from "./matrices.js";
import { Checks } from "./checks.js";
import { LinkedTexts, splitWords } from "./linked_texts.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").ModelFacts} ModelFacts */
/** @typedef {import("./types.js").Hypothesis} Hypothesis */
/** @typedef {import("./types.js").Translated} Translated */

const PAUSE = 350;
const NUM_BEST = 5;
// Maximum characters of a text with word alignment; for longer texts, the weights would take megabytes.
const MAX_LINKED = 5000;

class Translate {
  /** @param {Page} page @param {ModelFacts[]} models */
  constructor(page, models) {
    this.page = page;
    this.models = models;
    const before = page.savedInputs.get("translate");
    this.model = (models.find(({ name }) => name === before?.model) ?? models[0])?.name ?? "";
    this.prefix = "";
    /** @type {Translated | null} */
    this.result = null;
    /** @type {import("./session.js").Subject | null} */
    this.subject = null;
    /** @type {AbortController | null} */
    this.request = null;
    /** @type {HTMLElement | null} */
    this.menu = null;
    this.chooser = selectField("Model", models.map(({ name, source, target }) => ({
      value: name, text: source && target ? `${name} (${source} → ${target})` : name,
    })), this.model, (name) => this.setModel(name));
    const runLater = debounce(PAUSE, () => this.translate());
    this.input = element("textarea", {
      dir: "auto", rows: 3, spellcheck: "false", "aria-label": "Text to translate", placeholder: "Type a sentence…",
      oninput: () => {
        this.save();
        this.prefix = "";
        this.request?.abort();
        runLater();
      },
    });
    this.source = element("p", { class: "heed-text heed-source", dir: "auto", role: "group", "aria-label": "Source words" });
    this.target = element("p", { class: "heed-text heed-target", dir: "auto", role: "group", "aria-label": "Translation" });
    this.notice = element("p", { class: "heed-notice", role: "alert" });
    this.score = element("p", { class: "heed-detail" });
    this.resetButton = element("button", { type: "button", class: "heed-button", onclick: () => this.removePrefix() }, "Remove the chosen words");
    this.resetButton.hidden = true;
    this.best = element("ol", { class: "heed-best", "aria-label": "Best translations" });
    this.linked = new LinkedTexts({
      source: this.source, target: this.target, opened: (word, button) => this.openMenu(word, button),
    });
    this.checks = new Checks();
    this.memory = element("ol", { class: "heed-best", "aria-label": "Translations in the memory" });
    this.facts = element("p", { class: "heed-detail" });
    this.body = this.build();
    this.setFacts();
  }

  build() {
    this.output = element(
      "section", { class: "heed-output", "aria-label": "Translation" },
      element("h2", {}, "Translation"), this.target, this.score, this.resetButton,
    );
    this.memorySection = element("section", { class: "heed-memory" }, element("h2", {}, "Translation memory"), this.memory);
    this.sourceSection = element(
      "section", { class: "heed-source-words", "aria-label": "Linked words" }, element("h2", {}, "Linked words"), this.source,
      element("p", { class: "heed-hint" }, "Point at a word, or move to it with Tab and the arrow keys, to see the linked words. Select a word of the translation to see alternatives."),
    );
    this.bestSection = element("section", { class: "heed-others" }, element("h2", {}, "Best translations"), this.best);
    this.bestSection.hidden = this.sourceSection.hidden = this.memorySection.hidden = true;
    this.output.append(this.memorySection);
    return element(
      "div", { class: "heed-panel heed-translate" },
      element("div", { class: "heed-tools" }, this.chooser.field, this.facts),
      element(
        "div", { class: "heed-columns" },
        element("section", { class: "heed-input" }, element("h2", {}, "Source"), this.input), this.output,
      ),
      this.notice, element("div", { class: "heed-columns" }, element("div", {}, this.sourceSection, this.checks.section), this.bestSection),
    );
  }

  /** @param {string} name */
  setModel(name) {
    this.model = name;
    this.save();
    this.prefix = "";
    this.setFacts();
    this.translate();
  }

  /** The facts about the selected model, from the server. */
  get modelFacts() {
    return this.models.find(({ name }) => name === this.model);
  }

  setFacts() {
    const facts = this.modelFacts;
    for (const [part, language] of /** @type {const} */ ([[this.input, facts?.source], [this.source, facts?.source], [this.target, facts?.target]])) {
      part.lang = language ?? "";
    }
    this.facts.textContent = facts
      ? `${architectureName(facts.architecture)}, ${(facts.parameters / 1e6).toFixed(1)} M parameters${facts.aligns === false ? ", without word alignment" : ""}`
      : "";
  }

  removePrefix() {
    this.prefix = "";
    this.translate();
  }

  async translate() {
    const text = this.input.value;
    this.closeMenu();
    this.request?.abort();
    if (!text.trim()) return this.show(null);
    const request = new AbortController();
    this.request = request;
    this.setBusy(true);
    try {
      const aligns = this.modelFacts?.aligns !== false;
      const alignments = aligns && text.length <= MAX_LINKED;
      const body = {
        model: this.model, text, nbest: NUM_BEST, alignments, matches: true, checks: text.length <= MAX_LINKED,
        ...(this.prefix ? { prefix: this.prefix } : {}),
      };
      const { translations } = await this.page.provider.translate(body, request.signal);
      // Ignore the response to an earlier request.
      if (request !== this.request) return;
      this.notice.textContent = aligns && !alignments ? `Words are aligned only in texts of up to ${MAX_LINKED} characters.` : "";
      this.show(translations[0]);
    } catch (error) {
      if (isAbortError(error) || request !== this.request) return;
      this.show(null, `not translated: ${messageOf(error)}`);
      this.notice.textContent = `Not translated: ${messageOf(error)}.`.replace(/\.\.$/, ".");
    } finally {
      if (request === this.request) this.setBusy(false);
    }
  }

  /**
   * Dim the previous result while a request is running.
   * @param {boolean} busy
   */
  setBusy(busy) {
    for (const part of [this.output, this.sourceSection, this.bestSection, this.checks.section]) part?.setAttribute("aria-busy", String(busy));
  }

  /** @param {Translated | null} result @param {string} [reason] why there is none */
  show(result, reason) {
    this.result = result;
    const text = result?.text ?? "";
    this.showTexts(result?.source ?? "", text, { soft: result?.soft ?? null, hard: result?.alignment ?? [] });
    this.resetButton.hidden = !this.prefix || !result;
    this.score.textContent = result ? formatScore(result) : "";
    this.page.announce(text ? `Translation: ${text}${formatFindings(result)}` : "");
    this.showBest(result);
    this.showMemory(result?.match ?? null);
    this.checks.show(result?.findings, result?.source ?? "", text, this.linked);
    if (this.isSplit) this.score.textContent += `; translated in ${result?.parts} parts`;
    this.updateSubject(text, reason);
  }

  /** Whether the text was translated in several parts, so that there is no single trace of it. */
  get isSplit() {
    return (this.result?.parts ?? 1) > 1;
  }

  /** When the panel is opened, show its text again, unless a saved trace is selected. */
  restoreSubject() {
    const now = this.page.session.subject;
    if (this.subject && !(now && "trace" in now)) this.page.session.setSubject(this.subject);
  }

  /**
   * Set the subject of the other panels.
   * @param {string} target
   * @param {string} [reason] why there is no translation
   */
  updateSubject(target, reason) {
    const { result, isSplit } = this;
    this.subject = result && target.trim() && !isSplit ? { model: this.model, source: result.source, target } : null;
    this.page.session.setSubject(
      this.subject,
      isSplit ? "this text is translated in parts; to see attention, translate one of its sentences" : reason,
    );
  }

  /** @param {string} source @param {string} target @param {import("./linked_texts.js").Links} links */
  showTexts(source, target, links) {
    if (this.sourceSection) this.sourceSection.hidden = !source;
    this.linked.show(source, target, links, this.prefix.length);
  }

  /** @param {Translated | null} result */
  showBest(result) {
    const all = result ? [result, ...result.alternatives.filter(({ text }) => text !== result.text)] : [];
    if (this.bestSection) this.bestSection.hidden = all.length < 2;
    this.best.replaceChildren(...all.map((one, i) => (
      this.choice(one, i === 0, element("small", { title: "score" }, formatSigned(one.score ?? 0, 2)))
    )));
  }

  /** @param {import("./types.js").MemoryMatch | null} match */
  showMemory(match) {
    /** @type {Hypothesis[]} */
    const all = match ? [match, ...match.others.map((text) => ({ text }))] : [];
    if (this.memorySection) this.memorySection.hidden = !match;
    this.memory.replaceChildren(...all.map((one, i) => (
      this.choice(one, false, element("small", {}, i ? "other translation" : "exact match"))
    )));
  }

  /**
   * An item of a list of translations, which shows the translation when it is selected.
   * @param {Hypothesis} one
   * @param {boolean} isShown
   * @param {HTMLElement} note
   */
  choice(one, isShown, note) {
    /** @type {HTMLButtonElement} */
    const button = element("button", {
      type: "button", class: "heed-hypothesis", "aria-pressed": String(isShown), onclick: () => this.selectHypothesis(one, button),
    }, element("span", { dir: "auto" }, one.text), note);
    return element("li", {}, button);
  }

  /**
   * Show another of the best translations, with the alignment from its trace.
   * @param {Hypothesis} one
   * @param {HTMLElement} button
   */
  async selectHypothesis(one, button) {
    const { result } = this;
    if (!result) return;
    const lists = [this.best, this.memory];
    for (const other of lists.flatMap((list) => [...list.querySelectorAll("button")])) other.setAttribute("aria-pressed", String(other === button));
    this.score.textContent = formatScore(one);
    this.updateSubject(one.text);
    /** @param {import("./linked_texts.js").Links} links */
    const show = (links) => {
      this.showTexts(result.source, one.text, links);
      this.checks.show(one.findings, result.source, one.text, this.linked);
    };
    if (one === result) return show({ soft: result.soft ?? null, hard: result.alignment ?? [] });
    show({ soft: null, hard: [] });
    if (this.isSplit) return;
    try {
      const { matrix } = await (await this.page.session.current()).wordAlignment();
      if (button.getAttribute("aria-pressed") !== "true") return;
      const soft = Array.from({ length: matrix.rows }, (_, row) => ({
        first: 0, weights: [...matrix.values.subarray(row * matrix.columns, (row + 1) * matrix.columns)],
      }));
      /** @type {[number, number][]} */
      const hard = soft.map(({ weights }, target) => [weights.indexOf(Math.max(...weights)), target]);
      show({ soft, hard });
    } catch {
      // Without a trace, show the text without alignment.
    }
  }

  /** @param {number} word @param {HTMLElement} button */
  async openMenu(word, button) {
    this.closeMenu();
    const { result } = this;
    const text = this.target.textContent ?? "";
    const at = splitWords(text)[word];
    if (!result || !at) return;
    const prefix = text.slice(0, at.start);
    const menu = element("div", { class: "heed-menu", role: "menu", "aria-label": `Alternatives for ${at.word}` }, "…");
    this.menu = menu;
    this.linked.pin(word);
    button.setAttribute("aria-expanded", "true");
    if (this.isSplit) menu.textContent = "This text was translated in parts; translate one of its sentences to see alternatives.";
    positionMenu(menu, button, this.body);
    // Focus the menu itself, so that Escape closes it while it is loading.
    menu.tabIndex = -1;
    menu.focus();
    menu.addEventListener("keydown", (event) => {
      if (event.key === "Escape" || event.key === "Tab") {
        this.closeMenu();
        button.focus();
        if (event.key === "Escape") event.preventDefault();
      }
    });
    if (this.isSplit) return this.page.announce(menu.textContent ?? "");
    try {
      const { alternatives } = await this.page.provider.alternatives({ model: this.model, text: result.source, prefix, count: 6 });
      if (this.menu !== menu) return;
      menu.replaceChildren(...alternatives.map((one) => this.option(one, prefix, word)));
      if (!alternatives.length) menu.textContent = "No alternatives.";
      positionMenu(menu, button, this.body);
      rovingTabindex(menu, "button", () => 1);
      focusItem([...menu.querySelectorAll("button")], 0);
    } catch (error) {
      if (this.menu === menu) menu.textContent = messageOf(error);
    }
  }

  /** @param {import("./types.js").Alternative} one @param {string} prefix @param {number} word index of the word */
  option(one, prefix, word) {
    const share = `${(one.probability * 100).toFixed(one.probability < 0.1 ? 1 : 0)} %`;
    const bar = element("i", { class: "heed-share", "aria-hidden": "true" });
    bar.style.inlineSize = `${Math.min(one.probability, 1) * 100}%`;
    return element("button", {
      type: "button", role: "menuitem", tabindex: -1, title: one.text,
      onclick: async () => {
        this.prefix = prefix + one.word;
        await this.translate();
        this.linked.buttons.target[word]?.focus();
      },
    }, bar, element("span", { dir: "auto" }, one.word), element("small", {}, share));
  }

  closeMenu() {
    if (this.menu) this.linked.pin(-1);
    this.menu?.remove();
    this.menu = null;
    for (const button of this.target.querySelectorAll("[aria-expanded]")) button.removeAttribute("aria-expanded");
  }

  save() {
    this.page.savedInputs.set("translate", { model: this.model, text: this.input.value });
  }

  /** @param {string} text */
  setText(text) {
    this.input.value = text;
    this.translate();
  }
}

/** @param {Hypothesis} one */
function formatScore(one) {
  if (one.score === undefined || one.log_probability === undefined) return "from the translation memory";
  return `score ${formatSigned(one.score, 2)}, log-probability ${formatSigned(one.log_probability, 2)}`;
}

/**
 * The number of findings and whether there is a match in the memory, for screen readers.
 * @param {Translated | null} result
 */
function formatFindings(result) {
  const count = result?.findings?.length ?? 0;
  const findings = count ? `; the checks found ${count} ${count > 1 ? "problems" : "problem"}` : "";
  return `${findings}${result?.match ? "; there is an exact match in the translation memory" : ""}`;
}

/**
 * Place the menu below a word, within the panel.
 * @param {HTMLElement} menu
 * @param {HTMLElement} word
 * @param {HTMLElement} panel
 */
function positionMenu(menu, word, panel) {
  panel.append(menu);
  const [box, own] = [panel.getBoundingClientRect(), word.getBoundingClientRect()];
  menu.style.insetBlockStart = `${own.bottom - box.top + 6}px`;
  menu.style.left = `${Math.max(0, Math.min(own.left - box.left, box.width - menu.offsetWidth))}px`;
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
  if (text) translate.setText(text);
  page.root.addEventListener("pointerdown", (event) => {
    if (translate.menu && !translate.menu.contains(/** @type {Node} */ (event.target))) translate.closeMenu();
  });
  return {
    name: "translate", title: "Translate", body: translate.body, show: () => translate.restoreSubject(), hasInput: true,
    // Each model makes its own translation.
    subjectFor: async (model, { source }) => {
      const { translations } = await page.provider.translate({ model, text: source, nbest: NUM_BEST, alignments: false });
      return { model, source, target: translations[0].text };
    },
  };
}

