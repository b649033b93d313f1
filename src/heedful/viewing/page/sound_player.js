// Decode and play sounds. Web Audio, unlike an audio element, also plays where a content security policy forbids media.

import { wavRate } from "./wav.js";

/**
 * The player that is playing; a page plays one sound at a time.
 * @type {{player: SoundPlayer | null}}
 */
const active = { player: null };

/** The rates that all browsers can decode to. */
const RATES = [8000, 48000];

/**
 * Decode a sound file.
 * @param {Uint8Array} bytes
 * @param {number} [wanted] the rate of the samples; by default that of a WAV file, or 48 kHz
 * @returns {Promise<AudioBuffer>}
 */
export async function decodeSound(bytes, wanted) {
  const rate = wanted ?? Math.min(Math.max(wavRate(bytes) ?? RATES[1], RATES[0]), RATES[1]);
  // An offline context needs no permission to play audio. It takes the buffer, so it gets a copy.
  return new OfflineAudioContext(1, 1, rate).decodeAudioData(/** @type {ArrayBuffer} */ (bytes.slice().buffer));
}

export class SoundPlayer {
  /**
   * @param {HTMLElement} owner the sound stops when this element is removed or hidden
   * @param {(seconds: number) => void} moved called with the position while the sound plays, and with −1 when it stops
   */
  constructor(owner, moved) {
    this.owner = owner;
    this.moved = moved;
    /** @type {AudioBuffer | null} */
    this.sound = null;
    /** @type {(() => void) | null} */
    this.end = null;
  }

  get isPlaying() {
    return this.end !== null;
  }

  /**
   * Play a part of the sound; another sound or part that is playing stops.
   * @param {number} [from] in seconds
   * @param {number} [to]
   */
  play(from = 0, to = Infinity) {
    active.player?.stop();
    if (!this.sound) return;
    const start = Math.min(Math.max(from, 0), this.sound.duration);
    const context = new AudioContext();
    const source = context.createBufferSource();
    source.buffer = this.sound;
    source.connect(context.destination);
    source.start(0, start, Math.min(to, this.sound.duration) - start);
    const started = context.currentTime;
    let timer = 0;
    active.player = this;
    this.end = () => {
      cancelAnimationFrame(timer);
      this.end = active.player = null;
      source.onended = null;
      context.close();
      this.moved(-1);
    };
    source.onended = () => this.stop();
    const move = () => {
      if (!this.owner.getClientRects().length) return this.stop();
      this.moved(start + context.currentTime - started);
      timer = requestAnimationFrame(move);
    };
    move();
  }

  stop() {
    this.end?.();
  }
}
