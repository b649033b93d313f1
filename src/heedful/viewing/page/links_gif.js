// The link view's Play as an animated GIF: drawn frame by frame, faster than it plays.

import { download, element, messageOf } from "./elements.js";
import { GifWriter, Palette } from "./gif.js";
import { tokenAnchor } from "./links_drawing.js";
import { paintLinks } from "./links_painting.js";
import { linksOf } from "./links_scene.js";
import { PRINT_THEME } from "./painting.js";

/** @typedef {import("./links_view.js").LinkPicture} LinkPicture */
/** @typedef {import("./links_view.js").LinksView} LinksView */

const FRAME = 80; // milliseconds
const HOLD = 200; // hundredths of a second that the complete picture stays
const TITLE_HEIGHT = 34;
const WIDEST = 1200;
const MOST_PIXELS = 2_000_000;

/**
 * @param {LinkPicture} picture with the colours for a white background
 * @param {LinksView} view
 * @param {{title: string, pace: number, advance: (share: number) => void, signal: AbortSignal}} how milliseconds for each
 *   token; called with the part that is written
 * @returns {Promise<Blob>}
 * @throws {Error} the picture is too large, or the signal is aborted
 */
export async function linksGif(picture, view, { title, pace, advance, signal }) {
  const painter = new FramePainter(picture, view, title);
  const writer = new GifWriter(painter.canvas.width, painter.canvas.height, new Palette(painter.whole()));
  const count = picture.rows.length;
  const each = Math.max(1, Math.round(pace / FRAME));
  painter.clear();
  for (let token = 0; token < count; token++) {
    for (let frame = 0; frame < each; frame++) {
      writer.add(painter.frame(token, frame / each), Math.round(FRAME / 10));
    }
    painter.complete(token);
    advance((token + 1) / count);
    await new Promise((done) => setTimeout(done)); // the page stays usable
    signal.throwIfAborted();
  }
  writer.add(painter.frame(count, 0), HOLD);
  return writer.finish();
}

/** Draws the picture with the first tokens written. */
class FramePainter {
  /**
   * @param {LinkPicture} picture
   * @param {LinksView} view
   * @param {string} title
   */
  constructor(picture, view, title) {
    const placed = /** @type {import("./links_layout.js").Placed} */ (view.placed);
    const links = /** @type {import("./links_scene.js").Links} */ (view.links);
    this.picture = picture;
    this.title = title;
    this.placed = placed;
    this.links = links;
    const scale = Math.min(1, WIDEST / placed.width);
    const width = Math.round(placed.width * scale);
    const height = Math.round((placed.height + TITLE_HEIGHT) * scale);
    if (width * height > MOST_PIXELS) throw new Error("the picture is too long for a GIF; show words, or save it as SVG");
    this.canvas = element("canvas", { width, height });
    this.base = element("canvas", { width, height });
    this.context = this.scaled(this.canvas, scale);
    this.kept = this.scaled(this.base, scale);
  }

  /** @param {HTMLCanvasElement} canvas @param {number} scale */
  scaled(canvas, scale) {
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true }));
    context.setTransform(scale, 0, 0, scale, 0, 0);
    return context;
  }

  get drawn() {
    return { scene: this.placed.scene, links: this.links, strands: this.picture.strands };
  }

  clear() {
    const { placed } = this;
    this.kept.fillStyle = PRINT_THEME.surface;
    this.kept.fillRect(0, 0, placed.width, placed.height + TITLE_HEIGHT);
  }

  /**
   * Draw the links of one query, or a part of them.
   * @param {CanvasRenderingContext2D} context
   * @param {number} query
   * @param {number} growth
   */
  paint(context, query, growth) {
    context.save();
    context.translate(0, TITLE_HEIGHT);
    paintLinks(context, this.drawn, linksOf(this.links, { query, key: -1 }), 0, { growth });
    context.restore();
  }

  /**
   * Keep the links of a query for all later frames.
   * @param {number} query
   */
  complete(query) {
    this.paint(this.kept, query, 1);
  }

  /** The pixels with everything written, which have all colours. */
  whole() {
    this.clear();
    this.picture.rows.forEach((_, query) => this.complete(query));
    return this.frame(this.picture.rows.length, 0);
  }

  /**
   * The pixels while a token is written.
   * @param {number} token
   * @param {number} share of the time of this token
   */
  frame(token, share) {
    const { context, canvas, placed, picture } = this;
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.base, 0, 0);
    context.restore();
    if (token < picture.rows.length && share > 0) this.paint(context, token, 1 - (1 - share) ** 2);
    context.textBaseline = "middle";
    context.fillStyle = PRINT_THEME.muted;
    context.textAlign = "center";
    context.font = `15px ${PRINT_THEME.font}`;
    context.fillText(this.title, placed.width / 2, 20);
    this.texts(picture.frames?.texts ?? picture.rows, placed.scene.queries, "query", picture.own ? Infinity : token + (share > 0 ? 1 : 0));
    if (!picture.own) this.texts(picture.columns, placed.scene.keys, "key", Infinity);
    return context.getImageData(0, 0, canvas.width, canvas.height).data;
  }

  /**
   * @param {string[]} labels
   * @param {import("./links_scene.js").Box[]} boxes
   * @param {"query" | "key"} side
   * @param {number} written the number of labels that are drawn
   */
  texts(labels, boxes, side, written) {
    const { context, placed: { font, scene } } = this;
    context.font = `${font}px ${PRINT_THEME.font}`;
    context.fillStyle = PRINT_THEME.ink;
    labels.slice(0, written).forEach((label, i) => {
      const { x, y, anchor } = tokenAnchor(boxes[i], font, scene.layout, side);
      context.textAlign = anchor;
      context.fillText(label, x, y + TITLE_HEIGHT);
    });
  }
}

/**
 * A button that saves Play as GIF, and cancels while it does; and before it, why the last one was not saved.
 * @param {() => {picture: LinkPicture, view: LinksView, title: string, pace: number} | null} shown
 * @param {(text: string) => void} announce
 * @returns {[HTMLElement, HTMLButtonElement]}
 */
export function gifButton(shown, announce) {
  /** @type {AbortController | null} */
  let running = null;
  const label = "Save GIF";
  const failed = element("span", { class: "heed-hint" });
  const button = element("button", {
    type: "button", class: "heed-button", onclick: async () => {
      if (running) return running.abort(new Error("the GIF is not saved"));
      const what = shown();
      failed.textContent = "";
      if (!what) return (failed.textContent = "nothing to save yet");
      running = new AbortController();
      const advance = (/** @type {number} */ share) => {
        button.textContent = `Cancel (${Math.round(100 * share)} %)`;
      };
      advance(0);
      try {
        const made = await linksGif(what.picture, what.view, { ...what, advance, signal: running.signal });
        download(made, "attention.gif");
        announce("saved as GIF");
      } catch (error) {
        failed.textContent = messageOf(error);
        announce(failed.textContent);
      } finally {
        running = null;
        button.textContent = label;
      }
    },
  }, label);
  return [failed, button];
}
