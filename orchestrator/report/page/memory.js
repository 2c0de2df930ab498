// Where the reader is, over a reload: the address keeps the filters, and this all else that can be opened, sorted or scrolled.

const MEMORY = `taxmeter ${location.pathname}`;
const EDGE = 80; // pixels below the upper edge: what stands there is what is read

// sessionStorage is refused by some browsers for files
const attempt = (act) => { try { return act(); } catch { return null; } };

// Counts change when rows arrive
const uncounted = (text) => text.replace(/[\d,.]+/g, "#");
const detailsKey = (node) =>
  `${node.closest("section, dialog")?.id} ${node.dataset.query ?? node.dataset.command ?? uncounted(node.querySelector("summary")?.textContent ?? "")}`;
const allDetails = () => [...document.querySelectorAll("main details, dialog details")];
const cellKey = (cell) => [cellName(cell), page.shapes[at("shape", cell)].axes.protocol ?? ""].join(" ");

const readSection = () => [...document.querySelectorAll("main section:not([hidden])")].findLast((one) => one.getBoundingClientRect().top <= EDGE);

const positionOf = () => {
  const section = readSection();
  return section ? { section: section.id, below: -section.getBoundingClientRect().top } : { below: scrollY };
};

const rememberView = () => {
  const focused = document.activeElement;
  const boxes = [...document.querySelectorAll(".scroll")].filter((one) => one.scrollLeft || one.scrollTop);
  const view = {
    position: positionOf(), listing, expanded: [...expanded], filtersOpen,
    details: allDetails().map((one) => [detailsKey(one), one.open]),
    boxes: boxes.map((one) => [uncounted(one.getAttribute("aria-label")), one.scrollLeft, one.scrollTop]),
    focus: focused?.dataset.chip ? `[data-chip="${focused.dataset.chip}"]` : focused?.tagName === "SELECT" ? `select[aria-label="${focused.getAttribute("aria-label")}"]` : null,
    samples: dialog.open ? { key: cellKey(opened.cell), mode: opened.mode, top: dialog.scrollTop } : null,
  };
  attempt(() => sessionStorage.setItem(MEMORY, JSON.stringify(view)));
};

// What was kept when this page was left; null unless it is the same page again
const remembered = () => {
  const [navigation] = performance.getEntriesByType("navigation");
  return ["reload", "back_forward"].includes(navigation?.type) ? attempt(() => JSON.parse(sessionStorage.getItem(MEMORY))) : null;
};

const recallView = (before) => {
  if (!before) return;
  Object.assign(listing, before.listing);
  before.expanded.forEach((name) => expanded.add(name));
  filtersOpen = before.filtersOpen;
};

// Once all has its height
const recallPosition = (before, anchor) => {
  history.scrollRestoration = "manual";
  if (!before) {
    if (anchor && !anchor.startsWith("#?")) document.getElementById(anchor.slice(1))?.scrollIntoView({ behavior: "instant" });
    return;
  }
  const open = new Map(before.details);
  for (const one of allDetails()) one.open = open.get(detailsKey(one)) ?? one.open;
  const boxes = new Map(before.boxes.map(([label, ...at_]) => [label, at_]));
  for (const one of document.querySelectorAll(".scroll")) [one.scrollLeft, one.scrollTop] = boxes.get(uncounted(one.getAttribute("aria-label"))) ?? [0, 0];
  if (before.focus) document.querySelector(before.focus)?.focus({ preventScroll: true });
  const start = document.getElementById(before.position.section)?.getBoundingClientRect().top ?? -scrollY;
  scrollTo({ top: scrollY + start + before.position.below, behavior: "instant" });
};

const recallSamples = async (before) => {
  if (!before?.samples) return;
  const cell = [...Array(cellCount()).keys()].find((one) => cellKey(one) === before.samples.key);
  if (cell === undefined) return;
  await showSamples(cell);
  if (opened.modes.includes(before.samples.mode)) opened.mode = before.samples.mode;
  drawSamples();
  dialog.scrollTop = before.samples.top;
};

addEventListener("pagehide", rememberView);

// A link to a section moves there, and leaves the address, which has the filters, as it is.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.('a[href^="#"]');
  const target = link && document.getElementById(link.hash.slice(1));
  if (!target) return;
  event.preventDefault();
  target.tabIndex = -1;
  target.focus({ preventScroll: true });
  target.scrollIntoView();
});
