// Functions that create elements. Text becomes text nodes, never markup.

/** @typedef {string | number | boolean | null | undefined | ((event: any) => void)} Attribute */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {Element} created
 * @param {Record<string, Attribute>} attributes
 * @param {(Node | string | null)[]} children
 */
function applyAttributes(created, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") created.addEventListener(name.slice(2), value);
    else if (value === true) created.setAttribute(name, "");
    else if (value !== false && value != null) created.setAttribute(name, String(value));
  }
  for (const child of children) if (child !== null) created.append(child);
}

/**
 * Create an element; attributes that are functions ("onclick") become event listeners.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, Attribute>} [attributes]
 * @param {...(Node | string | null)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(tag, attributes = {}, ...children) {
  const created = document.createElement(tag);
  applyAttributes(created, attributes, children);
  return created;
}

/**
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, Attribute>} [attributes]
 * @param {...(Node | string | null)} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function svgElement(tag, attributes = {}, ...children) {
  const created = document.createElementNS(SVG, tag);
  applyAttributes(created, attributes, children);
  return /** @type {SVGElementTagNameMap[K]} */ (created);
}

/**
 * The element with the focus in the document, or in the shadow tree, of another element.
 * @param {Element} near
 * @returns {Element | null}
 */
export function focusedNear(near) {
  const tree = near.getRootNode();
  return tree instanceof Document || tree instanceof ShadowRoot ? tree.activeElement : null;
}

/**
 * Create a labelled select field.
 * @param {string} label
 * @param {{value: string, text: string}[]} options
 * @param {string} value
 * @param {(value: string) => void} changed
 * @returns {{field: HTMLLabelElement, input: HTMLSelectElement}}
 */
export function selectField(label, options, value, changed) {
  /** @type {HTMLSelectElement} */
  const input = element("select", { onchange: () => changed(input.value) });
  setOptions(input, options, value);
  return { field: element("label", { class: "heed-field" }, element("span", {}, label), input), input };
}

/**
 * @param {HTMLSelectElement} input
 * @param {{value: string, text: string}[]} options
 * @param {string} value
 */
export function setOptions(input, options, value) {
  input.replaceChildren(...options.map((one) => element("option", { value: one.value }, one.text)));
  input.value = value;
}

/**
 * Create a labelled check box.
 * @param {string} label
 * @param {boolean} on
 * @param {(on: boolean) => void} changed
 * @returns {{field: HTMLLabelElement, input: HTMLInputElement}}
 */
export function checkbox(label, on, changed) {
  /** @type {HTMLInputElement} */
  const input = element("input", { type: "checkbox", onchange: () => changed(input.checked) });
  input.checked = on;
  return { field: element("label", { class: "heed-toggle" }, input, element("span", {}, label)), input };
}

/**
 * Create a labelled field for a short text or a number.
 * @param {string} label
 * @param {Record<string, Attribute>} attributes
 * @param {() => void} changed
 * @returns {{field: HTMLLabelElement, input: HTMLInputElement}}
 */
export function inputField(label, attributes, changed) {
  const input = element("input", { class: "heed-key", ...attributes, oninput: changed });
  return { field: element("label", { class: "heed-field" }, element("span", {}, label), input), input };
}

/**
 * Create a radio group, shown as a row of buttons; arrow keys move between them.
 * @param {string} label
 * @param {{value: string, text: string}[]} options
 * @param {string} value
 * @param {(value: string) => void} changed
 * @returns {HTMLElement}
 */
export function radioGroup(label, options, value, changed) {
  const group = element("div", { class: "heed-segments", role: "radiogroup", "aria-label": label });
  const buttons = options.map((one) =>
    element("button", { type: "button", role: "radio", onclick: () => pick(one.value, true) }, one.text),
  );
  /** @param {string} chosen @param {boolean} notify */
  function pick(chosen, notify) {
    options.forEach((one, i) => {
      buttons[i].setAttribute("aria-checked", String(one.value === chosen));
      buttons[i].tabIndex = one.value === chosen ? 0 : -1;
    });
    if (notify) changed(chosen);
  }
  pick(value, false);
  group.append(...buttons);
  rovingTabindex(group, "button", () => 1, (button) => button.click());
  return group;
}

/**
 * Give a group a roving tabindex: it is one Tab stop, and arrow keys move within it.
 * @param {HTMLElement} group
 * @param {string} selector selects its items
 * @param {() => number} columns number of items in a row (1: arrows in both directions move by one)
 * @param {(item: HTMLElement) => void} [moved]
 */
export function rovingTabindex(group, selector, columns, moved) {
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
 * A function that calls `work` when it has not been called for some time.
 * @param {number} milliseconds
 * @param {() => void} work
 * @returns {() => void}
 */
export function debounce(milliseconds, work) {
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
export function isAbortError(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/**
 * @param {unknown} error
 * @returns {string}
 */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}
