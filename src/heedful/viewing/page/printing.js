// Print one picture, from which browsers make a PDF file with vectors and fonts.

import { element } from "./elements.js";

/**
 * Open the browser's print dialogue for a drawing, on a page of its size.
 * @param {string} svg
 */
export async function printDrawing(svg) {
  const image = element("img", { class: "heed-printed", alt: "" });
  await new Promise((done, failed) => {
    image.onload = done;
    image.onerror = () => failed(new Error("the drawing cannot be printed; save it as SVG"));
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(
    `@page { size: ${image.naturalWidth}px ${image.naturalHeight}px; margin: 0 }`
    + "@media print { body > :not(.heed-printed) { display: none !important } body { margin: 0 !important; padding: 0 !important } }"
    + ".heed-printed { display: none } @media print { .heed-printed { display: block; width: 100%; break-after: avoid } }",
  );
  document.body.append(image);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  const after = () => {
    image.remove();
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
  };
  window.addEventListener("afterprint", after, { once: true });
  window.print();
}
