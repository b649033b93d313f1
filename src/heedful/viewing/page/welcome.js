// What a first visitor sees: a line about the page, one translated sentence, and a tour of three steps.

import { element } from "./elements.js";

const VISITED = "heedful-visited";
const MOVE = 650;

/** Whether this browser has not been here before. Unknown counts as visited, so that nobody meets the tour twice. */
export function isFirstVisit() {
  try {
    return window.localStorage.getItem(VISITED) === null;
  } catch {
    return false;
  }
}

function remember() {
  try {
    window.localStorage.setItem(VISITED, "1");
  } catch {
    // The tour then begins again at the next visit.
  }
}

/**
 * A tour; each step points at a part of the panel.
 * @param {{text: string, part: () => Element | null}[]} steps
 */
export function welcome(steps) {
  let step = 0;
  const text = element("p", { class: "heed-tour-step", role: "status" });
  const next = element("button", { type: "button", class: "heed-button heed-submit", onclick: () => go(step + 1) }, "Next");
  const body = element(
    "aside", { class: "heed-welcome", "aria-label": "Welcome" },
    element("p", { class: "heed-tagline" }, "Translate on this machine, and see which source words each word was read from."),
    text,
    element("div", { class: "heed-tools" }, next, element("button", { type: "button", class: "heed-button", onclick: close }, "Close the tour")),
  );
  function unmark() {
    for (const one of document.querySelectorAll(".heed-toured")) one.classList.remove("heed-toured");
  }
  function close() {
    unmark();
    remember();
    body.remove();
  }
  /** @param {number} to */
  function go(to) {
    if (to >= steps.length) return close();
    step = to;
    unmark();
    text.textContent = `${step + 1} of ${steps.length}: ${steps[step].text}`;
    next.textContent = step + 1 < steps.length ? "Next" : "Done";
    steps[step].part()?.classList.add("heed-toured");
  }
  go(0);
  return body;
}

/**
 * Highlight one word of a translation after the other, once, so that the links are seen.
 * @param {import("./linked_texts.js").LinkedTexts} linked
 */
export function playLinks(linked) {
  if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const words = linked.words.target;
  let word = 0;
  const timer = window.setInterval(() => {
    const there = words === linked.words.target && words[0]?.isConnected;
    const pointed = linked.places.target.matches(":hover, :focus-within") || linked.places.source.matches(":hover, :focus-within");
    if (!there || pointed || word > words.length) return window.clearInterval(timer);
    if (linked.pinned.word < 0) linked.highlight("target", word < words.length ? word : -1);
    word += 1;
  }, MOVE);
}
