// The page as one file: its data is in the page.

import { mount } from "./application.js";
import { embeddedProvider } from "./providers.js";

const root = /** @type {HTMLElement} */ (document.getElementById("heedful"));
const data = document.getElementById("heedful-data")?.textContent ?? "";
mount(root, embeddedProvider(JSON.parse(data)));
