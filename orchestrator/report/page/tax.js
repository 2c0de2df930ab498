// The tax: what the framework takes beside the whole latency, and the batches at which the regime changes.

// Of a cell: framework and the rest, in seconds; null where they are not told apart
const partsOf = (cell) => {
  const total = at(at("device", cell) === "cpu" ? "latency_sync" : "latency_pipelined", cell);
  const overhead = at("overhead", cell);
  if (total === null || overhead === null) return null;
  const framework = Math.min(Math.max(overhead, 0), total);
  return { total, framework, rest: total - framework };
};

const shareOf = (cell) => Math.min(Math.max(at("fraction", cell) ?? partsOf(cell).framework / partsOf(cell).total, 0), 1);

// [value, low, high] of what is drawn of a cell. A share is the median over processes of theirs, as in the table: not
// that of the medians, when they scatter
const bounds = (cell, name) => [at(`${name}_low`, cell), at(`${name}_high`, cell)];
const frameworkOf = (cell) => (state.share ? [shareOf(cell), ...bounds(cell, "fraction")] : [partsOf(cell).framework, ...bounds(cell, "overhead")]);
const wholeOf = (cell) => [partsOf(cell).total, ...bounds(cell, at("device", cell) === "cpu" ? "latency_sync" : "latency_pipelined")];

const taxPanels = () => {
  const cells = chosenCells().filter((cell) => partsOf(cell));
  const batches = sorted(cells.map((cell) => at("batch", cell)));
  const near = ([value, low, high]) => [value, Math.max(low ?? value, value / 10), high]; // an end next to 0 would take the axis
  const ends = cells.flatMap((cell) => [...near(frameworkOf(cell)), ...(state.share ? [1] : near(wholeOf(cell)))]).filter((value) => value > 0);
  const range = logRange(ends);
  showLegend("tax", page.backends, sorted(cells.map((cell) => at("backend", cell))), false);
  return panelsOf(cells).map(({ cells: some, title, detail }) => ({
    title, detail, label: `Framework and latency on ${title} ${detail}`,
    drawer: () => {
      const groups = [...groupBy(some, (cell) => at("backend", cell))].sort((one, other) => one[0] - other[0]);
      return {
        traces: groups.flatMap(([backend, ours], number) => taxTraces(backend, ours, dodge(number, groups.length))),
        layout: { xaxis: batchAxis(batches), yaxis: state.share ? logAxis("share of the call", range, (value) => `${short(100 * value)} %`) : logAxis("time of a call", range, seconds) },
      };
    },
  }));
};

// What is not above 0 within its noise has no place on the axis
const taxTraces = (backend, cells, factor) => {
  const ordered = cells.toSorted((one, other) => at("batch", one) - at("batch", other));
  const line = (name, of, open, more) => {
    const there = ordered.filter((cell) => of(cell)[0] > 0);
    const found = there.map(of);
    return {
      type: "scatter", mode: "lines+markers", name: `${page.backends[backend].label}: ${name}`,
      x: there.map((cell) => at("batch", cell) * factor), y: found.map(([value]) => value), customdata: there, text: there.map(taxText), ...HOVER,
      error_y: errorBars(found, backend),
      marker: { color: colour(backend), symbol: symbol(backend, open), size: 8, line: { width: 1.5, color: colour(backend) } }, ...more,
    };
  };
  const framework = line("framework", frameworkOf, false, { line: { color: colour(backend), dash: "dash", width: 1.5 } });
  return state.share ? [framework] : [framework, line("latency", wholeOf, true, { line: { color: colour(backend), width: 1.5 } })];
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
