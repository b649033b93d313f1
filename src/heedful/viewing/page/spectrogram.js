// The spectrogram and the waveform of a sound.

import { matrixOf } from "./matrices.js";
import { maxAbsolute } from "./painting.js";

/** @typedef {import("./types.js").Matrix} Matrix */

const COLUMNS = 400;
const ROWS = 96;
const WINDOW_SECONDS = 0.025;
/** A long sound has more windows than columns; a column is the mean of a few of them. */
const WINDOWS_PER_COLUMN = 4;
/** Levels more than this below the largest one, in decibels, have no colour. */
const RANGE = 65;
const HIGHEST = 8000;

/**
 * The highest frequency that is drawn, in Hz.
 * @param {number} rate samples per second
 */
export function highestFrequency(rate) {
  return Math.min(rate / 2, HIGHEST);
}

/**
 * The height of a frequency in the spectrogram: 0 at the bottom, 1 at the top. The scale is the mel scale.
 * @param {number} frequency in Hz
 * @param {number} rate samples per second
 */
export function frequencyHeight(frequency, rate) {
  return mel(frequency) / mel(highestFrequency(rate));
}

/** @param {number} frequency in Hz */
function mel(frequency) {
  return Math.log(1 + frequency / 700);
}

/**
 * The log-magnitude spectrogram: levels from 0 (65 dB below the loudest, or less) to 1. Rows are mel bands, the highest first;
 * columns are equal intervals of the whole sound.
 * @param {Float32Array} samples
 * @param {number} rate samples per second
 * @returns {Matrix}
 */
export function spectrogram(samples, rate) {
  const size = 2 ** Math.ceil(Math.log2(WINDOW_SECONDS * rate));
  const columns = Math.max(1, Math.min(COLUMNS, Math.round((4 * samples.length) / size)));
  const bands = melBands(size, rate);
  const hann = Float64Array.from({ length: size }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / size));
  const real = new Float64Array(size);
  const imaginary = new Float64Array(size);
  const step = samples.length / columns;
  const windows = Math.max(1, Math.min(WINDOWS_PER_COLUMN, Math.round((2 * step) / size)));
  const powers = new Float32Array(ROWS * columns);
  for (let column = 0; column < columns; column++) {
    for (let window = 0; window < windows; window++) {
      const start = Math.round((column + (window + 0.5) / windows) * step - size / 2);
      for (let i = 0; i < size; i++) real[i] = (samples[start + i] ?? 0) * hann[i];
      imaginary.fill(0);
      fft(real, imaginary);
      bands.forEach(([from, to], row) => {
        let power = 0;
        for (let bin = from; bin <= to; bin++) power += real[bin] ** 2 + imaginary[bin] ** 2;
        powers[row * columns + column] += power / (to - from + 1) / windows;
      });
    }
  }
  const loudest = maxAbsolute(powers);
  const levels = powers.map((power) => (power > 0 ? Math.max(0, 1 + (10 * Math.log10(power / loudest)) / RANGE) : 0));
  return matrixOf(ROWS, columns, levels, 1);
}

/**
 * The first and last frequency bin of each row, the highest row first.
 * @param {number} size samples in a window
 * @param {number} rate
 * @returns {[number, number][]}
 */
function melBands(size, rate) {
  const top = mel(highestFrequency(rate));
  /** @param {number} row */
  const edge = (row) => (700 * (Math.exp((top * row) / ROWS) - 1) * size) / rate;
  return Array.from({ length: ROWS }, (_, i) => {
    const row = ROWS - 1 - i;
    const from = Math.min(Math.round(edge(row)), size / 2);
    return [from, Math.max(from, Math.min(Math.round(edge(row + 1)) - 1, size / 2))];
  });
}

/**
 * The discrete Fourier transform, in place (Cooley and Tukey 1965). The length is a power of two.
 * @param {Float64Array} real
 * @param {Float64Array} imaginary
 */
export function fft(real, imaginary) {
  const size = real.length;
  for (let i = 1, j = 0; i < size; i++) {
    let bit = size >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i >= j) continue;
    [real[i], real[j]] = [real[j], real[i]];
    [imaginary[i], imaginary[j]] = [imaginary[j], imaginary[i]];
  }
  for (let length = 2; length <= size; length *= 2) {
    const half = length / 2;
    for (let k = 0; k < half; k++) {
      const angle = (-2 * Math.PI * k) / length;
      const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
      for (let a = k; a < size; a += length) {
        const b = a + half;
        const [x, y] = [real[b] * cosine - imaginary[b] * sine, real[b] * sine + imaginary[b] * cosine];
        real[b] = real[a] - x;
        imaginary[b] = imaginary[a] - y;
        real[a] += x;
        imaginary[a] += y;
      }
    }
  }
}

/**
 * The path of a waveform in SVG: the peak amplitude at each pixel, the largest with the full height.
 * @param {Float32Array} samples
 * @param {number} width in pixels
 * @param {number} height
 * @param {number} [top] the y coordinate of the upper edge
 */
export function waveformPath(samples, width, height, top = 0) {
  const places = Math.max(Math.floor(width), 1);
  const each = samples.length / places;
  const peaks = Array.from({ length: places }, (_, x) => {
    const from = Math.floor(x * each);
    return maxAbsolute(samples.subarray(from, Math.max(Math.floor((x + 1) * each), from + 1)));
  });
  const loudest = Math.max(...peaks, 1e-6);
  /** @param {number} sign */
  const side = (sign) =>
    peaks.map((peak, x) => `${x} ${(top + height / 2 + (sign * Math.max(peak / loudest, 0.01) * height) / 2.2).toFixed(1)}`);
  return `M${[...side(-1), ...side(1).reverse()].join("L")}Z`;
}
