// Values of a result: texts, sounds that can be played, and words that play their part of a sound.

import { download, element } from "./elements.js";
import { formatSigned } from "./matrices.js";
import { fromBase64 } from "./providers.js";
import { SoundPlayer, decodeSound } from "./sound_player.js";

/** @typedef {(from?: number, to?: number) => void} Play plays a part of a sound, in seconds */
/** @typedef {{text: string, start: number, end: number}} Word */
/** @typedef {{word: string, generated: number, position: number, source: string}} Origin a word, the share of the vocabulary in it, and what it copies */

const SOUND = "data:audio/";
/** The shortest part that is played, in seconds. */
const SHORTEST = 0.15;

/**
 * A value as text: the entries of a list of objects or lists have a line each, those of other lists a comma between them.
 * @param {unknown} value
 * @returns {string}
 */
export function formatValue(value) {
  if (typeof value === "number") return formatNumber(value);
  if (typeof value === "string") return value;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (!Array.isArray(value)) return Object.values(value).map(formatValue).join(" ");
  const nested = value.some((one) => typeof one === "object" && one !== null);
  const parts = value.map((one) => (Array.isArray(one) ? one.map(formatValue).join(" · ") : formatValue(one)));
  return parts.join(nested ? "\n" : ", ");
}

/** @param {number} value */
function formatNumber(value) {
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) < 0.01 ? value.toPrecision(3).replace("-", "−") : formatSigned(value, 4);
}

/**
 * Each value of a result as text, and as an element.
 * @param {Record<string, unknown>} found
 * @param {Play} [play] plays a part of the sound that was given
 * @returns {[string, string, Node[]][]}
 */
export function resultRows(found, play) {
  const sounds = Object.entries(found).filter(([, value]) => isSound(value));
  const players = new Map(sounds.map(([name, value]) => [name, new ResultSound(String(value))]));
  const [first] = players.values();
  const heard = first ? first.play : play;
  return Object.entries(found).map(([name, value]) => {
    const player = players.get(name);
    if (player) return [name, "a sound", [player.body]];
    if (isOrigins(value)) return [name, value.map((one) => `${one.word} ${originText(one)}`).join("\n"), value.map(originRow)];
    const text = formatValue(value);
    if (heard && isWords(value)) return [name, text, value.map((word) => wordButton(word, heard))];
    return [name, text, text.split("\n").map((line) => element("div", {}, line))];
  });
}

/** @param {unknown} value */
function isSound(value) {
  return typeof value === "string" && value.startsWith(SOUND);
}

/**
 * @param {unknown} value
 * @returns {value is Word[]}
 */
export function isWords(value) {
  return Array.isArray(value) && value.length > 0 && value.every(
    (one) => typeof one?.text === "string" && typeof one.start === "number" && typeof one.end === "number",
  );
}

/**
 * @param {unknown} value
 * @returns {value is Origin[]}
 */
function isOrigins(value) {
  return Array.isArray(value) && value.length > 0 && value.every(
    (one) => typeof one?.word === "string" && typeof one.generated === "number" && typeof one.position === "number",
  );
}

/** @param {Origin} origin */
function originText({ word, generated, position, source }) {
  if (generated >= 0.5) return `from the vocabulary (${generated.toFixed(2)})`;
  // The word of the text that is read most may be another one than the word that all its places together make most probable.
  const from = word === source ? `copied from word ${position}, “${source}”` : "from the text";
  return `${from} (${(1 - generated).toFixed(2)})`;
}

/** @param {Origin} origin */
function originRow(origin) {
  const word = element(origin.generated < 0.5 && origin.word === origin.source ? "mark" : "span", {}, origin.word);
  return element("div", {}, word, ` ${originText(origin)}`);
}

/** @param {Word} word @param {Play} play */
function wordButton({ text, start, end }, play) {
  const times = `${clockTime(start)}–${clockTime(end)}`;
  const more = Math.max(0, SHORTEST - (end - start)) / 2;
  return element(
    "button", { type: "button", class: "heed-word-button", title: "Play", onclick: () => play(start - more, end + more) },
    element("span", {}, text), " ", element("span", { class: "heed-word-times" }, times),
  );
}

/**
 * Seconds, from the first minute on with minutes: 4.25, 1:04.25.
 * @param {number} seconds
 */
function clockTime(seconds) {
  const hundredths = Math.round(100 * seconds);
  const minutes = Math.floor(hundredths / 6000);
  const rest = ((hundredths % 6000) / 100).toFixed(2);
  return minutes ? `${minutes}:${rest.padStart(5, "0")}` : rest;
}

/** A sound of a result, with a button that plays it and one that saves it. */
class ResultSound {
  /** @param {string} uri */
  constructor(uri) {
    this.button = element("button", { type: "button", class: "heed-button", onclick: () => this.toggle() }, "Play");
    const ending = uri.slice(SOUND.length, uri.indexOf(";"));
    const bytes = fromBase64(uri.slice(uri.indexOf(",") + 1));
    const blob = new Blob([/** @type {BlobPart} */ (bytes)], { type: uri.slice(5, uri.indexOf(";")) });
    const save = element("button", { type: "button", class: "heed-button", onclick: () => download(blob, `sound.${ending}`) }, "Save");
    this.body = element("div", { class: "heed-tools" }, this.button, save);
    /** @type {SoundPlayer} */
    this.player = new SoundPlayer(this.body, (seconds) => {
      this.button.textContent = seconds < 0 ? "Play" : "Stop";
    });
    /** @type {Play} */
    this.play = (from, to) => this.player.play(from, to);
    this.ready = this.decode(bytes);
  }

  /** @param {Uint8Array} bytes */
  async decode(bytes) {
    try {
      this.player.sound = await decodeSound(bytes);
    } catch {
      this.button.disabled = true;
      this.button.title = "this browser cannot play the sound";
    }
  }

  /** @returns {Promise<void>} */
  async toggle() {
    if (this.player.isPlaying) return this.player.stop();
    await this.ready;
    this.player.play();
  }
}
