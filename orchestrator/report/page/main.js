// Puts filters, charts and tables together.

const MODE_LABELS = { latency_sync: "one call at a time", latency_pipelined: "back-to-back calls" };
const UNITS_OF_LABELS = { dtype: "dtype", device: "device", threads: "threads", seed: "seed", protocol: "protocol" };

const toggle = (id, choices, chosen, act) => {
  document.getElementById(id).replaceChildren(...choices.map(([value, label]) =>
    el("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => act(value) }, label)));
};

const select = (label, choices, chosen, act) => {
  const box = el("select", { "aria-label": label, onchange: (event) => act(event.target.value) },
    ...choices.map(([value, text]) => el("option", { value, selected: String(value) === String(chosen) }, text)));
  return el("label", {}, el("span", {}, label), el("br"), box);
};

const key = (number, line) => {
  const shapes = { circle: "M13 2a4 4 0 1 0 .01 0z", square: "M9 2h8v8H9z", diamond: "M13 1l5 5-5 5-5-5z", "triangle-up": "M13 1.5l5 9H8z", x: "M9 2l8 8M17 2l-8 8", star: "M13 1l1.5 3.6 3.8.2-3 2.4 1 3.8-3.3-2.1L9.700 11l1-3.800-3-2.400 3.800-.200z", "triangle-down": "M13 10.500l5-9H8z", hexagon: "M10.500 1.500h5L18 6l-2.500 4.500h-5L8 6z" };
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 26 12");
  svg.setAttribute("aria-hidden", "true");
  const path = (d, more) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", "path");
    for (const [name, value] of Object.entries({ d, stroke: `var(--s${number % 8})`, "stroke-width": "2", fill: "none", ...more })) node.setAttribute(name, value);
    svg.append(node);
  };
  const dashes = { solid: "", dash: "5 3", dot: "2 2", dashdot: "5 2 2 2", longdash: "8 3", longdashdot: "8 2 2 2" };
  if (line) path("M0 6h26", { "stroke-dasharray": dashes[dash(number)] });
  path(shapes[symbol(number)], { fill: `var(--s${number % 8})` });
  return svg;
};

const chips = (title, all, chosen, name, line) => {
  const flip = (number) => () => {
    const set = new Set(chosen);
    if (set.has(number)) set.delete(number); else set.add(number);
    change({ [name]: set });
    document.querySelector(`[data-chip="${name}-${number}"]`)?.focus();
  };
  return el("fieldset", {}, el("legend", {}, title), el("div", { class: "chips" }, ...all.map((one, number) =>
    el("button", { type: "button", class: "chip", "data-chip": `${name}-${number}`, "aria-pressed": String(chosen.has(number)), onclick: flip(number) }, key(number, line), one.label))));
};

let filtersOpen = innerWidth > 1000;

// Whether an axis says nothing that the system does not say: threads and device often do not
const isOfThePlace = (name) => {
  const values = new Map();
  for (let cell = 0; cell < cellCount(); cell++) {
    const value = page.shapes[at("shape", cell)].axes[name];
    const known = values.get(at("place", cell));
    if (known !== undefined && known !== value) return false;
    values.set(at("place", cell), value);
  }
  return true;
};

const showFilters = () => {
  const form = document.getElementById("filters");
  const controls = [];
  if (works.length > 1) controls.push(select("workload", [...works.map((one) => [one.label, one.label]), [ALL, "all workloads"]], state.work, (value) => change({ work: value })));
  for (const [name, choices] of Object.entries(page.axes)) {
    if (isOfThePlace(name) && state.axes[name] === ALL) continue;
    const label = (one, number) => (name === "protocol" ? `protocol ${number + 1}` : one.label);
    controls.push(select(UNITS_OF_LABELS[name] ?? name, [[ALL, "all"], ...choices.map((one, number) => [String(one.value), label(one, number)])], state.axes[name], (value) => change({ axes: { ...state.axes, [name]: value } })));
  }
  const batches = sorted(page.cells.batch);
  if (batches.length > 1) controls.push(select("batch", [[ALL, "all"], ...batches.map((one) => [String(one), String(one)])], state.batch, (value) => change({ batch: value })));
  controls.push(select("latency of", page.modes.map((one) => [one, MODE_LABELS[one]]), state.mode, (value) => change({ mode: value })));
  controls.push(chips("backends", page.backends, state.backends, "backends", true));
  if (page.places.length > 1) controls.push(chips("systems", page.places, state.places, "places", false));
  const reset = el("button", { type: "button", onclick: () => { setDefaults(); change({}); } }, "Reset");
  const said = [state.work === ALL ? "all workloads" : state.work, ...Object.values(state.axes).filter((one) => one !== ALL && one.length < 20), MODE_LABELS[state.mode]].join(", ");
  const left = `${said}: ${chosenCells().length} of ${counted(cellCount(), "configuration", "configurations")}`;
  document.getElementById("filtered").textContent = `Filters: ${left}`;
  const box = el("details", { open: filtersOpen, ontoggle: (event) => { filtersOpen = event.target.open; } },
    el("summary", {}, "Filters ", el("span", {}, left)),
    el("div", { class: "filter-grid" }, ...controls, reset));
  const focused = document.activeElement?.tagName === "SELECT" ? [...form.querySelectorAll("select")].indexOf(document.activeElement) : -1;
  form.replaceChildren(box);
  form.hidden = false;
  if (focused >= 0) form.querySelectorAll("select")[focused]?.focus();
};

const showText = (box, text, copies) => {
  const copy = (copied) => async (event) => {
    await navigator.clipboard?.writeText(copied);
    event.target.textContent = "Copied";
  };
  const buttons = copies.flatMap(([name, copied]) => [el("button", { type: "button", onclick: copy(copied) }, name), " "]);
  box.replaceChildren(el("pre", { tabindex: "0" }, text), ...buttons);
};
const showQuery = (box, sql) => showText(box, sql, [["Copy SQL", sql], ["Copy as taxmeter results sql", command(sql)]]);

const showQueries = () => {
  for (const details of document.querySelectorAll("details[data-query]")) {
    const name = details.dataset.query;
    details.hidden = !page.queries[name];
    if (details.hidden) continue;
    const whole = ["failures", "flagged", "systems"].includes(name);
    const box = details.querySelector("div") ?? details.appendChild(el("div"));
    showQuery(box, whole ? filledQuery(name, page.sql_of_all) : filledQuery(name));
  }
  for (const details of document.querySelectorAll("details[data-command]")) {
    const text = page.commands[details.dataset.command]?.replace("{mode}", state.mode);
    details.hidden = !text;
    if (text) showText(details.querySelector("div") ?? details.appendChild(el("div")), text, [["Copy", text]]);
  }
};

const hasMode = (mode) => page.cells[`${mode}_n`].some((count) => count > 0);

// Why a chart has no mark
const nothing = () => ({
  latency: hasMode(state.mode)
    ? "No configuration that the filters leave was measured in this mode."
    : page.modes.some(hasMode)
      ? `No trial has the latency of ${MODE_LABELS[state.mode]}; the filter "latency of" has the other one.`
      : "Nothing was measured: no trial ended ok.",
  tax: "Nothing tells framework and arithmetic apart here: the floor (CPU) or the profile (GPU) was not measured, or is not valid.",
  speedups: page.baselines.backend === null
    ? "Nothing to compare with: no trial has the backend eager; taxmeter report --baseline backend=NAME takes another one."
    : page.backends.length === 1
      ? `Nothing to compare: ${page.backends[0].label} is the only backend.`
      : "Nothing to compare: the filters leave no backend that was measured beside the baseline.",
  roofline: "Operations or weights were not counted here.",
  hardware: page.systems.length === 1
    ? "Nothing to compare: all trials ran on one system."
    : "No configuration that the filters leave was measured both on the baseline system and on another.",
});

// What a hidden section would be about, and why it is empty; its link goes, too
const showAbsent = () => {
  const sections = [...document.querySelectorAll("main section")];
  for (const section of sections) {
    if (section.dataset.empty) section.hidden = true;
    const link = document.querySelector(`nav a[href="#${section.id}"]`);
    if (link) link.hidden = section.hidden;
  }
  const title = (section) => section.querySelector("h2").firstChild.textContent.trim();
  const said = sections.filter((one) => one.hidden).map((one) => `${title(one)}: ${(one.dataset.empty ?? absent.get(one.id)).replace(/\.$/, "")}.`);
  const box = document.getElementById("absent");
  box.hidden = !said.length;
  box.textContent = said.length ? `Not shown, for there is nothing to show. ${said.join(" ")}` : "";
};

// What the charts below are about, in their titles: at first one of several workloads
const showScope = () => {
  const parts = works.length > 1 ? [state.work === ALL ? `all ${works.length} workloads` : `${state.work}, one of ${works.length} workloads`] : [];
  const axes = Object.entries(state.axes).filter(([name, value]) => value !== ALL && name !== "protocol").map(([name, value]) => (/^\d/.test(value) ? `${value} ${name}` : value));
  for (const node of document.querySelectorAll("[data-scope]")) node.textContent = [...parts, ...axes, state.batch === ALL ? null : `batch ${state.batch}`].filter((one) => one).join(", ");
  for (const button of document.querySelectorAll("[data-work]")) button.setAttribute("aria-pressed", String(button.dataset.work === state.work));
};

const showCharts = () => {
  toggle("tax-scale", [[false, "time"], [true, "share"]], state.share, (share) => change({ share }));
  const why = nothing();
  showPanels("latency", latencyPanels(), why.latency);
  showPanels("tax", taxPanels(), why.tax);
  showTransitions();
  showPanels("speedups", speedupPanels(), why.speedups);
  showPanels("roofline", rooflinePanels(), why.roofline);
  showPanels("hardware", hardwarePanels(), why.hardware);
  showAbsent();
  showScope();
  if (dialog.open) drawSamples();
};

const problem = (error) => {
  const box = document.getElementById("problem");
  box.textContent = `This page could not be shown: ${error.message ?? error}. It needs a browser of 2023 or later.`;
  box.hidden = false;
  document.documentElement.dataset.ready = "failed";
};

const start = async () => {
  const anchor = location.hash; // of a link to a section; the filters take its place
  await loadPage();
  setDefaults();
  recall();
  const before = remembered();
  recallView(before);
  onChange(showFilters);
  onChange(showCharts);
  onChange(showCells);
  onChange(showQueries);
  change({});
  recallPosition(before, anchor);
  await new Promise((resolve) => { setTimeout(resolve); });
  await loadPlotly();
  document.querySelectorAll(".panels .plot").forEach((plot) => { if (visible(plot)) draw(plot); });
  recallSamples(before);
  document.documentElement.dataset.ready = "yes";
};

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (window.Plotly) showCharts(); });
const onPaper = (is) => {
  const { dataset } = document.documentElement;
  if (is) { dataset.theme = "light"; dataset.printing = ""; } else { delete dataset.theme; delete dataset.printing; }
  showCharts();
};
for (const button of document.querySelectorAll("[data-work]")) {
  button.addEventListener("click", () => {
    change({ work: works.length > 1 ? button.dataset.work : state.work });
    document.getElementById("latency").scrollIntoView();
  });
}
addEventListener("beforeprint", () => { onPaper(true); drawEverything(); });
addEventListener("afterprint", () => onPaper(false));
addEventListener("hashchange", () => { if (location.hash.startsWith("#?")) { setDefaults(); recall(); change({}); } });
// Only a page that is drawn may load itself anew: where drawing takes longer than a look, nobody would ever see one
start().catch(problem).finally(() => followStore());
