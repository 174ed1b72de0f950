// Runs in the page, after everything else: notes what the browser really shows of each chart, in its
// own coordinates, for the test to judge. An element counts if it is what one meets at its middle.
const middle = (element) => {
  const box = element.getBoundingClientRect();
  return { x: box.x + box.width / 2, y: box.y + box.height / 2, width: box.width, height: box.height };
};
const isShown = (element) => {
  const { x, y } = middle(element);
  return document.elementsFromPoint(x, y).includes(element);
};
const shown = (svg, selector) => [...svg.querySelectorAll(selector)].filter(isShown);
const texts = (svg) => Object.fromEntries(shown(svg, "text").map((t) => [t.textContent.trim(), middle(t)]));
const chart = (svg) => ({
  ...middle(svg),
  texts: texts(svg),
  accepted: shown(svg, 'rect[fill="#0072B2"]').length,
  refused: shown(svg, 'rect[fill="#D55E00"]').length,
  contract: shown(svg, 'polyline[stroke="#D55E00"][stroke-width="2"]').map(middle),
  codes: shown(svg, 'circle[fill="#0072B2"]').map(middle),
});
const seen = {
  title: document.title,
  loaded: performance.getEntriesByType("resource").length,
  designs: [...document.querySelectorAll("section.card")].map((card) => ({
    heading: card.querySelector("h2").textContent,
    charts: [...card.querySelectorAll(".charts svg")].map(chart),
  })),
};
const note = document.createElement("pre");
note.id = "seen";
note.textContent = JSON.stringify(seen);
document.body.append(note);
