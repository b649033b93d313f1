// The scale of a picture's colours, with numbers: as an element of the page, and as part of an SVG file.

import { element, svgElement } from "./elements.js";
import { formatWeight } from "./matrices.js";
import { blendColours, colourStrength, parseColour, peakOf } from "./painting.js";

/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./painting.js").Theme} Theme */

const STOPS = 10;
const WIDTH = 160;
const HEIGHT = 10;
/** The height of a scale in an SVG file. */
export const SCALE_HEIGHT = 40;

/**
 * The ends of the scale and the colours between them, from left to right.
 * @param {Picture} picture
 * @param {Theme} theme
 */
function scaleOf(picture, theme) {
  const peak = peakOf(picture);
  const negative = picture.layers.some(({ matrix }) => matrix.values.some((value) => value < 0));
  const surface = parseColour(theme.surface);
  const colours = Array.from({ length: STOPS + 1 }, (_, i) => {
    const share = negative ? (2 * i) / STOPS - 1 : i / STOPS;
    const full = parseColour(share < 0 ? theme.negative : theme.accent);
    return `rgb(${blendColours(surface, full, colourStrength(Math.abs(share))).map(Math.round).join(",")})`;
  });
  const high = picture.byRow ? "largest of the row" : formatWeight(peak);
  const low = !negative ? "0" : picture.byRow ? "" : `−${formatWeight(peak)}`;
  return { colours, low, high, title: picture.unit ?? "Weight" };
}

/**
 * @param {Picture} picture
 * @param {Theme} theme
 * @returns {HTMLElement}
 */
export function colourScale(picture, theme) {
  const { colours, low, high, title } = scaleOf(picture, theme);
  const ramp = element("i", { class: "heed-scale-ramp", "aria-hidden": "true" });
  ramp.style.background = `linear-gradient(to right, ${colours.join(", ")})`;
  return element(
    "div", { class: "heed-scale", role: "img", "aria-label": `Scale of colours: ${title} from ${low || "0"} to ${high}` },
    element("span", {}, title), element("span", { class: "heed-number" }, low), ramp,
    element("span", { class: "heed-number" }, high),
  );
}

/**
 * The scale as a group for an SVG file, `SCALE_HEIGHT` high.
 * @param {Picture} picture
 * @param {Theme} theme
 * @param {number} x
 * @param {number} y
 */
export function svgScale(picture, theme, x, y) {
  const { colours, low, high, title } = scaleOf(picture, theme);
  const left = 8 + title.length * 7 + low.length * 8;
  const edge = { "dominant-baseline": "central", y: SCALE_HEIGHT / 2, "font-size": 12 };
  const step = WIDTH / colours.length;
  return svgElement(
    "g", { class: "colour-scale", transform: `translate(${x} ${y})` },
    svgElement("text", { ...edge, x: 0 }, title),
    svgElement("text", { ...edge, x: left - 6, "text-anchor": "end" }, low),
    ...colours.map((colour, i) => svgElement("rect", {
      x: left + i * step, y: SCALE_HEIGHT / 2 - HEIGHT / 2, width: step + 0.3, height: HEIGHT, fill: colour, class: "scale",
    })),
    svgElement("text", { ...edge, x: left + WIDTH + 6 }, high),
  );
}
