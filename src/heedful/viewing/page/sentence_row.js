// One sentence and its translation: linked words, confidence, warnings, and the hypothesis that is shown.

import { element } from "./elements.js";
import { hardlyRead, unsureWords, warnings, wordProbabilities } from "./confidence.js";
import { LinkedTexts } from "./linked_texts.js";
import { wordsOf } from "./checks.js";

/** @typedef {import("./types.js").Hypothesis} Hypothesis */
/** @typedef {import("./types.js").Translated} Translated */
/** @typedef {import("./linked_texts.js").Links} Links */

export class SentenceRow {
  /**
   * @param {Translated} result
   * @param {{source?: string | null, target?: string | null}} languages
   * @param {(row: SentenceRow, word: number, span: HTMLElement) => void} opened called for a selected word of the translation
   */
  constructor(result, languages, opened) {
    this.result = result;
    /** The chosen beginning of the translation. */
    this.prefix = "";
    /** @type {Hypothesis} */
    this.hypothesis = result;
    /** @type {Links} the links of the hypothesis */
    this.links = { soft: null, hard: /** @type {[number, number][]} */ ([]) };
    /** Which marks its words have. */
    this.marked = { unsure: false, unread: false };
    this.source = element("p", { class: "heed-text heed-source", dir: "auto", lang: languages.source, role: "group", "aria-label": "Source words" });
    this.target = element("p", { class: "heed-text heed-target", dir: "auto", lang: languages.target, role: "group", "aria-label": "Translation" });
    this.warnings = element("ul", { class: "heed-warnings", "aria-label": "Warnings" });
    this.linked = new LinkedTexts({ source: this.source, target: this.target, opened: (word, span) => opened(this, word, span) });
    this.setResult(result);
  }

  /** The shown translation. */
  get text() {
    return this.hypothesis.text;
  }

  /** @param {Translated} result */
  setResult(result) {
    this.result = result;
    this.show(result, { soft: result.soft ?? null, hard: result.alignment ?? [] });
    const found = warnings(result);
    this.warnings.hidden = !found.length;
    this.warnings.replaceChildren(...found.map((text) => element("li", {}, text)));
  }

  /**
   * Show one of the hypotheses, with its links.
   * @param {Hypothesis} one
   * @param {Links} links
   */
  show(one, links) {
    const { source } = this.result;
    this.hypothesis = one;
    this.links = links;
    this.linked.show(source, one.text, links, this.prefix.length);
    const probabilities = wordProbabilities(one);
    const { unsure, very } = unsureWords(probabilities);
    this.linked.flag("target", unsure, "heed-unsure");
    this.linked.flag("target", very, "heed-very-unsure");
    probabilities?.forEach((probability, i) => (this.linked.words.target[i].title = `probability ${probability.toFixed(2)}`));
    const unread = hardlyRead(source, links.soft);
    this.linked.flag("source", unread, "heed-unread");
    for (const i of unread) this.linked.words.source[i].title = "hardly read";
    this.marked = { unsure: unsure.length + very.length > 0, unread: unread.length > 0 };
    const findings = one.findings ?? [];
    this.linked.flag("source", wordsOf(source, findings.flatMap((each) => each.source)));
    this.linked.flag("target", wordsOf(one.text, findings.flatMap((each) => each.target)));
  }
}
