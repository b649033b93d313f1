// The menu of alternatives for a word of a translation.

import { percent } from "./bars.js";
import { element, messageOf, rovingTabindex, focusItem } from "./elements.js";
import { splitWords } from "./linked_texts.js";
import { phraseVariant } from "./phrase.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./sentence_row.js").SentenceRow} SentenceRow */

const COUNT = 6;

export class AlternativesMenu {
  /**
   * @param {Page} page
   * @param {HTMLElement} panel the menu is placed within it
   * @param {(row: SentenceRow, prefix: string, word: number) => void} chosen called with the beginning of the translation
   */
  constructor(page, panel, chosen) {
    this.page = page;
    this.panel = panel;
    this.chosen = chosen;
    /** @type {HTMLElement | null} */
    this.menu = null;
    /** @type {SentenceRow | null} */
    this.row = null;
    page.root.addEventListener("pointerdown", (event) => {
      if (this.menu && !this.menu.contains(/** @type {Node} */ (event.target))) this.close();
    });
  }

  /**
   * @param {SentenceRow} row
   * @param {string} model
   * @param {number} word
   * @param {HTMLElement} span
   * @param {number} [last] the last word, for the alternatives of a phrase
   */
  async open(row, model, word, span, last = word) {
    this.close();
    const at = splitWords(row.text)[word];
    if (!at) return;
    const prefix = row.text.slice(0, at.start);
    const menu = element("div", { class: "heed-menu", role: "menu", "aria-label": `Alternatives for ${row.text.slice(at.start, endOf(row.text, last))}` }, "…");
    this.menu = menu;
    this.row = row;
    row.linked.pin(word);
    span.setAttribute("aria-expanded", "true");
    place(menu, span, this.panel);
    // Focus the menu itself, so that Escape closes it while it is loading.
    menu.tabIndex = -1;
    menu.focus();
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" && event.key !== "Tab") return;
      this.close();
      span.focus();
      if (event.key === "Escape") event.preventDefault();
    });
    try {
      const { alternatives } = await this.page.provider.alternatives({ model, text: row.result.source, prefix, count: COUNT });
      if (this.menu !== menu) return;
      const texts = alternatives.map((one) => (last > word ? phraseVariant(row.text, one.text, word, last) : one.word));
      const different = alternatives.filter((_, i) => texts[i] && texts.indexOf(texts[i]) === i);
      menu.replaceChildren(...different.map((one) => this.option(row, one, prefix, texts[alternatives.indexOf(one)], word)));
      if (!different.length) menu.textContent = "No alternatives.";
      place(menu, span, this.panel);
      rovingTabindex(menu, "button", () => 1);
      focusItem([...menu.querySelectorAll("button")], 0);
    } catch (error) {
      if (this.menu === menu) menu.textContent = messageOf(error);
    }
  }

  /** @param {SentenceRow} row @param {import("./types.js").Alternative} one @param {string} prefix @param {string} text @param {number} word */
  option(row, one, prefix, text, word) {
    const bar = element("i", { class: "heed-share", "aria-hidden": "true" });
    bar.style.inlineSize = `${Math.min(one.probability, 1) * 100}%`;
    return element("button", {
      type: "button", role: "menuitem", tabindex: -1, title: one.text, onclick: () => this.chosen(row, prefix + text, word),
    }, bar, element("span", { dir: "auto" }, text), element("small", {}, percent(one.probability)));
  }

  close() {
    if (!this.menu || !this.row) return;
    this.row.linked.pin(-1);
    this.menu.remove();
    this.menu = null;
    for (const span of this.row.target.querySelectorAll("[aria-expanded]")) span.removeAttribute("aria-expanded");
  }
}

/**
 * Where a word of a text ends.
 * @param {string} text
 * @param {number} word
 */
function endOf(text, word) {
  const at = splitWords(text)[word];
  return at ? at.start + at.word.length : text.length;
}

/**
 * Place the menu below a word, within the panel.
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
