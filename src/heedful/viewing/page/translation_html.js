// A translation as one HTML file without scripts: the words' confidence, and what each word was translated from.

import { unsureWords, wordProbabilities } from "./confidence.js";
import { download } from "./elements.js";
import { splitWords } from "./linked_texts.js";
import { formatWeight } from "./matrices.js";

/** @typedef {import("./sentence_row.js").SentenceRow} SentenceRow */
/** @typedef {{source?: string | null, target?: string | null, name?: string}} Languages */

// A source word with a smaller weight is not listed for a word.
const LISTED = 0.1;
const STYLE = `
  body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; font: 18px/1.6 Georgia, "Noto Serif", serif; color: #1d2426; background: #fff }
  h1 { font-size: 1.2rem } section { border-top: 1px solid #d9dedf; padding: .6rem 0 }
  p { margin: .3rem 0 } .source { font-size: .9em } .hint { font: 14px/1.5 system-ui, sans-serif; color: #5d686b }
  span { border-radius: 3px; padding: 0 1px } .unsure { background: #f6ddcd } .very-unsure { background: #eab893 }
  .translation span { cursor: help }`;

/**
 * @param {SentenceRow[]} rows
 * @param {Languages} languages
 * @returns {string}
 */
export function translationHtml(rows, { source, target, name }) {
  const sections = rows.map((row) => {
    const { unsure, very } = unsureWords(wordProbabilities(row.hypothesis));
    const about = aboutWords(row);
    const kind = (/** @type {number} */ i) => (very.includes(i) ? "very-unsure" : unsure.includes(i) ? "unsure" : "");
    const read = readWords(row);
    return `<section>
<p class="translation"${language(target)}>${spans(row.text, (i) => ({ class: kind(i), title: about[i] ?? "" }))}</p>
<p class="source"${language(source)}>${spans(row.result.source, (i) => ({ style: read ? `background: rgb(11 107 99 / ${(0.35 * read[i]).toFixed(3)})` : "" }))}</p>
</section>`;
  });
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Translation</title><style>${STYLE}
</style></head>
<body>
<h1>Translation${name ? ` by ${escapeHtml(name)}` : ""}</h1>
${sections.join("\n")}
<p class="hint">Words on orange: the model was unsure. Point at a word of the translation for its probability and the source words that it was read from. The greener a source word, the more the model read it for this sentence. Attention weights show where a model read, not why it decided.</p>
</body>
</html>
`;
}

/**
 * @param {SentenceRow[]} rows
 * @param {Languages} languages
 * @param {(text: string) => void} announce
 */
export function saveTranslation(rows, languages, announce) {
  download(new Blob([translationHtml(rows, languages)], { type: "text/html;charset=utf-8" }), "translation.html");
  announce("saved as HTML");
}

/**
 * For each word of the translation, its probability and the source words with the largest weights.
 * @param {SentenceRow} row
 */
function aboutWords(row) {
  const words = splitWords(row.result.source).map(({ word }) => word);
  const probabilities = wordProbabilities(row.hypothesis);
  return splitWords(row.text).map((_, i) => {
    const { first, weights } = row.links.soft?.[i] ?? { first: 0, weights: [] };
    const from = weights.map((weight, at) => ({ weight, word: words[first + at] })).filter(({ weight }) => weight >= LISTED)
      .sort((a, b) => b.weight - a.weight).map(({ weight, word }) => `${word} ${formatWeight(weight)}`);
    return [probabilities ? `probability ${probabilities[i].toFixed(2)}` : "", from.length ? `from ${from.join(", ")}` : ""].filter(Boolean).join("; ");
  });
}

/**
 * How much each source word was read, as a share of the one that was read most; null if it is not known.
 * @param {SentenceRow} row
 */
function readWords(row) {
  const { soft } = row.links;
  if (!soft?.length) return null;
  const totals = splitWords(row.result.source).map(() => 0);
  for (const { first, weights } of soft) weights.forEach((weight, i) => (totals[first + i] += weight));
  const most = Math.max(...totals, 1e-9);
  return totals.map((total) => total / most);
}

/**
 * A text whose words are spans.
 * @param {string} text
 * @param {(word: number) => Record<string, string>} attributes those that are empty are left out
 */
function spans(text, attributes) {
  return splitWords(text).map(({ word, before }, i) => {
    const given = Object.entries(attributes(i)).filter(([, value]) => value).map(([name, value]) => ` ${name}="${escapeHtml(value)}"`);
    return `${escapeHtml(before)}<span${given.join("")}>${escapeHtml(word)}</span>`;
  }).join("");
}

/** @param {string | null | undefined} code */
function language(code) {
  return ` dir="auto"${code ? ` lang="${escapeHtml(code)}"` : ""}`;
}

/** @param {string} text */
function escapeHtml(text) {
  return text.replace(/[&<>"]/g, (one) => `&#${one.charCodeAt(0)};`);
}
