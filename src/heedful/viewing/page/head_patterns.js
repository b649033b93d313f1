// What heads attend to, in words: next to one head, and as a list of all heads by pattern.

import { element } from "./elements.js";

/** @typedef {import("./types.js").MapFacts} MapFacts */
/** @typedef {import("./overview.js").Head} Head */
/** @typedef {import("./overview.js").Group} Group */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */

const MIXED = "mixed";

/**
 * The pattern of a head with its share; empty if it was not computed.
 * @param {MapFacts} facts
 * @param {number} head
 */
export function patternText(facts, head) {
  const pattern = facts.patterns?.[head];
  if (!pattern) return "";
  return pattern.name === MIXED ? "no single pattern" : `${pattern.name} ${pattern.share.toFixed(2)}`;
}

/**
 * The heads of a group by pattern, as buttons; those without a pattern are counted.
 * @param {LoadedTrace} trace
 * @param {Group} group
 * @param {(head: Head) => string} nameOf
 * @param {(heads: Head[]) => void} chosen
 * @returns {HTMLElement}
 */
export function patternList(trace, group, nameOf, chosen) {
  /** @type {Map<string, {head: Head, share: number}[]>} */
  const found = new Map();
  let [mixed, all] = [0, 0];
  for (const map of group.maps) {
    for (const [head, { name, share }] of (trace.summary.maps[map].patterns ?? []).entries()) {
      all += 1;
      if (name === MIXED) mixed += 1;
      else found.set(name, [...(found.get(name) ?? []), { head: { map, head }, share }]);
    }
  }
  const body = element("div", { class: "heed-patterns" });
  if (!all) return body;
  const rows = [...found].sort(([, a], [, b]) => b.length - a.length).map(([name, heads]) => {
    heads.sort((a, b) => b.share - a.share);
    const names = heads.map(({ head, share }) => `${nameOf(head)}: ${share.toFixed(2)}`).join("\n");
    return element("li", {}, element("button", {
      type: "button", class: "heed-pattern", title: names, onclick: () => chosen(heads.map(({ head }) => head)),
      "aria-label": `${name}: show ${heads.length === 1 ? "this head" : `these ${heads.length} heads`}`,
    }, element("span", {}, name), element("span", { class: "heed-number" }, String(heads.length))));
  });
  if (mixed) rows.push(element("li", { class: "heed-hint" }, `no single pattern: ${mixed} of ${all}`));
  body.append(element("h3", { class: "heed-picture-title" }, "Heads by pattern"), element("ul", {}, ...rows));
  return body;
}
