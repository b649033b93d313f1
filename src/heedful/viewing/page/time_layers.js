// The drawing of weights over time: the waveform and the spectrogram of a sound, or a picture of features, and a curve.

import { svgElement } from "./elements.js";
import { imageElements } from "./image_view.js";
import { maxAbsolute, overlayImage, renderWeights } from "./painting.js";
import { frequencyHeight, highestFrequency, spectrogram, waveformPath } from "./spectrogram.js";

/** @typedef {import("./types.js").AxisFacts} AxisFacts */
/** @typedef {import("./painting.js").Theme} Theme */

/**
 * What is drawn.
 * @typedef {object} TimePicture
 * @property {AxisFacts} axis
 * @property {Float32Array} weights one for each frame
 * @property {[number, number] | null} part in seconds, with most of the weight
 * @property {AudioBuffer | null} sound
 */

const FEATURES = 96;
const WAVE = 60;
const SPECTROGRAM = 108;
const GAP = 8;
const CURVE = 64;
const TICKS = 22;
const STEPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300];
const FREQUENCIES = [1000, 2000, 4000];

/**
 * The heights of the parts of the drawing; those of the sound are kept free until it is decoded.
 * @param {AxisFacts} axis
 */
export function timeLayout(axis) {
  const sound = isSound(axis);
  const curve = sound ? WAVE + GAP + SPECTROGRAM + GAP : axis.media ? FEATURES + GAP : 0;
  return { spectrogram: WAVE + GAP, curve, bottom: curve + CURVE, height: curve + CURVE + TICKS };
}

/** @param {AxisFacts} axis */
export function isSound(axis) {
  return axis.media?.type === "audio/wav";
}

/**
 * @param {TimePicture} picture
 * @param {number} width
 * @param {Theme} theme
 * @returns {SVGElement[]}
 */
export function timeLayers(picture, width, theme) {
  const { axis, weights, part } = picture;
  const { bottom, curve } = timeLayout(axis);
  const scale = width / axis.extent[1];
  return [
    ...mediaLayers(picture, width, theme),
    svgElement("line", { x1: 0, x2: width, y1: bottom, y2: bottom, stroke: theme.line }),
    svgElement("path", { d: curvePath(weights, width, bottom), fill: theme.accent }),
    ...(part && axis.media ? [svgElement("rect", {
      class: "heed-part", x: part[0] * scale, width: Math.max((part[1] - part[0]) * scale, 1), y: curve - GAP + 2, height: 3, rx: 1.5, fill: theme.ink,
    })] : []),
    ...ticks(axis.extent[1], width, bottom + TICKS - 6, theme),
  ];
}

/**
 * @param {TimePicture} picture
 * @param {number} width
 * @param {Theme} theme
 */
function mediaLayers({ axis, weights, sound }, width, theme) {
  const { media } = axis;
  if (!media) return [];
  const height = isSound(axis) ? WAVE : FEATURES;
  const size = { x: 0, y: 0, width, height, preserveAspectRatio: "none" };
  const over = svgElement("image", { ...size, href: overlayImage(weights, weights.length), "image-rendering": "pixelated" });
  if (!isSound(axis)) return [...imageElements(media.url, size, true), over];
  const heard = sound ? (sound.duration / axis.extent[1]) * width : 0;
  return [
    svgElement("rect", { width, height, fill: theme.muted, "fill-opacity": 0.1 }), over,
    ...(sound ? [
      svgElement("path", { d: waveformPath(sound.getChannelData(0), heard, height), fill: theme.ink, "fill-opacity": 0.8 }),
      ...spectrogramLayers(sound, width, heard, theme),
    ] : []),
  ];
}

/** @type {WeakMap<AudioBuffer, import("./types.js").Matrix>} */
const spectrograms = new WeakMap();
/**
 * Data URLs, for each pair of colours.
 * @type {WeakMap<AudioBuffer, Map<string, string>>}
 */
const images = new WeakMap();

/**
 * @param {AudioBuffer} sound
 * @param {Theme} theme
 */
function spectrogramImage(sound, theme) {
  const colours = `${theme.surface} ${theme.accent}`;
  const own = images.get(sound) ?? new Map();
  images.set(sound, own);
  if (!own.has(colours)) {
    const levels = spectrograms.get(sound) ?? spectrogram(sound.getChannelData(0), sound.sampleRate);
    spectrograms.set(sound, levels);
    own.set(colours, renderWeights(levels, theme, { mirrored: false }).toDataURL("image/png"));
  }
  return own.get(colours);
}

/**
 * @param {AudioBuffer} sound
 * @param {number} width
 * @param {number} heard the width of the sound, which can differ a little from that of the axis
 * @param {Theme} theme
 */
function spectrogramLayers(sound, width, heard, theme) {
  const y = WAVE + GAP;
  const shown = FREQUENCIES.filter((one) => one < 0.9 * highestFrequency(sound.sampleRate));
  return [
    svgElement("image", { x: 0, y, width: heard, height: SPECTROGRAM, preserveAspectRatio: "none", href: spectrogramImage(sound, theme) }),
    svgElement("rect", { x: 0.5, y: y - 0.5, width: width - 1, height: SPECTROGRAM + 1, fill: "none", stroke: theme.line }),
    ...shown.map((frequency) => svgElement("text", {
      x: 4, y: y + SPECTROGRAM * (1 - frequencyHeight(frequency, sound.sampleRate)), "dominant-baseline": "central", fill: theme.ink,
      stroke: theme.surface, "stroke-width": 3, "stroke-opacity": 0.75, "paint-order": "stroke", "font-size": 11, "font-family": theme.font,
    }, `${frequency / 1000} kHz`)),
  ];
}

/**
 * @param {Float32Array} weights
 * @param {number} width
 * @param {number} bottom
 */
function curvePath(weights, width, bottom) {
  const peak = maxAbsolute(weights) || 1;
  const each = width / weights.length;
  const steps = Array.from(weights, (weight, i) => {
    const y = (bottom - (Math.abs(weight) / peak) * CURVE).toFixed(1);
    return `L${(i * each).toFixed(2)} ${y}L${((i + 1) * each).toFixed(2)} ${y}`;
  });
  return `M0 ${bottom}${steps.join("")}L${width} ${bottom}Z`;
}

/**
 * @param {number} seconds
 * @param {number} width
 * @param {number} y
 * @param {Theme} theme
 */
function ticks(seconds, width, y, theme) {
  const step = STEPS.find((one) => (one / seconds) * width >= 64) ?? seconds;
  const places = step < 0.1 ? 2 : step < 1 ? 1 : 0;
  return Array.from({ length: Math.floor(seconds / step + 1e-9) + 1 }, (_, i) => {
    const x = ((i * step) / seconds) * width;
    return svgElement("text", {
      x, y, "text-anchor": i === 0 ? "start" : x > width - 24 ? "end" : "middle", fill: theme.muted,
      "font-size": 12, "font-family": theme.font,
    }, `${(i * step).toFixed(places)} s`);
  });
}
