// Draws links on a canvas, a part in each frame, and as SVG.

import { svgElement } from "./elements.js";
import { bandStyle, cutCurve, linkCurve, strandSpread } from "./links_scene.js";

/** @typedef {import("./links_scene.js").Scene} Scene */
/** @typedef {import("./links_scene.js").Links} Links */
/** @typedef {import("./links_scene.js").Strand} Strand */

// Links of one colour and strength are one path, of at most this number, after which the time is checked.
const BATCH = 32;
const curve = new Float64Array(8);

/**
 * Draw links until the time is used.
 * @param {CanvasRenderingContext2D} context
 * @param {{scene: Scene, links: Links, strands: Strand[]}} drawn
 * @param {Uint32Array} order indices of links
 * @param {number} from the first place in `order`
 * @param {{until?: number, growth?: number, below?: number}} how the time at which to stop; the part of each link that
 *   is drawn; only links of queries below this one
 * @returns {number} the next place in `order`
 */
export function paintLinks(context, { scene, links, strands }, order, from, { until = Infinity, growth = 1, below = Infinity }) {
  context.lineCap = growth < 1 ? "round" : "butt";
  let at = from;
  while (at < order.length) {
    const level = links.level[order[at]];
    const strand = links.strand[order[at]];
    const spread = strandSpread(strand, strands.length);
    const { width, opacity } = bandStyle(level, scene.thick);
    context.strokeStyle = strands[strand].colour;
    context.lineWidth = width;
    context.globalAlpha = opacity;
    context.beginPath();
    const end = Math.min(order.length, at + BATCH);
    for (; at < end; at++) {
      const link = order[at];
      if (links.level[link] !== level || links.strand[link] !== strand) break;
      if (links.query[link] >= below) continue;
      linkCurve(scene, links.query[link], links.key[link], spread, curve);
      if (growth < 1) cutCurve(curve, growth);
      context.moveTo(curve[0], curve[1]);
      context.bezierCurveTo(curve[2], curve[3], curve[4], curve[5], curve[6], curve[7]);
    }
    context.stroke();
    if (performance.now() > until) break;
  }
  context.globalAlpha = 1;
  return at;
}

/**
 * The links as an SVG group.
 * @param {{scene: Scene, links: Links, strands: Strand[]}} drawn
 * @param {Uint32Array} order
 */
export function svgLinks({ scene, links, strands }, order) {
  const group = svgElement("g", { fill: "none" });
  for (const link of order) {
    const { width, opacity } = bandStyle(links.level[link], scene.thick);
    const strand = links.strand[link];
    linkCurve(scene, links.query[link], links.key[link], strandSpread(strand, strands.length), curve);
    const [x0, y0, ...rest] = Array.from(curve, (value) => Math.round(value * 10) / 10);
    group.append(svgElement("path", {
      d: `M${x0} ${y0}C${rest.join(" ")}`, stroke: strands[strand].colour, "stroke-width": Math.round(width * 100) / 100,
      "stroke-opacity": opacity.toFixed(3), "data-row": links.query[link], "data-column": links.key[link],
      "data-weight": Number(links.weight[link].toPrecision(6)),
    }));
  }
  return group;
}
