// How sure a model was of a translation: in words, for each word, and what a reader should doubt.

import { splitWords } from "./linked_texts.js";
import { joinWords } from "./session.js";

/** @typedef {import("./types.js").Translated} Translated */

// Below these probabilities, a word is marked as unsure and as very unsure.
const UNSURE = 0.5;
const VERY_UNSURE = 0.25;
// A source word is hardly read if it gets less than this share of the weight that each word would get on average.
const HARDLY = 0.2;
const UNKNOWN = 0.4;
const SHORT = 0.4;
const LONG_ENOUGH = 40;
// A character of these scripts stands for several of an alphabet.
const DENSE = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]/u;

/**
 * The probability of each word of a translation: that of its least probable token. Null if their numbers differ.
 * @param {{text: string, tokens?: string[], token_scores?: number[]}} result
 * @returns {number[] | null}
 */
export function wordProbabilities({ text, tokens, token_scores: scores }) {
  if (!tokens?.length || tokens.length !== scores?.length) return null;
  let word = -1;
  const words = tokens.map((token) => {
    if (/^<\/?s>$/.test(token)) return -1;
    if (word < 0 || token.startsWith("▁")) word += 1;
    return word;
  });
  // A placeholder is another text as a token, but one word as well.
  const count = splitWords(text).length;
  if (joinWords(tokens, words).filter(Boolean).length !== count || word + 1 !== count) return null;
  const lowest = new Array(count).fill(0);
  words.forEach((own, i) => {
    if (own >= 0) lowest[own] = Math.min(lowest[own], scores[i]);
  });
  return lowest.map(Math.exp);
}

/**
 * The words below a probability, by class.
 * @param {number[] | null} probabilities
 */
export function unsureWords(probabilities) {
  const places = (probabilities ?? []).map((probability, i) => ({ probability, i }));
  return {
    unsure: places.filter(({ probability }) => probability < UNSURE && probability >= VERY_UNSURE).map(({ i }) => i),
    very: places.filter(({ probability }) => probability < VERY_UNSURE).map(({ i }) => i),
  };
}

/**
 * The words of the source that the translation hardly attends to; marks of punctuation do not count.
 * @param {string} source
 * @param {import("./types.js").SoftRow[] | null | undefined} soft
 * @returns {number[]}
 */
export function hardlyRead(source, soft) {
  if (!soft?.length) return [];
  const words = splitWords(source);
  const totals = new Array(words.length).fill(0);
  for (const { first, weights } of soft) weights.forEach((weight, i) => (totals[first + i] += weight));
  const least = (HARDLY * totals.reduce((sum, one) => sum + one, 0)) / words.length;
  return words.flatMap(({ word }, i) => (totals[i] < least && /[\p{L}\p{N}]/u.test(word) ? [i] : []));
}

/**
 * In words: the geometric mean of the probabilities of the tokens.
 * @param {{log_probability?: number, tokens?: string[]}} result
 * @returns {"Sure" | "Fairly sure" | "Unsure" | ""}
 */
export function sureness({ log_probability: total, tokens }) {
  if (total === undefined || !tokens) return "";
  const mean = Math.exp(total / (tokens.length + 1));
  return mean >= 0.8 ? "Sure" : mean >= 0.5 ? "Fairly sure" : "Unsure";
}

/**
 * What a reader should know before using a translation.
 * @param {Translated} result
 * @returns {string[]}
 */
export function warnings(result) {
  const found = [];
  const { source, text, unknown = 0 } = result;
  if (unknown >= UNKNOWN) {
    found.push(`The model does not know this script: it reads ${Math.round(unknown * 100)} % of the source byte by byte. Do not rely on this translation.`);
  }
  const short = text.trim().length < SHORT * source.trim().length && source.trim().length >= LONG_ENOUGH;
  if (short && !DENSE.test(text)) {
    const [before, after] = [source, text].map((one) => splitWords(one).length);
    found.push(`The translation is much shorter than the source (${before} words became ${after}). Parts may be missing.`);
  }
  if (result.at_limit) found.push("The translation stopped at the token limit, and may be incomplete.");
  return found;
}

/**
 * The words of a text that another one does not have, by the longest common subsequence.
 * @param {string} text
 * @param {string} other
 * @returns {boolean[]} for each word of `text`, whether it differs
 */
export function differences(text, other) {
  const [own, others] = [text, other].map((one) => splitWords(one).map(({ word }) => word));
  return differing(own, others);
}

/**
 * The entries of a list that are not in the longest common subsequence with another list.
 * @param {string[]} own
 * @param {string[]} others
 * @returns {boolean[]} for each entry of `own`, whether it differs
 */
export function differing(own, others) {
  const lengths = Array.from({ length: own.length + 1 }, () => new Uint16Array(others.length + 1));
  for (let i = own.length - 1; i >= 0; i--) {
    for (let j = others.length - 1; j >= 0; j--) {
      lengths[i][j] = own[i] === others[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const differs = new Array(own.length).fill(true);
  for (let i = 0, j = 0; i < own.length && j < others.length;) {
    if (own[i] === others[j]) {
      differs[i] = false;
      i += 1;
      j += 1;
    } else if (lengths[i + 1][j] >= lengths[i][j + 1]) i += 1;
    else j += 1;
  }
  return differs;
}
