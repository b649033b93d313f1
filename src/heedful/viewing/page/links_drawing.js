// The link view as an SVG file, and the legend of its scale.

import { svgElement } from "./elements.js";
import { serializeSvg } from "./exporting.js";
import { svgLinks } from "./links_painting.js";
import { stripElements } from "./links_time.js";
import { bandStyle, LEVELS, linksOf } from "./links_scene.js";
import { PRINT_THEME } from "./painting.js";

/** @typedef {import("./links_view.js").LinkPicture} LinkPicture */
/** @typedef {import("./links_view.js").LinksView} LinksView */

/**
 * @param {LinkPicture} picture
 * @param {LinksView} view
 * @param {string} title
 * @returns {string}
 */
export function linksSvg(picture, view, title) {
  const placed = /** @type {import("./links_layout.js").Placed} */ (view.placed);
  const links = /** @type {import("./links_scene.js").Links} */ (view.links);
  const { scene, font } = placed;
  const top = 34;
  const legend = picture.strands.length > 1 ? 26 : 0;
  const height = Math.ceil(placed.height + top + 34 + legend);
  const image = svgElement("svg", {
    xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${Math.ceil(placed.width)} ${height}`, width: Math.ceil(placed.width), height,
    "font-family": PRINT_THEME.font, "font-size": font, fill: PRINT_THEME.ink,
  }, svgElement("title", {}, title), svgElement("rect", { width: "100%", height: "100%", fill: PRINT_THEME.surface }),
  svgElement("text", { x: placed.width / 2, y: 20, "font-size": 15, "text-anchor": "middle", fill: PRINT_THEME.muted }, title));
  const drawn = { scene, links, strands: picture.strands };
  const all = view.isolated ? linksOf(links, view.place(view.isolated)) : Uint32Array.from(links.query.keys());
  const order = all.filter((link) => links.query[link] < view.upto);
  const group = svgElement("g", { transform: `translate(0 ${top})` }, svgLinks(drawn, order));
  if (picture.frames) group.append(...stripElements(picture.frames, placed, view.strip.sound, PRINT_THEME));
  else group.append(...svgTokens(picture.rows, scene.queries, font, scene.layout, "query").slice(0, view.upto));
  if (!picture.own) group.append(...svgTokens(picture.columns, scene.keys, font, scene.layout, "key"));
  const scale = scaleGroup(picture, PRINT_THEME);
  scale.setAttribute("transform", `translate(${Math.max(0, placed.width / 2 - 150)} ${height - 30 - legend})`);
  image.append(group, scale, ...svgStrands(picture, height - 14));
  return serializeSvg(image);
}

/**
 * @param {string[]} labels
 * @param {import("./links_scene.js").Box[]} boxes
 * @param {number} font
 * @param {string} layout
 * @param {"query" | "key"} side
 */
function svgTokens(labels, boxes, font, layout, side) {
  return labels.map((label, i) => {
    const { x, y, anchor } = tokenAnchor(boxes[i], font, layout, side);
    return svgElement("text", {
      x: round(x), y: round(y), "dominant-baseline": "central", "text-anchor": anchor === "center" ? "middle" : anchor,
    }, label);
  });
}

/**
 * Where a token is written in its box, and which part of it is there.
 * @param {import("./links_scene.js").Box} box
 * @param {number} font
 * @param {string} layout
 * @param {"query" | "key"} side
 * @returns {{x: number, y: number, anchor: "start" | "end" | "center"}}
 */
export function tokenAnchor(box, font, layout, side) {
  const y = box.y + box.height / 2;
  if (layout !== "columns") return { x: box.x + box.width / 2, y, anchor: "center" };
  if (side === "key") return { x: box.x + box.width - font * 0.3, y, anchor: "end" };
  return { x: box.x + font * 0.3, y, anchor: "start" };
}

/**
 * The names of the heads in their colours.
 * @param {LinkPicture} picture
 * @param {number} y
 */
function svgStrands({ strands }, y) {
  if (strands.length < 2) return [];
  let x = 8;
  return strands.flatMap(({ name, colour }) => {
    const parts = [
      svgElement("rect", { x, y: y - 6, width: 12, height: 12, fill: colour, class: "legend" }),
      svgElement("text", { x: x + 18, y, "font-size": 13, "dominant-baseline": "central" }, name),
    ];
    x += 40 + name.length * 7.5;
    return parts;
  });
}

/**
 * Four links with their weights.
 * @param {LinkPicture} picture
 * @param {{accent: string, ink: string}} theme
 */
function scaleGroup(picture, theme) {
  const group = svgElement("g", { "font-size": 12.5 }, svgElement("text", { x: 0, y: 11, "dominant-baseline": "central", fill: theme.ink }, "Weight"));
  const colour = picture.strands.length > 1 ? theme.ink : theme.accent;
  [0.1, 0.25, 0.5, 1].forEach((share, i) => {
    const { width, opacity } = bandStyle(Math.min(LEVELS - 1, Math.floor(share * LEVELS)), 12);
    const x = 54 + i * 64;
    group.append(
      svgElement("line", { x1: x, x2: x + 26, y1: 11, y2: 11, stroke: colour, "stroke-width": width, "stroke-opacity": opacity }),
      svgElement("text", { x: x + 31, y: 11, "dominant-baseline": "central", fill: theme.ink }, String(Number((share * picture.scale).toPrecision(2)))),
    );
  });
  return group;
}

/**
 * The legend of the scale on the page.
 * @param {LinkPicture} picture
 * @param {{accent: string, ink: string}} theme
 */
export function scaleLegend(picture, theme) {
  const numbers = [0.1, 0.25, 0.5, 1].map((share) => Number((share * picture.scale).toPrecision(2))).join(", ");
  return svgElement("svg", { viewBox: "0 0 300 22", width: 300, height: 22, role: "img", "aria-label": `Widths of links with the weights ${numbers}` }, scaleGroup(picture, theme));
}

/** @param {number} value */
function round(value) {
  return Math.round(value * 10) / 10;
}
