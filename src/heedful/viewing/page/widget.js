// Entry point of the notebook widget, called by anywidget.

import { mount } from "./application.js";
import { embeddedProvider } from "./providers.js";

/**
 * @param {{model: {get: (name: string) => any}, el: HTMLElement}} place
 */
export function render({ model, el }) {
  const root = document.createElement("div");
  el.replaceChildren(root);
  mount(root, embeddedProvider(JSON.parse(model.get("data"))));
}
