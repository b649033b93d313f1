// Thumbnails of all heads of all layers, as buttons.

import { element, rovingTabindex } from "./elements.js";
import { patternText } from "./head_patterns.js";
import { isRightToLeft } from "./matrices.js";
import { thumbnails, themeOf } from "./painting.js";
import { fromBase64 } from "./providers.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").MapFacts} MapFacts */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */

/** @typedef {{map: number, head: number}} Head */
/** @typedef {{key: string, title: string, maps: number[], names: string[]}} Group */

/**
 * Group the maps of different layers: those with the same kind and the same axes. Posteriors are no layers.
 * @param {MapFacts[]} maps
 * @returns {Group[]}
 */
export function groupsOf(maps) {
  /** @type {Map<string, Group>} */
  const groups = new Map();
  maps.forEach((facts, i) => {
    const own = facts.kind === "posterior" ? facts.name : null;
    const key = [facts.kind, facts.query_axis, facts.key_axis, facts.step_axis, own].filter(Boolean).join(" ");
    const group = groups.get(key) ?? { key, title: groupTitle(facts), maps: [], names: [] };
    group.maps.push(i);
    group.names.push(facts.name);
    groups.set(key, group);
  });
  return [...groups.values()];
}

/** @param {MapFacts} facts */
function groupTitle(facts) {
  const { query_axis: query, key_axis: key } = facts;
  let over = query === key ? `Self: ${query}` : `${query} over ${key}`;
  if (query === "source" && key === "source") over = "Encoder";
  if (query === "target" && key === "target") over = "Decoder";
  if (query === "target" && key === "source") over = "Cross";
  if (facts.step_axis) over += `, ${facts.step_axis}`;
  if (facts.kind === "rollout") return `Rollout: ${over.toLowerCase()}`;
  if (facts.kind === "posterior") return `Posterior ${facts.name}: ${over.toLowerCase()}`;
  if (facts.kind === "copying") return `Copying: ${over.toLowerCase()}`;
  if (facts.kind === "gradient") return `Attention × gradient: ${over.toLowerCase()}`;
  return over;
}

/**
 * The titles of the rows and columns of a map.
 * @param {MapFacts} facts
 * @returns {{rowTitle: string, columnTitle: string}}
 */
export function titles(facts) {
  const [row, column] = [facts.query_axis, facts.key_axis];
  if (row === column) return { rowTitle: `queries (${row})`, columnTitle: "keys" };
  const read = column === "source" ? "source tokens" : column;
  return { rowTitle: facts.written ? "output tokens" : row, columnTitle: read };
}

/**
 * The name of a layer: its number in the group. Modules that are not layers, such as the heads of a memory, have names.
 * @param {Group} group
 * @param {number} place
 */
export function layerName(group, place) {
  if (group.names.length > 1 && !group.names.some((name) => /\d/.test(name))) {
    const name = group.names[place].split(".").slice(-1)[0].replaceAll("_", " ");
    return name[0].toUpperCase() + name.slice(1);
  }
  return `Layer ${place + 1}`;
}

/**
 * The name of a head; in rollout, an index is a layer, not a head (see inference/relevance.py). A posterior has no heads.
 * @param {LoadedTrace} trace
 * @param {Group} group
 * @param {Head} head
 */
export function headName(trace, group, { map, head }) {
  const facts = trace.summary.maps[map];
  if (facts.kind === "copying") return layerName(group, group.maps.indexOf(map));
  if (facts.kind === "posterior") return facts.heads > 1 ? `${facts.name} · ${head + 1}` : facts.name;
  if (facts.kind !== "rollout") return `${layerName(group, group.maps.indexOf(map))} · head ${head + 1}`;
  return facts.query_axis === facts.key_axis && head ? `Layers 1 to ${head + 1}` : `Layer ${head + 1}`;
}

/**
 * @param {Page} page
 * @param {LoadedTrace} trace
 * @param {Group} group
 * @param {(head: Head, add: boolean) => void} chosen
 * @returns {HTMLElement}
 */
export function overview(page, trace, group, chosen) {
  const theme = themeOf(page.root);
  const maximum = Math.max(...group.maps.map((map) => trace.summary.maps[map].heads));
  const grid = element("div", { class: "heed-grid", role: "group", "aria-label": `${group.title}: select a head` });
  grid.style.setProperty("--heads", String(maximum));
  const named = group.maps.length > 1 && !layerName(group, 0).startsWith("Layer ");
  if (named) grid.style.setProperty("--layer-name", "5.5em");
  group.maps.forEach((map, place) => {
    const facts = trace.summary.maps[map];
    const mirrored = isRightToLeft(trace.columnLabels(map));
    const pictures = thumbnails(fromBase64(facts.thumbnails), facts, theme, mirrored);
    const row = element(
      "div", { class: "heed-layer" },
      element("span", { class: "heed-layer-name", title: facts.name }, group.maps.length > 1 ? layerName(group, place).replace("Layer ", "") : ""),
    );
    pictures.forEach((picture, head) => {
      const pattern = patternText(facts, head);
      const label = `${headName(trace, group, { map, head })}, ${pattern && `${pattern}, `}entropy ${facts.entropy[head].toFixed(1)} bits`;
      picture.setAttribute("aria-hidden", "true");
      row.append(element("button", {
        type: "button", class: "heed-thumbnail", "aria-label": label, title: `${label}\n${facts.name}`,
        "aria-pressed": "false", tabindex: -1, "data-map": map, "data-head": head,
        onclick: (/** @type {MouseEvent} */ event) => chosen({ map, head }, event.shiftKey || event.ctrlKey || event.metaKey),
      }, picture));
    });
    grid.append(row);
  });
  const first = grid.querySelector("button");
  if (first) first.tabIndex = 0;
  rovingTabindex(grid, "button", () => maximum);
  return grid;
}

/**
 * Mark the selected heads, each in its colour.
 * @param {HTMLElement} grid
 * @param {Head[]} heads
 * @param {(place: number) => string | null} colour
 */
export function markChosen(grid, heads, colour) {
  for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (grid.querySelectorAll("button"))) {
    const place = heads.findIndex(
      (one) => String(one.map) === button.dataset.map && String(one.head) === button.dataset.head,
    );
    button.setAttribute("aria-pressed", String(place >= 0));
    button.style.setProperty("--selected-colour", (place >= 0 && colour(place)) || "var(--heed-accent)");
  }
}
