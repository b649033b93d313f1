// The subject that the panels show (a text and a model, or a trace), loaded once for all panels.

import { poolByWord, headMatrix, meanMatrix, sliceRows } from "./matrices.js";

/** @typedef {import("./types.js").Provider} Provider */
/** @typedef {import("./types.js").Summary} Summary */
/** @typedef {import("./types.js").MapFacts} MapFacts */
/** @typedef {import("./types.js").Matrix} Matrix */

/** @typedef {{model: string, source: string, target?: string, begins?: boolean, latest?: boolean, gradients?: boolean}
  | {model: string, input: unknown, gradients?: boolean} | {trace: string}} Subject */

/** The message for traces without attention weights. */
export const NO_ATTENTION = "this model has no attention, so there are no heads or weights to show";

/** A trace whose maps are loaded on demand. */
export class LoadedTrace {
  /**
   * @param {Provider} provider
   * @param {Subject} subject
   * @param {Summary} summary
   */
  constructor(provider, subject, summary) {
    this.provider = provider;
    this.subject = subject;
    this.summary = summary;
    /** @type {Map<number, Promise<Uint8Array>>} */
    this.bytes = new Map();
  }

  /**
   * @param {number} map
   * @returns {Promise<Uint8Array>}
   */
  bytesOf(map) {
    let pending = this.bytes.get(map);
    if (!pending) {
      pending = this.provider.attention({ ...this.subject, map });
      // After a failure, the next call tries again.
      pending.catch(() => this.bytes.delete(map));
      this.bytes.set(map, pending);
    }
    return pending;
  }

  /**
   * @param {number} map
   * @param {number} head
   * @returns {Promise<Matrix>}
   */
  async head(map, head) {
    return headMatrix(await this.bytesOf(map), this.summary.maps[map], head);
  }

  /** @param {number} map */
  queryLabels(map) {
    const facts = this.summary.maps[map];
    if (facts.written) return this.summary.decided_labels ?? this.summary.decided;
    return this.summary.labels[facts.query_axis];
  }

  /**
   * The labels of the rows of a map: queries, or queries at steps.
   * @param {number} map
   */
  rowLabels(map) {
    const queries = this.queryLabels(map);
    const steps = this.stepLabels(map);
    if (!steps) return queries;
    return steps.flatMap((step) => (queries.length > 1 ? queries.map((query) => `${step} · ${query}`) : [step]));
  }

  /**
   * The words of the queries and keys of a map; −1 for a label of no word.
   * @param {number} map
   * @param {number} [shift] the number of first rows that are left out
   * @returns {{rowWords: number[], columnWords: number[]}}
   */
  wordsOf(map, shift = 0) {
    const { query_axis: query, key_axis: key, step_axis: step, queries, written } = this.summary.maps[map];
    const { words } = this.summary;
    const fed = words[query] ?? [];
    // The word of an output token is that of the input token of the next step.
    const before = query === key ? 0 : shift || (written ? 1 : 0);
    const rows = step && queries > 1 ? this.queryLabels(map) : this.rowLabels(map).slice(shift);
    return { rowWords: rows.map((_, row) => fed[row + before] ?? -1), columnWords: words[key] ?? [] };
  }

  /** @param {number} map */
  stepLabels(map) {
    const { step_axis: axis } = this.summary.maps[map];
    return axis ? this.summary.labels[axis] : null;
  }

  /** @param {number} map */
  columnLabels(map) {
    return this.summary.labels[this.summary.maps[map].key_axis];
  }

  /** The source and output texts, joined from their tokens. */
  get text() {
    const { axes, decided } = this.summary;
    return { source: joinTokens(axes.source ?? Object.values(axes)[0] ?? []), target: joinTokens(decided) };
  }

  /**
   * The map and heads of the word alignment: those of the model, or else the last map between two axes, of attention if there is any.
   * @returns {{map: number, heads: number[] | null, shift: number} | null}
   */
  get alignment() {
    if (this.summary.alignment) return this.summary.alignment;
    const all = this.summary.maps.map((facts, map) => ({ facts, map })).filter(({ facts }) => facts.query_axis !== facts.key_axis);
    const attention = all.filter(({ facts }) => facts.kind === "weights");
    const between = attention.length ? attention : all.filter(({ facts }) => facts.kind === "posterior");
    // Prefer attention of output tokens over the source.
    const last = between.filter(({ facts }) => facts.written || facts.key_axis === "source").pop()
      ?? between.filter(({ facts }) => this.summary.kinds[facts.query_axis].steps).pop() ?? between.pop();
    return last ? { map: last.map, heads: null, shift: 0 } : null;
  }

  /**
   * The weights of the alignment; row i is the token `decided[i]`.
   * @returns {Promise<{matrix: Matrix, rows: string[], columns: string[], rowWords: number[], columnWords: number[], map: MapFacts, shift: number}>}
   */
  async alignmentMatrix() {
    const where = this.alignment;
    if (!where && !this.summary.maps.length) throw new Error("this model has no attention, so there is no alignment");
    if (!where) throw new Error("this model has a single sequence, so there is no alignment; see Heads");
    const map = this.summary.maps[where.map];
    const heads = where.heads ?? Array.from({ length: map.heads }, (_, head) => head);
    const bytes = await this.bytesOf(where.map);
    const whole = meanMatrix(heads.map((head) => headMatrix(bytes, map, head)));
    const rows = where.shift
      ? this.summary.labels[map.query_axis].slice(where.shift)
      : this.rowLabels(where.map);
    const matrix = where.shift ? sliceRows(whole, where.shift, whole.rows) : whole;
    return { matrix, rows, columns: this.columnLabels(where.map), ...this.wordsOf(where.map, where.shift), map, shift: where.shift };
  }

  /**
   * The weights of each step: those of the alignment, or for one sequence those of the last layer.
   * @returns {Promise<{matrix: Matrix, rows: string[], columns: string[], map: MapFacts}>}
   */
  async stepMatrix() {
    if (this.alignment) return this.alignmentMatrix();
    const weights = this.summary.maps.map((facts, map) => ({ facts, map })).filter(({ facts }) => facts.kind === "weights");
    const last = weights.pop();
    if (!last) throw new Error(NO_ATTENTION);
    const heads = Array.from({ length: last.facts.heads }, (_, head) => this.head(last.map, head));
    const matrix = meanMatrix(await Promise.all(heads));
    return { matrix, rows: this.rowLabels(last.map), columns: this.columnLabels(last.map), map: last.facts };
  }

  /** The alignment between words, and their texts. */
  async wordAlignment() {
    const { matrix, map } = await this.alignmentMatrix();
    const keys = this.summary.axes[map.key_axis];
    const columnWords = this.summary.words[map.key_axis] ?? keys.map((_, i) => i);
    const fed = this.summary.words[map.query_axis] ?? [];
    const { decided } = this.summary;
    const queries = decided.length ? decided : this.summary.axes[map.query_axis];
    // Words belong to input tokens of the decoder; each is the output of the previous step.
    const before = decided.length ? 1 : 0;
    const rowWords = Array.from({ length: matrix.rows }, (_, row) => fed[row + before] ?? -1);
    return {
      matrix: poolByWord(matrix, rowWords, columnWords),
      rows: joinWords(queries, rowWords),
      columns: joinWords(keys, columnWords),
      rowWords,
    };
  }
}

/** @param {string[]} tokens */
function joinTokens(tokens) {
  const visible = tokens.filter((token) => !/^<(s|\/s|pad|unk|bos|eos)>$/.test(token));
  return decodePieces(visible, tokens.some((token) => token.startsWith("▁")) ? "" : " ");
}

/**
 * Join subwords to a text; <0x41> is a byte.
 * @param {string[]} pieces
 * @param {string} between
 */
function decodePieces(pieces, between) {
  return pieces
    .join(between)
    .replace(/(<0x[0-9A-F]{2}>)+/g, (run) =>
      new TextDecoder().decode(Uint8Array.from(run.match(/[0-9A-F]{2}(?=>)/g) ?? [], (byte) => parseInt(byte, 16))))
    .replace(/▁/g, " ")
    .trim();
}

/**
 * @param {string[]} tokens
 * @param {number[]} words
 * @returns {string[]}
 */
export function joinWords(tokens, words) {
  /** @type {string[][]} */
  const pieces = [];
  tokens.forEach((token, i) => {
    const word = words[i] ?? -1;
    if (word >= 0) (pieces[word] ??= []).push(token);
  });
  return Array.from(pieces, (own) => decodePieces(own ?? [], ""));
}

/** The subject that the panels show. */
export class Session {
  /** @param {Provider} provider */
  constructor(provider) {
    this.provider = provider;
    /** @type {Subject | null} */
    this.subject = null;
    this.reason = "";
    /** @type {Subject | null} the last typed input, to return to from a trace */
    this.inputSubject = null;
    /** @type {(() => void)[]} */
    this.listeners = [];
    /** @type {Map<string, Promise<LoadedTrace>>} */
    this.loaded = new Map();
  }

  /**
   * @param {Subject | null} subject
   * @param {string} [reason] why there is no subject
   */
  setSubject(subject, reason = "type a sentence first") {
    const same = JSON.stringify(subject) === JSON.stringify(this.subject) && reason === this.reason;
    this.reason = reason;
    if (same) return;
    this.subject = subject;
    if (!subject || "model" in subject) this.inputSubject = subject;
    for (const listener of this.listeners) listener();
  }

  /** @returns {Promise<LoadedTrace>} */
  current() {
    if (!this.subject) return Promise.reject(new Error(this.reason));
    return this.load(this.subject);
  }

  /**
   * @param {Subject} subject
   * @returns {Promise<LoadedTrace>}
   */
  load(subject) {
    const key = JSON.stringify(subject);
    let pending = this.loaded.get(key);
    if (!pending) {
      pending = this.provider
        .trace(subject)
        .then((summary) => new LoadedTrace(this.provider, subject, summary));
      pending.catch(() => this.loaded.delete(key));
      this.loaded.set(key, pending);
      // Limit the cache: a page may stay open for long.
      for (const old of this.loaded.keys()) {
        if (this.loaded.size <= 8) break;
        this.loaded.delete(old);
      }
    }
    return pending;
  }
}
