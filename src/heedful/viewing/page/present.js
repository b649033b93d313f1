// Present mode: the link view fills the screen, in large type and without controls.

import { element } from "./elements.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Models} Models */
/** @typedef {import("./session.js").Subject} Subject */

const CLASS = "heed-present";
/** The texts that were looked at and are kept as examples. */
const MOST_TEXTS = 50;

/**
 * Whether a page is in present mode.
 * @param {Page} page
 */
export function isPresenting(page) {
  return page.root.classList.contains(CLASS);
}

/**
 * Create the button of present mode, and its keys: P begins and ends it, arrow keys show the next and the previous example.
 * @param {Page} page
 * @param {Models} models
 * @param {() => void} changed called when the mode or the size of the window has changed
 * @returns {HTMLButtonElement}
 */
export function presentButton(page, models, changed) {
  const { root, session } = page;
  /**
   * The examples: the traces of the page, and then the texts that were looked at.
   * @type {Subject[]}
   */
  const examples = models.traces.map((trace) => ({ trace }));
  const traces = examples.length;
  const known = (/** @type {Subject} */ one) => {
    const key = JSON.stringify(one);
    return examples.findIndex((other) => JSON.stringify(other) === key);
  };
  session.listeners.push(() => {
    const { subject } = session;
    // Images and recordings are large, so that they are not kept.
    if (!subject || "input" in subject || known(subject) >= 0) return;
    examples.push(subject);
    if (examples.length > traces + MOST_TEXTS) examples.splice(traces, 1);
  });

  /** @param {boolean} on */
  function present(on) {
    root.classList.toggle(CLASS, on);
    if (on) {
      page.open("links");
      page.announce("Present mode: arrow keys show the next example, Space plays, P or Escape ends it.");
      // Where the browser refuses the whole screen, the window is filled.
      root.requestFullscreen?.().catch(() => {});
    } else if (document.fullscreenElement) document.exitFullscreen().catch(() => {});
    window.scrollTo(0, 0);
    changed();
  }

  /** @param {number} step */
  function move(step) {
    const at = session.subject ? known(session.subject) + step : 0;
    if (at < 0 || at >= examples.length) return page.announce(step > 0 ? "last example" : "first example");
    session.setSubject(examples[at]);
    page.announce(`example ${at + 1} of ${examples.length}`);
  }

  /**
   * @param {KeyboardEvent} event
   * @returns {void}
   */
  function pressed(event) {
    if (!root.isConnected) return document.removeEventListener("keydown", pressed, true);
    if (event.ctrlKey || event.altKey || event.metaKey || isTyping(event.target)) return;
    // In a notebook, keys outside the view belong to the notebook.
    if (root.dataset.whole !== "true" && !(event.target instanceof Node && root.contains(event.target))) return;
    const on = isPresenting(page);
    /** @type {Record<string, () => void>} */
    const actions = { p: () => present(!on), P: () => present(!on) };
    if (on) {
      Object.assign(actions, {
        Escape: () => present(false), ArrowRight: () => move(1), ArrowLeft: () => move(-1), PageDown: () => move(1), PageUp: () => move(-1),
        " ": () => /** @type {HTMLElement | null} */ (root.querySelector(".heed-panel:not([hidden]) .heed-play"))?.click(),
      });
    }
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }
  document.addEventListener("keydown", pressed, true);
  document.addEventListener("fullscreenchange", () => {
    if (!document.fullscreenElement && isPresenting(page)) present(false);
  });
  window.addEventListener("resize", () => {
    if (isPresenting(page)) changed();
  });
  return element("button", {
    type: "button", class: "heed-button heed-present-button", "aria-keyshortcuts": "P", title: "Fill the screen (P)", onclick: () => present(true),
  }, "Present");
}

/**
 * Whether a key is typed into a field.
 * @param {EventTarget | null} target
 */
function isTyping(target) {
  return target instanceof HTMLElement && target.matches("textarea, select, input:not([type=checkbox]):not([type=range]), [contenteditable]");
}
