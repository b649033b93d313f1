// Entry point of the page on a server. The URL can set the panel and the text (#panel=heads&text=…), and for a pair
// the second text (&second=…).

import { mount } from "./application.js";
import { serverProvider } from "./providers.js";

const root = /** @type {HTMLElement} */ (document.getElementById("heedful"));
const parameters = new URLSearchParams(window.location.hash.slice(1));
mount(root, serverProvider(new URL("../api/", import.meta.url).href), {
  panel: parameters.get("panel") ?? undefined,
  text: parameters.get("text") ?? undefined,
  second: parameters.get("second") ?? undefined,
});
