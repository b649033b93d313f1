// Convert weights to colours and pixels.

import { maxPool, rowOf } from "./matrices.js";

/** @typedef {import("./types.js").Layer} Layer */
/** @typedef {number[]} Colour red, green and blue */

/**
 * A palette that is distinguishable with all types of colour vision (Okabe and Ito 2008), without black and with a
 * darker yellow, which is visible on white.
 */
export const HEAD_COLOURS = [
  "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b8a800", "#7f7f7f",
];

/** The same palette for a dark background: light colours first, with the original yellow. */
export const HEAD_COLOURS_DARK = [
  "#56b4e9", "#e69f00", "#1fc091", "#d98bb8", "#f0e442", "#3d95d0", "#ee7733", "#a8a8a8",
];

/**
 * @typedef {object} Theme
 * @property {boolean} dark
 * @property {string} surface
 * @property {string} ink
 * @property {string} muted
 * @property {string} line
 * @property {string} accent
 * @property {string} negative the colour of negative weights
 * @property {string} font
 */

/** @type {Theme} the theme of exported files: a white background */
export const PRINT_THEME = {
  dark: false,
  surface: "#ffffff",
  ink: "#1d2426",
  muted: "#5d686b",
  line: "#d9dedf",
  accent: "#0b6b63",
  negative: "#b3541e",
  font: "'Noto Sans', 'Segoe UI', 'Helvetica Neue', Arial, sans-serif",
};

/**
 * The current colours, from the style sheet.
 * @param {HTMLElement} root
 * @returns {Theme}
 */
export function themeOf(root) {
  const style = getComputedStyle(root);
  /** @param {string} name */
  const read = (name) => style.getPropertyValue(`--heed-${name}`).trim();
  return {
    dark: read("dark") === "1",
    surface: read("surface"),
    ink: read("ink"),
    muted: read("muted"),
    line: read("line"),
    accent: read("weight"),
    negative: read("negative-weight"),
    font: style.fontFamily,
  };
}

/**
 * @param {string} hex
 * @returns {Colour}
 */
export function parseColour(hex) {
  const number = parseInt(hex.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

/**
 * The strength of the colour for a share of the largest weight. The exponent makes small weights visible.
 * @param {number} share
 */
export function colourStrength(share) {
  return Math.pow(Math.min(Math.max(share, 0), 1), 0.75);
}

/**
 * Blend a colour with the surface.
 * @param {Colour} surface
 * @param {Colour} colour
 * @param {number} strength
 * @returns {Colour}
 */
export function blendColours(surface, colour, strength) {
  return [0, 1, 2].map((channel) => surface[channel] + (colour[channel] - surface[channel]) * strength);
}

/**
 * The colour of a cell with several layers: the mean of their colours, weighted by their shares, with the strength of
 * the largest share.
 * @param {Colour} surface
 * @param {Colour[]} colours
 * @param {ArrayLike<number>} shares the weight of each layer divided by its peak, 0 to 1
 * @returns {Colour}
 */
export function mixColours(surface, colours, shares) {
  let sum = 0;
  let maximum = 0;
  /** @type {Colour} */
  const mean = [0, 0, 0];
  for (let layer = 0; layer < colours.length; layer++) {
    const share = Math.max(shares[layer], 0);
    for (let channel = 0; channel < 3; channel++) mean[channel] += colours[layer][channel] * share;
    sum += share;
    maximum = Math.max(maximum, share);
  }
  if (!sum) return surface;
  return blendColours(surface, [mean[0] / sum, mean[1] / sum, mean[2] / sum], colourStrength(maximum));
}

/**
 * Whether cells are wide enough for one stripe per layer; otherwise, colours are mixed.
 * @param {number} layers
 * @param {number} width the width of a cell in pixels
 */
export function fitsStripes(layers, width) {
  return layers > 1 && width >= layers * 3;
}

/**
 * A canvas with one pixel per weight (with stripes, one per weight and layer), or per block of `down` × `across`
 * weights.
 * @param {Layer[]} layers
 * @param {Theme} theme
 * @param {{mirrored: boolean, byRow?: boolean, stripes?: boolean, down?: number, across?: number}} how
 * @returns {HTMLCanvasElement}
 */
export function renderWeights(layers, theme, { mirrored, byRow = false, stripes = false, down = 1, across = 1 }) {
  const matrices = layers.map((layer) => maxPool(layer.matrix, down, across));
  const peaks = matrices.map((matrix) => rowPeaks(matrix, byRow));
  const [{ rows, columns }] = matrices;
  const each = stripes ? layers.length : 1;
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(columns * each, 1);
  canvas.height = Math.max(rows, 1);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const surface = parseColour(theme.surface);
  const colours = layers.map((layer) => parseColour(layer.colour ?? theme.accent));
  const ramps = colours.map((colour) => colourRamp(surface, colour, parseColour(theme.negative)));
  const shares = new Float32Array(matrices.length);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const from = row * columns + column;
      const to = row * canvas.width + (mirrored ? columns - 1 - column : column) * each;
      matrices.forEach((one, i) => (shares[i] = peaks[i][row] ? one.values[from] / peaks[i][row] : 0));
      if (stripes || ramps.length === 1) {
        ramps.forEach((ramp, i) => (pixels[to + i] = ramp[Math.round(Math.min(Math.max(shares[i], -1), 1) * 255) + 255]));
      } else pixels[to] = packPixel(mixColours(surface, colours, shares));
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** Colours of positive and negative weights over a grey picture, visible on black and on white. */
const OVERLAY_COLOURS = ["#ff9a00", "#3d8bff"];

/**
 * A transparent image of a row of weights, with one pixel per weight.
 * @param {ArrayLike<number>} weights
 * @param {number} columns
 * @returns {string} a data URL
 */
export function overlayImage(weights, columns) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = Math.ceil(weights.length / columns);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(canvas.width, canvas.height);
  const colours = OVERLAY_COLOURS.map(parseColour);
  const peak = maxAbsolute(weights);
  for (let i = 0; i < weights.length; i++) {
    const alpha = peak ? 0.8 * colourStrength(Math.abs(weights[i]) / peak) : 0;
    image.data.set([...colours[weights[i] < 0 ? 1 : 0], Math.round(alpha * 255)], i * 4);
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL("image/png");
}

/** @param {ArrayLike<number>} weights */
export function maxAbsolute(weights) {
  let maximum = 0;
  for (let i = 0; i < weights.length; i++) maximum = Math.max(maximum, Math.abs(weights[i]));
  return maximum;
}

/**
 * The weight that has the full colour in each row: the largest of the matrix, or of the row.
 * @param {import("./types.js").Matrix} matrix
 * @param {boolean} byRow
 * @returns {Float32Array}
 */
export function rowPeaks(matrix, byRow) {
  const peaks = new Float32Array(matrix.rows).fill(matrix.peak);
  if (!byRow) return peaks;
  for (let row = 0; row < matrix.rows; row++) {
    peaks[row] = maxAbsolute(rowOf(matrix, row));
  }
  return peaks;
}

/**
 * A table of pixels for shares from −1 to 1 in steps of 1/255.
 * @param {Colour} surface
 * @param {Colour} colour
 * @param {Colour} negative
 */
function colourRamp(surface, colour, negative) {
  const ramp = new Uint32Array(511);
  for (let i = 0; i < 511; i++) {
    const share = (i - 255) / 255;
    ramp[i] = packPixel(blendColours(surface, share < 0 ? negative : colour, colourStrength(Math.abs(share))));
  }
  return ramp;
}

/** @param {Colour} pixel */
function packPixel([red, green, blue]) {
  // RGBA in little-endian order, which all machines with a browser use.
  return ((255 << 24) | (Math.round(blue) << 16) | (Math.round(green) << 8) | Math.round(red)) >>> 0;
}

/**
 * Draw the thumbnails of all heads of a map.
 * @param {Uint8Array} bytes [heads, h, w]
 * @param {{heads: number, thumbnail_size: [number, number], negative: boolean}} map
 * @param {Theme} theme
 * @param {boolean} mirrored
 * @returns {HTMLCanvasElement[]}
 */
export function thumbnails(bytes, map, theme, mirrored) {
  const [height, width] = map.thumbnail_size;
  return Array.from({ length: map.heads }, (_, head) => {
    const values = Float32Array.from(
      bytes.subarray(head * height * width, (head + 1) * height * width),
      (byte) => (map.negative ? (byte - 128) / 127 : byte / 255),
    );
    const matrix = { rows: height, columns: width, values, peak: 1 };
    return renderWeights([{ name: "", matrix, colour: null }], theme, { mirrored });
  });
}
