// The tax: bars of two parts, and the batches at which the regime changes.

// Of a cell: framework and the rest, in seconds; null where they are not told apart
const partsOf = (cell) => {
  const total = at(at("device", cell) === "cpu" ? "latency_sync" : "latency_pipelined", cell);
  const overhead = at("overhead", cell);
  if (total === null || overhead === null) return null;
  const framework = Math.min(Math.max(overhead, 0), total);
  return { total, framework, rest: total - framework };
};

const shareOf = (cell) => Math.min(Math.max(at("fraction", cell) ?? partsOf(cell).framework / partsOf(cell).total, 0), 1);

const taxPanels = () => {
  const cells = chosenCells().filter((cell) => partsOf(cell));
  const batches = sorted(cells.map((cell) => at("batch", cell)));
  showLegend("tax", page.backends, sorted(cells.map((cell) => at("backend", cell))), SWATCH);
  return panelsOf(cells).map(({ cells: some, title, detail }) => ({
    title, detail, label: `Share of framework and kernels on ${title} ${detail}`,
    drawer: () => {
      const groups = [...groupBy(some, (cell) => at("backend", cell))].sort((one, other) => one[0] - other[0]);
      return {
        traces: groups.flatMap(([backend, ours]) => taxTraces(backend, ours, batches)),
        layout: {
          // A lone bar does not fill the chart
          barmode: "group", bargap: Math.max(0.18, 1 - 0.12 * groups.length * batches.length), bargroupgap: 0.08,
          xaxis: { title: "batch", type: "category", categoryorder: "array", categoryarray: batches.map(String), range: [-0.5, batches.length - 0.5] },
          yaxis: state.share ? { title: "share of the call", tickformat: ".0%", range: [0, 1] } : { title: "time of a call", tickformat: "~s", ticksuffix: "s", hoverformat: "~s", rangemode: "tozero" },
        },
      };
    },
  }));
};

const taxTraces = (backend, cells, batches) => {
  const byBatch = new Map(cells.map((cell) => [at("batch", cell), cell]));
  const there = batches.filter((batch) => byBatch.has(batch)).map((batch) => byBatch.get(batch));
  // A share is the median over processes of theirs, as in the table: not that of the medians, when they scatter
  const frameworkOf = (cell) => (state.share ? shareOf(cell) : partsOf(cell).framework);
  const wholeOf = (cell) => (state.share ? 1 : partsOf(cell).total);
  const shared = {
    type: "bar", x: there.map((cell) => String(at("batch", cell))), customdata: there, offsetgroup: String(backend),
    text: there.map(taxText), textposition: "none", ...HOVER,
  };
  const line = { color: colour(backend), width: 1 };
  return [
    {
      ...shared, name: `${page.backends[backend].label}: framework`, y: there.map(frameworkOf), base: there.map(() => 0),
      marker: { color: colour(backend), line, pattern: { shape: "/", fillmode: "overlay", size: 5, solidity: 0.25, fgcolor: css("--surface") } },
    },
    {
      ...shared, name: `${page.backends[backend].label}: rest`, y: there.map((cell) => wholeOf(cell) - frameworkOf(cell)),
      base: there.map(frameworkOf), marker: { color: colour(backend), opacity: 0.28, line },
    },
  ];
};

const taxText = (cell) => {
  const { total, framework, rest } = partsOf(cell);
  const cpu = at("device", cell) === "cpu";
  const regime = at("regime", cell);
  return hoverText(
    cell,
    `${cpu ? "floor: at least" : "exposed overhead"} ${duration(framework)}, ${percent(at("fraction", cell))}`,
    `${cpu ? "the rest: at most" : "kernels"} ${duration(rest)}`,
    `${cpu ? "one call at a time" : "back-to-back"} ${duration(total)}`,
    regime === null ? "regime unknown" : `${regimeText(cell)}${at("decided", cell) ? "" : " (one process)"}`,
    ...(executionText(cell) ? [escaped(executionText(cell))] : []),
  );
};

// Compute-bound by a floor: the framework may take more than its floor
const regimeText = (cell) => page.regimes[at("regime", cell)] + (at("lower_bound", cell) ? " by its floor" : "");

const executionText = (cell) => {
  const tax = at("execution", cell);
  if (tax === null) return "";
  if (tax === 0 && at("execution_share", cell) === 0) return "no backend measured is faster";
  const floors = at("execution_floors", cell);
  const explained = floors === null ? "" : `, ${duration(floors)} of it by the floors`;
  return `${duration(tax)} (${percent(at("execution_share", cell))}) more than ${at("execution_best", cell)}${explained}`;
};

const transitionText = (one) => {
  if (!one) return "unknown";
  // On a processor the floor is a lower bound, and so is the batch
  const least = one.is_lower_bound ? "≥ " : "";
  if (one.side === "below") return one.is_lower_bound ? `by its floor below ${one.first}` : `below ${one.first}`;
  if (one.side === "above") return `above ${one.last}`;
  const end = (value, word, censored) => (value === null ? `${word} ${censored}` : digits(value));
  const interval = one.has_interval ? ` [${end(one.low, "below", one.first)}, ${end(one.high, "above", one.last)}]` : "";
  return least + digits(one.batch) + interval;
};

const freeText = (one) => {
  if (!one) return "unknown";
  const doubt = one.is_decided ? "" : ", not decided";
  const next = one.next === null ? ", the largest measured" : `; ${one.next} costs ×${one.next_cost.toFixed(2)}${doubt}`;
  return `${one.batch} (×${one.cost.toFixed(2)} of batch ${one.base}${next})`;
};

const MOST_SERIES = 60;

const showTransitions = () => {
  const found = page.series.filter((one) => state.places.has(one.place) && state.backends.has(one.backend) && isShapeChosen(page.shapes[one.shape]));
  const box = document.getElementById("transitions");
  box.replaceChildren();
  if (!found.length) return;
  const rows = found.slice(0, MOST_SERIES).map((one) => [
    page.places[one.place].label,
    [page.shapes[one.shape].label, page.shapes[one.shape].axes.dtype].filter((part) => part).join(", "),
    page.backends[one.backend].label, transitionText(one.transition), freeText(one.free),
  ]);
  const caption = "Where the regime changes, and the largest batch that costs at most a tenth more than the smallest";
  box.append(plainTable(caption, ["system", "work", "backend", "transition batch", "free batch"], rows));
  if (found.length > MOST_SERIES) box.append(el("p", { class: "note" }, `${MOST_SERIES} of ${found.length} are shown; narrow the filters for the others.`));
};

const plainTable = (caption, head, rows) =>
  el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {},
      el("caption", {}, caption),
      el("thead", {}, el("tr", {}, ...head.map((one) => el("th", { scope: "col" }, one)))),
      el("tbody", {}, ...rows.map(([first, ...others]) => el("tr", {}, el("th", { scope: "row" }, first), ...others.map((one) => el("td", {}, one)))))));
