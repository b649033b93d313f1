// The turns of a conversation as bubbles. Selecting a word of an answer marks the earlier words that it attended to.

import { element, messageOf, rovingTabindex } from "./elements.js";
import { splitWords } from "./linked_texts.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").SaidTurn} SaidTurn */
/** @typedef {import("./types.js").Matrix} Matrix */
/** @typedef {{turn: number, word: number}} Place a word of the conversation; a word of −1 is the speaker's name */

/** The word between turns in what a model reads. */
const BREAK = "⏎";
/** Smaller weights are not shown. */
const LEAST = 0.04;
const MOST_NAMED = 3;

/**
 * The place of each word that a model has read; null for words between turns.
 * @param {string} read
 * @param {number} dropped the number of turns before the first one that was read
 * @returns {(Place | null)[]}
 */
export function placesOf(read, dropped) {
  let turn = dropped;
  let word = -1;
  let named = false;
  return splitWords(read).map(({ word: text }) => {
    if (text === BREAK) {
      turn += 1;
      word = -1;
      named = false;
      return null;
    }
    if (named) return { turn, word: ++word };
    named = text.endsWith(":");
    return { turn, word: -1 };
  });
}

export class ConversationLog {
  /** @param {Page} page @param {(turn: SaidTurn) => void} chosen called with the answer whose word is selected */
  constructor(page, chosen) {
    this.page = page;
    this.chosen = chosen;
    /** @type {SaidTurn[]} */
    this.turns = [];
    /** @type {{item: HTMLElement, words: HTMLElement[], share: HTMLElement}[]} */
    this.bubbles = [];
    this.selected = 0;
    this.list = element("ol", { class: "heed-turns", "aria-label": "Conversation" });
    this.dropped = element("p", { class: "heed-detail heed-dropped-note", role: "status" });
    this.readout = element("p", { class: "heed-readout", role: "status" });
    this.body = element("section", { class: "heed-conversation" }, this.dropped, this.list, this.readout);
  }

  /** @param {SaidTurn[]} turns @param {number | undefined} limit the number of tokens that the model reads */
  show(turns, limit) {
    this.turns = [...turns];
    this.selected += 1;
    this.bubbles = turns.map((turn, i) => this.bubble(turn, i));
    this.list.replaceChildren(...this.bubbles.map(({ item }) => item));
    const last = turns[turns.length - 1];
    const count = last?.dropped ?? 0;
    this.bubbles.forEach(({ item }, i) => item.classList.toggle("heed-dropped", i < count));
    const left = count === 1 ? "the oldest turn was" : `the oldest ${count} turns were`;
    const room = limit ? `The model reads ${limit.toLocaleString("en")} tokens: ` : "";
    this.dropped.textContent = count ? `${room}${left} left out for the last answer.`.replace(/^t/, "T") : "";
    const answered = turns.some(({ read }) => read !== undefined);
    this.readout.textContent = answered ? "Select a word of an answer to see which earlier words it attended to." : "";
    this.showEnd();
  }

  /** Scroll to the last turn; a list that is not displayed does not scroll. */
  showEnd() {
    this.list.scrollTop = this.list.scrollHeight;
  }

  /** @param {SaidTurn} turn @param {number} number */
  bubble(turn, number) {
    const answer = turn.read !== undefined;
    // The sign between turns is a space within a turn, as in what the model reads.
    const parts = splitWords(turn.text.replaceAll(BREAK, " "));
    const words = parts.map(({ word }, i) => element("span", answer
      ? { class: "heed-word", role: "button", tabindex: i ? -1 : 0, "aria-pressed": "false" }
      : { class: "heed-word" }, word));
    const text = element("p", { class: "heed-said", dir: "auto" }, ...words.flatMap((word, i) => [parts[i].before, word]));
    if (answer) {
      rovingTabindex(text, ".heed-word", () => 1, (word) => this.select(number, words.indexOf(word)));
      text.addEventListener("click", (event) => this.select(number, words.indexOf(/** @type {HTMLElement} */ (event.target))));
      text.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        this.select(number, words.indexOf(/** @type {HTMLElement} */ (event.target)));
      });
    }
    const share = element("span", { class: "heed-share" });
    const who = element("p", { class: "heed-who" }, element("bdi", {}, turn.speaker), share);
    return { item: element("li", { class: turn.dropped === undefined ? "heed-turn" : "heed-turn heed-answer" }, who, text), words, share };
  }

  /**
   * Add the bubble of an answer that is being written; returns where its text goes.
   * @param {string} speaker
   */
  begin(speaker) {
    const text = element("p", { class: "heed-said heed-writing", dir: "auto" });
    const who = element("p", { class: "heed-who" }, element("bdi", {}, speaker));
    this.list.append(element("li", { class: "heed-turn heed-answer" }, who, text));
    this.showEnd();
    return text;
  }

  /**
   * Show what a word of an answer attended to.
   * @param {number} number the turn
   * @param {number} word
   */
  async select(number, word) {
    const turn = this.turns[number];
    if (word < 0 || turn?.read === undefined) return;
    const mine = ++this.selected;
    this.bubbles.forEach(({ words }, i) => words.forEach((one, j) => {
      const here = i === number && j === word;
      one.classList.toggle("heed-hovered", here);
      if (one.hasAttribute("aria-pressed")) one.setAttribute("aria-pressed", String(here));
    }));
    this.mark([], []);
    this.readout.textContent = "Computing…";
    try {
      this.chosen(turn);
      const trace = await this.page.session.current();
      const { matrix } = await trace.wordAlignment();
      if (mine !== this.selected) return;
      // The name of who speaks next is no turn.
      const places = placesOf(turn.read, turn.dropped ?? 0).map((place) => (place && place.turn < number ? place : null));
      const weights = places.map((_, i) => (i < matrix.columns && word < matrix.rows ? matrix.values[word * matrix.columns + i] : 0));
      this.mark(places, weights);
      this.readout.textContent = this.described(this.bubbles[number].words[word].textContent ?? "", places, weights);
    } catch (error) {
      if (mine === this.selected) this.readout.textContent = `${messageOf(error)}.`;
    }
  }

  /**
   * Colour words, and write the share of each turn beside its speaker.
   * @param {(Place | null)[]} places
   * @param {number[]} weights
   */
  mark(places, weights) {
    const shares = this.bubbles.map(() => 0);
    for (const { words } of this.bubbles) {
      for (const word of words) {
        word.classList.remove("heed-linked");
        word.style.setProperty("--strength", "0");
        word.removeAttribute("title");
      }
    }
    places.forEach((place, i) => {
      if (!place || !this.bubbles[place.turn]) return;
      shares[place.turn] += weights[i];
      const word = this.bubbles[place.turn].words[place.word];
      if (!word || weights[i] < LEAST) return;
      word.classList.add("heed-linked");
      word.style.setProperty("--strength", weights[i].toFixed(3));
      word.title = percent(weights[i]);
    });
    this.bubbles.forEach(({ share }, i) => (share.textContent = shares[i] >= LEAST ? percent(shares[i]) : ""));
  }

  /**
   * The words with most weight, as a sentence.
   * @param {string} chosen
   * @param {(Place | null)[]} places
   * @param {number[]} weights
   */
  described(chosen, places, weights) {
    const best = places.map((place, i) => ({ place, weight: weights[i] })).filter(({ place, weight }) => place && weight >= LEAST)
      .sort((a, b) => b.weight - a.weight).slice(0, MOST_NAMED);
    const named = best.map(({ place, weight }) => {
      const { turn, word } = /** @type {Place} */ (place);
      return `“${this.bubbles[turn].words[word]?.textContent ?? this.turns[turn].speaker}” in turn ${turn + 1} (${percent(weight)})`;
    });
    return named.length ? `“${chosen}” attended to ${named.join(", ")}.` : `“${chosen}” attended to no word of the turns in particular.`;
  }
}

/** @param {number} weight */
function percent(weight) {
  return `${Math.round(100 * weight)} %`;
}
