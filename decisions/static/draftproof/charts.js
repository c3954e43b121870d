/* Draws every [data-chart] of the page. The figure lies in a <script type="application/json"> inside the element or
   right after it. Load this file before plotly.min.js, both with defer. */
(() => {
  "use strict";

  // Colours a page may leave out of its custom properties: the heat map's ends and middle.
  const FALLBACK = {
    light: { ink: "#1b1f24", paper: "#ffffff", soft: "#59616b", line: "#d8dde3", accent: "#0b6bcb", baseline: "#7b838d", good: "#16794c",
             bad: "#c2410c", wait: "#8a6100", worse: "#d97a29", even: "#f1f2f4", better: "#3f86d1",
             series2: "#c85200", series3: "#00805e", series4: "#a8478a", series5: "#2b8ab8" },
    dark: { ink: "#e8eaed", paper: "#14171a", soft: "#a7afb9", line: "#3a414a", accent: "#6cb2ff", baseline: "#9aa3ad", good: "#5bd09a",
            bad: "#ff9466", wait: "#e5b84b", worse: "#c8691c", even: "#3a4048", better: "#3d82cc",
            series2: "#ff9a57", series3: "#38c99a", series4: "#e58fc4", series5: "#5cc8ee" },
  };
  const CONFIG = {
    displayModeBar: false, displaylogo: false, responsive: true, showSendToCloud: false, showEditInChartStudio: false,
    showLink: false, scrollZoom: false, doubleClick: false, showTips: false, plotlyServerURL: "",
  };
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // plotly and the map library in its bundle each add a <style> when they load, unless an element with that id is
  // there. The policy would refuse both; plotly.css has the rules that our charts need.
  function standInForInlineStyles() {
    const ids = ["plotly.js-style-global", "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53"];
    for (const id of ids) {
      if (document.getElementById(id)) continue;
      const standIn = document.createElement("meta");
      standIn.id = id;
      standIn.className = "no-inline-styles";
      document.head.append(standIn);
    }
  }

  function colour(name) {
    const page = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    return page || FALLBACK[dark.matches ? "dark" : "light"][name];
  }

  function recoloured(value, palette) {
    if (typeof value === "string") return palette.get(value) ?? value;
    if (Array.isArray(value)) return value.map((one) => recoloured(one, palette));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, recoloured(one, palette)]));
  }

  function figureOf(element) {
    const inside = element.querySelector('script[type="application/json"]');
    const beside = element.nextElementSibling;
    const source = inside ?? (beside?.matches('script[type="application/json"]') ? beside : null);
    return source && JSON.parse(source.textContent);
  }

  function pictureIn(element) {
    const present = element.querySelector(":scope > .chart-picture");
    if (present) return present;
    const picture = document.createElement("div");
    picture.className = "chart-picture";
    const caption = element.closest("figure")?.querySelector("figcaption");
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", caption ? caption.textContent.trim() : "chart");
    // The page may hold the picture's place until here.
    element.querySelector(":scope > .room")?.remove();
    element.append(picture);
    return picture;
  }

  function draw(element) {
    const figure = figureOf(element);
    if (!figure) return;
    const { meta, ...layout } = figure.layout;
    const palette = new Map(Object.entries(meta?.colours ?? {}).map(([hex, name]) => [hex, colour(name)]));
    Plotly.newPlot(pictureIn(element), recoloured(figure.data, palette), recoloured(layout, palette), CONFIG);
  }

  function drawAll(root) {
    for (const element of root.querySelectorAll("[data-chart]")) draw(element);
  }

  function drawNew(event) {
    const root = event.target instanceof Element ? event.target : document;
    const swapped = root.matches?.("[data-chart]") ? [root] : [];
    for (const element of [...swapped, ...root.querySelectorAll("[data-chart]")]) {
      if (!element.querySelector(".js-plotly-plot")) draw(element);
    }
  }

  // A picture that htmx takes away would go on listening to the window's size.
  function release(event) {
    const gone = event.detail?.elt ?? event.target;
    if (gone instanceof Element && gone.matches(".js-plotly-plot")) Plotly.purge(gone);
  }

  standInForInlineStyles();
  document.addEventListener("DOMContentLoaded", () => drawAll(document));
  dark.addEventListener("change", () => drawAll(document));
  document.addEventListener("htmx:afterSwap", drawNew);
  document.addEventListener("htmx:beforeCleanupElement", release);
})();
