// A field for a sound: a file that is chosen or dropped, or a recording of the microphone, as a data URI.

import { element, messageOf, svgElement } from "./elements.js";
import { fromBase64 } from "./providers.js";
import { RATE, record } from "./recorder.js";
import { SoundPlayer, decodeSound } from "./sound_player.js";
import { waveformPath } from "./spectrogram.js";
import { encodeWav, secondsOfWav } from "./wav.js";

/** @typedef {{body: HTMLElement, input: HTMLInputElement, value: () => unknown, restored: () => void, play: import("./result_view.js").Play}} Field */

/** Characters of a data URI before the data. */
const LONGEST_TYPE = 100;
/** The peak amplitude below which a recording is silent. */
const SILENT = 0.001;
const WAVE = { width: 600, height: 48 };

/**
 * The types of files for which some browsers know none, or that of a video.
 * @type {Record<string, string>}
 */
const TYPES = {
  wav: "audio/wav", flac: "audio/flac", ogg: "audio/ogg", oga: "audio/ogg", opus: "audio/ogg", mp3: "audio/mpeg",
  aif: "audio/aiff", aiff: "audio/aiff", au: "audio/basic",
};

/**
 * The type of a sound file; undefined for other files.
 * @param {File} file
 */
function typeOf(file) {
  const [type] = file.type.split(";");
  return type.startsWith("audio/") ? type : TYPES[file.name.split(".").pop()?.toLowerCase() ?? ""];
}

/**
 * @param {Blob} blob
 * @returns {Promise<string>}
 */
function dataUri(blob) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result));
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(blob);
  });
}

class SoundField {
  /**
   * @param {string} title
   * @param {number} most the largest number of characters in the data URI
   * @param {() => void} changed
   */
  constructor(title, most, changed) {
    /** The largest file in bytes: four characters are three bytes, after the type. */
    this.largest = Math.floor(Math.max(0, most - LONGEST_TYPE) / 4) * 3;
    /** The longest recording in seconds. */
    this.longest = secondsOfWav(this.largest, RATE);
    this.changed = changed;
    /** @type {import("./recorder.js").Recording | null} */
    this.recording = null;
    this.starting = false;
    this.label = "";
    this.input = element("input", { type: "hidden" });
    this.problem = element("p", { class: "heed-notice", role: "alert" });
    this.state = element("p", { class: "heed-detail", role: "status" });
    this.elapsed = element("span", { class: "heed-number" });
    this.level = element("i", { class: "heed-level", "aria-hidden": "true" });
    /** @type {HTMLInputElement} */
    this.file = element("input", {
      type: "file", accept: `audio/*,${Object.keys(TYPES).map((ending) => `.${ending}`).join()}`, class: "heed-visually-hidden", tabindex: -1,
      "aria-label": title, onchange: () => {
        this.take(this.file.files?.[0]);
        this.file.value = "";
      },
    });
    this.choose = button("Choose a sound…", () => this.file.click());
    this.start = button("Record", () => this.startRecording());
    this.stop = button("Stop", () => this.stopRecording());
    this.clear = button("Clear", () => this.set("", ""));
    this.meter = element("div", { class: "heed-recording" }, this.stop, this.elapsed, this.level);
    this.playButton = button("Play", () => (this.player.isPlaying ? this.player.stop() : this.player.play()));
    this.wave = svgElement("svg", {
      class: "heed-wave", viewBox: `0 0 ${WAVE.width} ${WAVE.height}`, preserveAspectRatio: "none", "aria-hidden": "true",
      onclick: (/** @type {MouseEvent} */ event) => this.playFrom(event),
    });
    this.head = svgElement("line", { class: "heed-playhead", y1: 0, y2: WAVE.height, "vector-effect": "non-scaling-stroke" });
    this.length = element("span", { class: "heed-number" });
    this.listener = element("div", { class: "heed-listen" }, this.playButton, this.wave, this.length);
    this.body = element(
      "div", { class: "heed-image-field heed-sound-field" },
      element("h2", {}, title), element("div", { class: "heed-tools" }, this.file, this.choose, this.start, this.clear), this.meter,
      this.state, this.listener, element("p", { class: "heed-hint" }, `You can also drop a sound here. A file may have up to ${megabytes(this.largest)}, a recording with the microphone up to ${duration(this.longest)}.`), this.problem,
    );
    this.player = new SoundPlayer(this.listener, (seconds) => this.moved(seconds));
    this.listen();
    this.draw();
  }

  listen() {
    this.body.addEventListener("dragover", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      this.body.classList.add("heed-drop");
    });
    this.body.addEventListener("dragleave", () => this.body.classList.remove("heed-drop"));
    this.body.addEventListener("drop", (event) => {
      this.body.classList.remove("heed-drop");
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      this.take(event.dataTransfer.files[0]);
    });
  }

  /** @param {string} uri @param {string} label */
  set(uri, label) {
    this.recording?.cancel();
    this.recording = null;
    this.input.value = uri;
    this.problem.textContent = "";
    this.label = label;
    this.draw();
    this.changed();
  }

  async draw() {
    const uri = this.input.value;
    this.player.stop();
    this.player.sound = null;
    this.state.textContent = this.label;
    this.clear.hidden = !uri;
    this.listener.hidden = true;
    this.showRecording(false);
    if (!uri) return;
    try {
      const sound = await decodeSound(fromBase64(uri.slice(uri.indexOf(",") + 1)));
      if (uri !== this.input.value) return;
      this.player.sound = sound;
      this.listener.hidden = false;
      this.length.textContent = clock(sound.duration);
      const path = waveformPath(sound.getChannelData(0), WAVE.width, WAVE.height);
      this.wave.replaceChildren(svgElement("path", { d: path }), this.head);
      this.moved(-1);
    } catch {
      if (uri === this.input.value) this.state.textContent = `${this.label || "The sound"} is sent, but this browser cannot play it.`;
    }
  }

  /** @param {boolean} on */
  showRecording(on) {
    this.meter.hidden = !on;
    this.start.hidden = on;
    this.choose.disabled = on;
  }

  /** @param {File | null | undefined} file */
  async take(file) {
    if (!file) return;
    const type = typeOf(file);
    if (!type) this.problem.textContent = `${file.name} is not a sound.`;
    else if (file.size > this.largest) this.problem.textContent = `${file.name} is too large: it has ${megabytes(file.size)}, the maximum is ${megabytes(this.largest)}.`;
    else {
      try {
        this.set(await dataUri(new Blob([file], { type })), file.name);
      } catch {
        this.problem.textContent = `${file.name} cannot be read.`;
      }
    }
  }

  async startRecording() {
    if (this.recording || this.starting) return;
    this.starting = true;
    this.player.stop();
    this.problem.textContent = "";
    try {
      const recording = await record((seconds, level) => this.progress(seconds, level));
      this.recording = recording;
      this.progress(0, 0);
      this.showRecording(true);
      this.clear.hidden = this.listener.hidden = true;
      this.state.textContent = "Recording…";
      this.stop.focus();
    } catch (error) {
      this.problem.textContent = messageOf(error);
    } finally {
      this.starting = false;
    }
  }

  /** @param {number} seconds @param {number} level */
  progress(seconds, level) {
    if (!this.recording) return;
    if (!this.body.isConnected) {
      this.recording.cancel();
      this.recording = null;
      return;
    }
    this.elapsed.textContent = `${clock(seconds)} of ${clock(this.longest)}`;
    this.level.style.setProperty("--level", Math.sqrt(Math.min(level, 1)).toFixed(2));
    if (seconds >= this.longest) this.stopRecording(`The recording ended at the limit of ${duration(this.longest)}.`);
  }

  /** @param {string} [note] */
  async stopRecording(note = "") {
    const { recording } = this;
    if (!recording) return;
    this.recording = null;
    const samples = (await recording.stop()).subarray(0, this.longest * RATE);
    const seconds = samples.length / RATE;
    const loudest = samples.reduce((most, one) => Math.max(most, Math.abs(one)), 0);
    if (!samples.length) {
      this.draw();
      this.problem.textContent = "Nothing was recorded.";
    } else {
      const uri = await dataUri(new Blob([encodeWav(samples, RATE)], { type: "audio/wav" }));
      this.set(uri, `Recording, ${seconds.toFixed(1)} s`);
      this.problem.textContent = loudest < SILENT ? "The recording is silent; check the microphone." : note;
    }
    this.start.focus();
  }

  /** @param {MouseEvent} event */
  playFrom(event) {
    const box = this.wave.getBoundingClientRect();
    this.player.play(((event.clientX - box.left) / box.width) * (this.player.sound?.duration ?? 0));
  }

  /** @param {number} seconds the position of the player; −1 if it stopped */
  moved(seconds) {
    const x = (seconds / (this.player.sound?.duration ?? 1)) * WAVE.width;
    this.playButton.textContent = seconds < 0 ? "Play" : "Stop playing";
    for (const [name, value] of Object.entries({ x1: x, x2: x, visibility: seconds < 0 ? "hidden" : "visible" })) {
      this.head.setAttribute(name, String(value));
    }
  }
}

/** @param {string} text @param {() => void} onclick */
function button(text, onclick) {
  return element("button", { type: "button", class: "heed-button", onclick }, text);
}

/** @param {number} seconds */
function clock(seconds) {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

/** @param {number} seconds */
function duration(seconds) {
  const [minutes, rest] = [Math.floor(seconds / 60), seconds % 60];
  return [minutes && `${minutes} min`, (rest || !minutes) && `${rest} s`].filter(Boolean).join(" ");
}

/** @param {number} bytes */
function megabytes(bytes) {
  return `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}

/**
 * @param {string} title
 * @param {number} most the largest number of characters in the data URI
 * @param {() => void} changed
 * @returns {Field}
 */
export function soundField(title, most, changed) {
  const field = new SoundField(title, most, changed);
  return {
    body: field.body,
    input: field.input,
    value: () => field.input.value || undefined,
    restored: () => void field.draw(),
    play: (from, to) => field.player.play(from, to),
  };
}
