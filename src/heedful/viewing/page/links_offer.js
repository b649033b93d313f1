// Whether there is anything to show in the Links panel.

import { hasView, isFlat } from "./axis_views.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Models} Models */
/** @typedef {import("./types.js").Summary} Summary */

/** If there are more traces, the page does not wait for them. */
const MOST_TRACES = 8;

/**
 * Whether links can be drawn for a map: between labels, or from frames of a sound to labels.
 * @param {import("./types.js").MapFacts} facts
 * @param {Summary["kinds"]} kinds
 */
export function hasLinks({ query_axis: query, key_axis: key }, kinds) {
  return isFlat(kinds[key]) && (isFlat(kinds[query]) || kinds[query].kind === "time");
}

/**
 * Whether a model may have links. The panel is also offered for a model without attention, to explain that it has none.
 * @param {{maps?: {key_kind?: string}[]}} model
 */
function modelHasLinks({ maps = [] }) {
  return !maps.length || maps.some(({ key_kind: kind = "tokens" }) => !hasView({ kind }));
}

/**
 * Whether a model or a trace of the page may have links.
 * @param {Page} page
 * @param {Models} models
 * @returns {Promise<boolean>}
 */
export async function offersLinks({ session }, { models, readers = [], traces }) {
  if ([...models, ...readers].some(modelHasLinks) || traces.length > MOST_TRACES) return true;
  const loaded = await Promise.all(traces.map((trace) => session.load({ trace }).catch(() => null)));
  return loaded.some((one) => !one?.summary.maps.length || one.summary.maps.some((facts) => hasLinks(facts, one.summary.kinds)));
}
