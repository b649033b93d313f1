// The translate panel: translation while typing, word links, and alternative words.

import { choice, element, messageOf, roving, focusItem, wasAborted, whenQuiet } from "./elements.js";
import { signed } from "./matrices.js";
import { LinkedTexts, wordsIn } from "./words.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").ModelFacts} ModelFacts */
/** @typedef {import("./types.js").Hypothesis} Hypothesis */
/** @typedef {import("./types.js").Translated} Translated */

const PAUSE = 350;
const BEST = 5;
// Maximum characters of a text with word links; weights of longer texts would take megabytes.
const LINKED = 5000;

class Translate {
  /** @param {Page} page @param {ModelFacts[]} models */
  constructor(page, models) {
    this.page = page;
    this.models = models;
    const before = page.kept.of("translate");
    this.model = (models.find(({ name }) => name === before?.model) ?? models[0])?.name ?? "";
    this.prefix = "";
    /** @type {Translated | null} */
    this.result = null;
    /** @type {import("./session.js").Subject | null} */
    this.subject = null;
    /** @type {AbortController | null} */
    this.asking = null;
    /** @type {HTMLElement | null} */
    this.menu = null;
    this.chooser = choice("Model", models.map(({ name, source, target }) => ({
      value: name, text: source && target ? `${name} (${source} → ${target})` : name,
    })), this.model, (name) => this.setModel(name));
    const soon = whenQuiet(PAUSE, () => this.translate());
    this.input = element("textarea", {
      dir: "auto", rows: 3, spellcheck: "false", "aria-label": "Text to translate", placeholder: "Type a sentence…",
      oninput: () => {
        this.keep();
        this.prefix = "";
        this.asking?.abort();
        soon();
      },
    });
    this.source = element("p", { class: "heed-text heed-source", dir: "auto", role: "group", "aria-label": "Source words" });
    this.target = element("p", { class: "heed-text heed-target", dir: "auto", role: "group", "aria-label": "Translation" });
    this.notice = element("p", { class: "heed-notice", role: "alert" });
    this.score = element("p", { class: "heed-where" });
    this.free = element("button", { type: "button", class: "heed-quiet", onclick: () => this.release() }, "Remove the chosen words");
    this.free.hidden = true;
    this.best = element("ol", { class: "heed-best", "aria-label": "Best translations" });
    this.linked = new LinkedTexts({
      source: this.source, target: this.target, opened: (word, button) => this.openMenu(word, button),
    });
    this.facts = element("p", { class: "heed-where" });
    this.body = this.build();
    this.setFacts();
  }

  build() {
    this.output = element(
      "section", { class: "heed-output", "aria-label": "Translation" },
      element("h2", {}, "Translation"), this.target, this.score, this.free,
    );
    this.echo = element(
      "section", { class: "heed-echo", "aria-label": "Source" }, element("h2", {}, "Source"), this.source,
      element("p", { class: "heed-hint" }, "Point at a word, or move to it with Tab and the arrow keys, to see its partners. Choose a word of the translation to see what else could stand there."),
    );
    this.others = element("section", { class: "heed-others" }, element("h2", {}, "Best translations"), this.best);
    this.others.hidden = this.echo.hidden = true;
    return element(
      "div", { class: "heed-panel heed-translate" },
      element("div", { class: "heed-tools" }, this.chooser.field, this.facts),
      element(
        "div", { class: "heed-two" },
        element("section", { class: "heed-input" }, element("h2", {}, "Text"), this.input), this.output,
      ),
      this.notice, element("div", { class: "heed-two" }, this.echo, this.others),
    );
  }

  /** @param {string} name */
  setModel(name) {
    this.model = name;
    this.keep();
    this.prefix = "";
    this.setFacts();
    this.translate();
  }

  /** The server's description of the chosen model. */
  get known() {
    return this.models.find(({ name }) => name === this.model);
  }

  setFacts() {
    const facts = this.known;
    this.facts.textContent = facts
      ? `${facts.architecture}, ${(facts.parameters / 1e6).toFixed(1)} M parameters${facts.aligns === false ? ", without word alignment" : ""}`
      : "";
  }

  release() {
    this.prefix = "";
    this.translate();
  }

  async translate() {
    const text = this.input.value;
    this.closeMenu();
    this.asking?.abort();
    if (!text.trim()) return this.show(null);
    const asking = new AbortController();
    this.asking = asking;
    this.setBusy(true);
    try {
      const aligns = this.known?.aligns !== false;
      const alignments = aligns && text.length <= LINKED;
      const body = { model: this.model, text, nbest: BEST, alignments, ...(this.prefix ? { prefix: this.prefix } : {}) };
      const { translations } = await this.page.provider.translate(body, asking.signal);
      // Use the response to the last request only.
      if (asking !== this.asking) return;
      this.notice.textContent = aligns && !alignments ? `Words are linked in texts of up to ${LINKED} characters.` : "";
      this.show(translations[0]);
    } catch (error) {
      if (wasAborted(error) || asking !== this.asking) return;
      this.show(null);
      this.notice.textContent = `Not translated: ${messageOf(error)}.`.replace(/\.\.$/, ".");
    } finally {
      if (asking === this.asking) this.setBusy(false);
    }
  }

  /**
   * Dims the previous translation while the next one is computed.
   * @param {boolean} busy
   */
  setBusy(busy) {
    for (const part of [this.output, this.echo, this.others]) part?.setAttribute("aria-busy", String(busy));
  }

  /** @param {Translated | null} result */
  show(result) {
    this.result = result;
    const text = result?.text ?? "";
    this.showTexts(result?.source ?? "", text, { soft: result?.soft ?? null, hard: result?.alignment ?? [] });
    this.free.hidden = !this.prefix || !result;
    this.score.textContent = result ? scored(result) : "";
    this.page.announce(text ? `Translation: ${text}` : "");
    this.showBest(result);
    if (this.parted) this.score.textContent += `; translated in ${result?.parts} parts`;
    this.look(text);
  }

  /** Whether what is shown was read and written in several sequences, so that no one trace holds it. */
  get parted() {
    return (this.result?.parts ?? 1) > 1;
  }

  /** The panel was opened: its text becomes the subject again, unless a saved trace is. */
  again() {
    const now = this.page.session.subject;
    if (this.subject && !(now && "trace" in now)) this.page.session.look(this.subject);
  }

  /**
   * Sets the subject of the other panels.
   * @param {string} target
   */
  look(target) {
    const { result, parted } = this;
    this.subject = result && target.trim() && !parted ? { model: this.model, source: result.source, target } : null;
    this.page.session.look(
      this.subject,
      parted ? "this text is translated in parts; to see attention, translate one of its sentences" : undefined,
    );
  }

  /** @param {string} source @param {string} target @param {import("./words.js").Links} links */
  showTexts(source, target, links) {
    if (this.echo) this.echo.hidden = !source;
    this.linked.show(source, target, links, this.prefix.length);
  }

  /** @param {Translated | null} result */
  showBest(result) {
    const all = result ? [result, ...result.alternatives.filter(({ text }) => text !== result.text)] : [];
    if (this.others) this.others.hidden = all.length < 2;
    this.best.replaceChildren(...all.map((one, i) => {
      /** @type {HTMLButtonElement} */
      const button = element("button", {
        type: "button", class: "heed-hypothesis", "aria-pressed": String(i === 0), onclick: () => this.take(one, button),
      }, element("span", { dir: "auto" }, one.text), element("small", { title: "score" }, signed(one.score, 2)));
      return element("li", {}, button);
    }));
  }

  /**
   * Shows another of the best translations, with links from its own trace.
   * @param {Hypothesis} one
   * @param {HTMLElement} button
   */
  async take(one, button) {
    const { result } = this;
    if (!result) return;
    for (const other of this.best.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
    this.score.textContent = scored(one);
    this.look(one.text);
    if (one === result) return this.showTexts(result.source, result.text, { soft: result.soft ?? null, hard: result.alignment ?? [] });
    this.showTexts(result.source, one.text, { soft: null, hard: [] });
    if (this.parted) return;
    try {
      const { matrix } = await (await this.page.session.current()).wordAlignment();
      if (button.getAttribute("aria-pressed") !== "true") return;
      const soft = Array.from({ length: matrix.rows }, (_, row) => ({
        first: 0, weights: [...matrix.values.subarray(row * matrix.columns, (row + 1) * matrix.columns)],
      }));
      /** @type {[number, number][]} */
      const hard = soft.map(({ weights }, target) => [weights.indexOf(Math.max(...weights)), target]);
      this.showTexts(result.source, one.text, { soft, hard });
    } catch {
      // Without a trace, the text is shown without links.
    }
  }

  /** @param {number} word @param {HTMLElement} button */
  async openMenu(word, button) {
    this.closeMenu();
    const { result } = this;
    const text = this.target.textContent ?? "";
    const at = wordsIn(text)[word];
    if (!result || !at) return;
    const prefix = text.slice(0, at.start);
    const menu = element("div", { class: "heed-menu", role: "menu", "aria-label": `Other words for ${at.word}` }, "…");
    this.menu = menu;
    this.linked.hold(word);
    button.setAttribute("aria-expanded", "true");
    if (this.parted) menu.textContent = "This text is translated in parts; for other words, translate one of its sentences.";
    place(menu, button, this.body);
    // Escape must close the menu even if it has no items.
    menu.tabIndex = -1;
    menu.focus();
    menu.addEventListener("keydown", (event) => {
      if (event.key === "Escape" || event.key === "Tab") {
        this.closeMenu();
        button.focus();
        if (event.key === "Escape") event.preventDefault();
      }
    });
    if (this.parted) return this.page.announce(menu.textContent ?? "");
    try {
      const { alternatives } = await this.page.provider.alternatives({ model: this.model, text: result.source, prefix, count: 6 });
      if (this.menu !== menu) return;
      menu.replaceChildren(...alternatives.map((one) => this.option(one, prefix, word)));
      if (!alternatives.length) menu.textContent = "No alternatives.";
      place(menu, button, this.body);
      roving(menu, "button", () => 1);
      focusItem([...menu.querySelectorAll("button")], 0);
    } catch (error) {
      if (this.menu === menu) menu.textContent = messageOf(error);
    }
  }

  /** @param {import("./types.js").Choice} one @param {string} prefix @param {number} word its place */
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
    if (this.menu) this.linked.hold(-1);
    this.menu?.remove();
    this.menu = null;
    for (const button of this.target.querySelectorAll("[aria-expanded]")) button.removeAttribute("aria-expanded");
  }

  keep() {
    this.page.kept.put("translate", { model: this.model, text: this.input.value });
  }

  /** @param {string} text */
  start(text) {
    this.input.value = text;
    this.translate();
  }
}

/** @param {Hypothesis} one */
function scored(one) {
  return `score ${signed(one.score, 2)}, log-probability ${signed(one.log_probability, 2)}`;
}

/**
 * Positions the menu below a word and within the panel.
 * @param {HTMLElement} menu
 * @param {HTMLElement} word
 * @param {HTMLElement} panel
 */
function place(menu, word, panel) {
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
  const text = page.kept.of("translate")?.text ?? start.text;
  if (text) translate.start(text);
  page.root.addEventListener("pointerdown", (event) => {
    if (translate.menu && !translate.menu.contains(/** @type {Node} */ (event.target))) translate.closeMenu();
  });
  return {
    name: "translate", title: "Translate", body: translate.body, show: () => translate.again(), types: true,
    // Another model has its own translation.
    through: async (model, { source }) => {
      const { translations } = await page.provider.translate({ model, text: source, nbest: BEST, alignments: false });
      return { model, source, target: translations[0].text };
    },
  };
}

