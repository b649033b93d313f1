// Plays the frames of a time axis, in views of which they are the queries.

import { fromBase64 } from "./providers.js";
import { SoundPlayer, decodeSound } from "./sound_player.js";
import { isSound } from "./time_layers.js";

/** @typedef {import("./types.js").AxisFacts} AxisFacts */

/** Shorter parts are played with what is around them, in seconds. */
const SHORTEST = 0.15;

/**
 * The sounds of axes; all views of an axis share one.
 * @type {WeakMap<AxisFacts, Promise<AudioBuffer>>}
 */
const sounds = new WeakMap();

/**
 * @param {AxisFacts} axis
 * @returns {Promise<AudioBuffer>}
 */
export function soundOf(axis) {
  const url = axis.media?.url ?? "";
  const found = sounds.get(axis) ?? decodeSound(fromBase64(url.slice(url.indexOf(",") + 1)));
  sounds.set(axis, found);
  return found;
}

/**
 * Where some frames begin and end in seconds, with what is around them if they are too short to be heard.
 * @param {AxisFacts} axis
 * @param {[number, number]} frames the first and the last one
 * @returns {[number, number]}
 */
export function audiblePart({ extent: [frames, seconds] }, [first, last]) {
  const each = seconds / frames;
  const [from, to] = [first * each, (last + 1) * each];
  const added = Math.max(0, SHORTEST - (to - from)) / 2;
  // At an end of the sound, what is missing is added at the other side.
  const start = Math.max(0, Math.min(from - added, seconds - SHORTEST));
  return [start, Math.min(Math.max(to + added, start + SHORTEST), seconds)];
}

export class FramePlayer {
  /**
   * @param {HTMLElement} owner the sound stops when this element is removed or hidden
   * @param {() => void} [ready] called when the sound is decoded
   * @param {(seconds: number) => void} [moved] called with the position while the sound plays, and with −1 when it stops
   */
  constructor(owner, ready = () => {}, moved = () => {}) {
    this.player = new SoundPlayer(owner, moved);
    this.ready = ready;
    /** @type {AxisFacts | null} */
    this.axis = null;
  }

  /** @param {AxisFacts} axis nothing is played unless it has a sound */
  async of(axis) {
    if (axis === this.axis) return;
    this.player.stop();
    this.axis = axis;
    this.player.sound = null;
    if (!isSound(axis)) return;
    // A sound that cannot be decoded is reported by the views of the axis; here, nothing plays.
    const sound = await soundOf(axis).catch(() => null);
    if (axis !== this.axis) return;
    this.player.sound = sound;
    if (sound) this.ready();
  }

  /** @param {[number, number] | null} frames the first and the last one */
  play(frames) {
    if (this.axis && frames) this.player.play(...audiblePart(this.axis, frames));
  }
}
