// WAV files: encoding, and the sampling rate in a header.

const HEADER = 44;

/**
 * Encode samples as a WAV file: one channel, 16 bits a sample.
 * @param {Float32Array} samples from −1 to 1
 * @param {number} rate samples per second
 * @returns {Uint8Array}
 */
export function encodeWav(samples, rate) {
  const bytes = new Uint8Array(HEADER + 2 * samples.length);
  const view = new DataView(bytes.buffer);
  writeText(bytes, 0, "RIFF");
  view.setUint32(4, bytes.length - 8, true);
  writeText(bytes, 8, "WAVEfmt ");
  view.setUint32(16, 16, true); // the size of the format chunk
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true); // channels
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true); // bytes per second
  view.setUint16(32, 2, true); // bytes per frame
  view.setUint16(34, 16, true); // bits per sample
  writeText(bytes, 36, "data");
  view.setUint32(40, 2 * samples.length, true);
  for (let i = 0; i < samples.length; i++) {
    view.setInt16(HEADER + 2 * i, Math.round(Math.min(Math.max(samples[i], -1), 1) * 32767), true);
  }
  return bytes;
}

/**
 * The duration of the longest WAV file of a size that `encodeWav` makes, in whole seconds.
 * @param {number} bytes
 * @param {number} rate samples per second
 */
export function secondsOfWav(bytes, rate) {
  return Math.max(0, Math.floor((bytes - HEADER) / (2 * rate)));
}

/**
 * The sampling rate in the header of a WAV file; undefined for other files.
 * @param {Uint8Array} bytes
 * @returns {number | undefined}
 */
export function wavRate(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (readText(bytes, 0) !== "RIFF" || readText(bytes, 8) !== "WAVE") return undefined;
  for (let at = 12; at + 16 <= bytes.length;) {
    if (readText(bytes, at) === "fmt ") return view.getUint32(at + 12, true);
    const size = view.getUint32(at + 4, true);
    at += 8 + size + (size % 2);
  }
  return undefined;
}

/** @param {Uint8Array} bytes @param {number} at @param {string} text */
function writeText(bytes, at, text) {
  for (let i = 0; i < text.length; i++) bytes[at + i] = text.charCodeAt(i);
}

/** @param {Uint8Array} bytes @param {number} at */
function readText(bytes, at) {
  return String.fromCharCode(...bytes.subarray(at, at + 4));
}
