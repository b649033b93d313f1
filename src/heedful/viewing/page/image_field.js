// A field for an image: a file that is chosen, dropped or pasted, as a data URI.

import { element } from "./elements.js";

/** @typedef {{body: HTMLElement, input: HTMLInputElement, value: () => unknown, restored: () => void}} ImageField */

/**
 * @param {string} title
 * @param {() => void} changed
 * @returns {ImageField}
 */
export function imageField(title, changed) {
  const input = element("input", { type: "hidden" });
  const shown = element("img", { class: "heed-chosen-image", alt: "" });
  const problem = element("p", { class: "heed-notice", role: "alert" });
  const name = element("span", { class: "heed-detail" });
  const chosen = element("input", {
    type: "file", accept: "image/*", class: "heed-visually-hidden", tabindex: -1, "aria-label": title, onchange: () => {
      take(chosen.files?.[0]);
      chosen.value = "";
    },
  });
  const choose = element("button", { type: "button", class: "heed-button", onclick: () => chosen.click() }, "Choose an image…");
  const clear = element("button", { type: "button", class: "heed-button", onclick: () => set("", "") }, "Clear");
  const body = element(
    "div", { class: "heed-image-field" },
    element("h2", {}, title), element("div", { class: "heed-tools" }, chosen, choose, clear, name), shown,
    element("p", { class: "heed-hint" }, "You can also drop an image here, or paste one."), problem,
  );

  /** @param {string} uri @param {string} label */
  function set(uri, label) {
    input.value = uri;
    problem.textContent = "";
    draw(label);
    changed();
  }

  /** @param {string} label */
  function draw(label) {
    shown.hidden = clear.hidden = !input.value;
    if (input.value) shown.src = input.value;
    else shown.removeAttribute("src");
    shown.alt = input.value ? label || "The chosen image" : "";
    name.textContent = label;
  }

  /** @param {File | null | undefined} file */
  function take(file) {
    if (!file) return;
    if (!file.type.startsWith("image/")) {
      problem.textContent = `${file.name} is not an image.`;
      return;
    }
    const reader = new FileReader();
    reader.onload = () => set(String(reader.result), file.name);
    reader.onerror = () => {
      problem.textContent = `${file.name} cannot be read.`;
    };
    reader.readAsDataURL(file);
  }

  body.addEventListener("dragover", (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    body.classList.add("heed-drop");
  });
  body.addEventListener("dragleave", () => body.classList.remove("heed-drop"));
  body.addEventListener("drop", (event) => {
    body.classList.remove("heed-drop");
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    take(event.dataTransfer.files[0]);
  });
  body.addEventListener("paste", (event) => {
    const [file] = event.clipboardData?.files ?? [];
    if (file) take(file);
  });
  draw("");
  return { body, input, value: () => input.value || undefined, restored: () => draw("") };
}
