// Create DOM elements. Text becomes text nodes, never markup.

/** @typedef {string | number | boolean | null | undefined | ((event: any) => void)} Attribute */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {Element} made
 * @param {Record<string, Attribute>} attributes
 * @param {(Node | string | null)[]} children
 */
function furnish(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, String(value));
  }
  for (const child of children) if (child !== null) made.append(child);
}

/**
 * Creates an element; functions among the attributes ("onclick") become event listeners.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, Attribute>} [attributes]
 * @param {...(Node | string | null)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  furnish(made, attributes, children);
  return made;
}

/**
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, Attribute>} [attributes]
 * @param {...(Node | string | null)} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function svgElement(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  furnish(made, attributes, children);
  return /** @type {SVGElementTagNameMap[K]} */ (made);
}

/**
 * A select element with a label.
 * @param {string} label
 * @param {{value: string, text: string}[]} options
 * @param {string} value
 * @param {(value: string) => void} changed
 * @returns {{field: HTMLLabelElement, input: HTMLSelectElement}}
 */
export function choice(label, options, value, changed) {
  /** @type {HTMLSelectElement} */
  const input = element("select", { onchange: () => changed(input.value) });
  fillChoice(input, options, value);
  return { field: element("label", { class: "heed-field" }, element("span", {}, label), input), input };
}

/**
 * @param {HTMLSelectElement} input
 * @param {{value: string, text: string}[]} options
 * @param {string} value
 */
export function fillChoice(input, options, value) {
  input.replaceChildren(...options.map((one) => element("option", { value: one.value }, one.text)));
  input.value = value;
}

/**
 * A checkbox with a label.
 * @param {string} label
 * @param {boolean} on
 * @param {(on: boolean) => void} changed
 * @returns {{field: HTMLLabelElement, input: HTMLInputElement}}
 */
export function toggle(label, on, changed) {
  /** @type {HTMLInputElement} */
  const input = element("input", { type: "checkbox", onchange: () => changed(input.checked) });
  input.checked = on;
  return { field: element("label", { class: "heed-toggle" }, input, element("span", {}, label)), input };
}

/**
 * An input with a label, for a short text or a number.
 * @param {string} label
 * @param {Record<string, Attribute>} attributes
 * @param {() => void} changed
 * @returns {{field: HTMLLabelElement, input: HTMLInputElement}}
 */
export function entry(label, attributes, changed) {
  const input = element("input", { class: "heed-key", ...attributes, oninput: changed });
  return { field: element("label", { class: "heed-field" }, element("span", {}, label), input), input };
}

/**
 * A radio group of buttons; arrow keys move between them.
 * @param {string} label
 * @param {{value: string, text: string}[]} options
 * @param {string} value
 * @param {(value: string) => void} changed
 * @returns {HTMLElement}
 */
export function segments(label, options, value, changed) {
  const group = element("div", { class: "heed-segments", role: "radiogroup", "aria-label": label });
  const buttons = options.map((one) =>
    element("button", { type: "button", role: "radio", onclick: () => pick(one.value, true) }, one.text),
  );
  /** @param {string} chosen @param {boolean} say */
  function pick(chosen, say) {
    options.forEach((one, i) => {
      buttons[i].setAttribute("aria-checked", String(one.value === chosen));
      buttons[i].tabIndex = one.value === chosen ? 0 : -1;
    });
    if (say) changed(chosen);
  }
  pick(value, false);
  group.append(...buttons);
  roving(group, "button", () => 1, (button) => button.click());
  return group;
}

/**
 * A roving tab index: Tab enters a group once, and arrow keys move within it.
 * @param {HTMLElement} group
 * @param {string} selector its items
 * @param {() => number} columns the number of items per row (1: all arrow keys move by one)
 * @param {(item: HTMLElement) => void} [moved]
 */
export function roving(group, selector, columns, moved) {
  group.addEventListener("keydown", (event) => {
    const items = /** @type {HTMLElement[]} */ ([...group.querySelectorAll(selector)]);
    const at = items.indexOf(/** @type {HTMLElement} */ (event.target));
    if (at < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
    const ahead = getComputedStyle(group).direction === "rtl" ? -1 : 1;
    const down = columns();
    /** @type {Record<string, number>} */
    const steps = { ArrowRight: ahead, ArrowLeft: -ahead, ArrowDown: down, ArrowUp: -down };
    const to = event.key === "Home" ? 0 : event.key === "End" ? items.length - 1 : at + (steps[event.key] ?? 0);
    if (to === at || to < 0 || to >= items.length) return;
    event.preventDefault();
    focusItem(items, to);
    if (moved) moved(items[to]);
  });
}

/**
 * @param {HTMLElement[]} items
 * @param {number} at
 */
export function focusItem(items, at) {
  items.forEach((item, i) => (item.tabIndex = i === at ? 0 : -1));
  items[at]?.focus();
}

/**
 * Debounces `work`.
 * @param {number} milliseconds
 * @param {() => void} work
 * @returns {() => void}
 */
export function whenQuiet(milliseconds, work) {
  /** @type {number | undefined} */
  let timer;
  return () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(work, milliseconds);
  };
}

/**
 * @param {Blob} blob
 * @param {string} name
 */
export function download(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  window.setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/**
 * Whether an error means that a request was aborted.
 * @param {unknown} error
 */
export function wasAborted(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/**
 * @param {unknown} error
 * @returns {string}
 */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}
