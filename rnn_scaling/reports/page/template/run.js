// The table of all runs, and the panel of one run.
const runLink = (run, attributes = {}) => element("a", { href: address({ run: run.name }), ...attributes }, run.name);

function runsView(place) {
  const options = [...new Set(data.runs.flatMap((run) => Object.keys(run.options)))];
  const metrics = data.metrics.filter(({ name }) => data.runs.some((run) => name in run.values));
  const head = ["Run", "Status", ...options, ...metrics.map(captionOf)];
  const rows = data.runs.map((run) => {
    const numbers = metrics.map(({ name, digits }) => (name in run.values ? format(run.values[name], digits) : "n/a"));
    const cells = [run.status, ...options.map((name) => run.options[name] ?? ""), ...numbers];
    return element("tr", { "data-run": run.name }, element("th", { scope: "row" }, runLink(run)), ...cells.map((text) => element("td", {}, text)));
  });
  const table = element("table", { class: "runs" },
    element("caption", { class: "visually-hidden" }, "All runs"),
    element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...rows));
  table.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-run]");
    if (row && !event.target.closest("a") && getSelection().isCollapsed) choose({ run: row.dataset.run });
  });
  place.append(element("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "All runs" }, table));
  enhance(table, "runs");
}

const terms = (pairs) => element("dl", { class: "facts" }, ...Object.entries(pairs).map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text))));
const fold = (title, ...content) => element("details", {}, element("summary", {}, title), ...content);

// The steps of a run as {step, ms, high}; in a long run, each element is a bucket of steps.
function stepsOf(run) {
  if (!run.bucket) return run.step_ms.map((ms, step) => ({ step, ms, high: ms }));
  return d3.range(0, run.step_ms.length, 2).map((i) => ({ step: (i / 2) * run.bucket, ms: run.step_ms[i], high: run.step_ms[i + 1] }));
}

function percentiles(times) {
  const sorted = Float64Array.from(times).sort();
  const shares = [[0.5, "p50"], [0.95, "p95"], [0.99, "p99"]].filter(([share]) => sorted.length * (1 - share) >= 1 - 1e-9);
  return [...shares.map(([share, name]) => [name, d3.quantileSorted(sorted, share)]), ["longest", sorted.at(-1)]]
    .map(([name, ms]) => `${name} ${format(ms, 2)} ms`).join(", ");
}

function stepsChart(run, place, from, to, zoom) {
  const width = Math.max(260, place.clientWidth);
  const all = stepsOf(run).filter(({ step }) => step >= from && step <= to);
  const measured = all.filter(({ step }) => step >= run.warmup);
  const usual = d3.quantile((measured.length ? measured : all).map(({ high }) => high), 0.95);
  const top = measured.length ? Math.min(1.5 * usual, d3.max(all, ({ high }) => high)) * 1.03 : d3.max(all, ({ high }) => high);
  const [inside, above] = [all.filter(({ high }) => high <= top), all.filter(({ high }) => high > top)];
  const text = ({ step, ms, high }) => `step ${step}: ${format(ms, 3)}${high === ms ? "" : ` to ${format(high, 3)}`} ms`;
  const bands = [[from, Math.min(to, run.warmup), "warm-up", "var(--muted)"], [Math.max(from, run.warmup, run.steady ?? Infinity), to + 1, "steady", "var(--s2)"]].filter(([a, b]) => a < b);
  const label = `Times of steps ${from} to ${to}. ${above.length ? `${above.length} outside the frame, shown as triangles.` : ""}`;
  const svg = imageOf(label, {
    width, height: 240, marginLeft: 56, marginBottom: 36,
    x: { domain: [from - 0.5, to + 0.5], label: "step", labelArrow: "none", ticks: width / 90 },
    y: { domain: [0, top], label: "ms", labelArrow: "none", grid: true, ticks: 5 },
    marks: [
      Plot.rectX(bands, { x1: (band) => band[0] - 0.5, x2: (band) => band[1] - 0.5, fill: (band) => band[3], fillOpacity: 0.13 }),
      Plot.text(bands, { x: (band) => band[0], text: (band) => band[2], frameAnchor: "top", textAnchor: "start", dx: 3, dy: 4 }),
      run.bucket
        ? Plot.ruleX(all, { x: "step", y1: "ms", y2: ({ high }) => Math.min(high, top), stroke: "var(--s0)", strokeWidth: 1.5 })
        : Plot.dot(inside, { x: "step", y: "ms", r: all.length > 300 ? 1.5 : 2.5, fill: "var(--s0)" }),
      Plot.dot(above, { x: "step", y: () => top, symbol: "triangle", r: 4, fill: "var(--s1)" }),
      Plot.tip(all, Plot.pointerX({ x: "step", y: ({ ms }) => Math.min(ms, top), title: text, fill: "var(--paper)" })),
    ],
  });
  const scale = svg.scale("x");
  const brush = d3.brushX().extent([[scale.range[0], 20], [scale.range[1], 204]]).on("end", ({ selection }) => {
    if (selection) zoom(...selection.map((at) => Math.round(scale.invert(at))));
  });
  d3.select(svg).append("g").attr("class", "brush").call(brush);
  place.replaceChildren(svg);
}

function stepsPanel(run) {
  const last = run.steps - 1;
  const [picture, histogram] = [element("div"), element("div")];
  const summary = element("p", { class: "note", "aria-live": "polite" });
  const zoom = (a, b) => choose({ steps: a <= 0 && b >= last ? "" : `${Math.max(0, Math.min(a, b))}-${Math.min(last, Math.max(a, b, a + 1))}` });
  const change = () => zoom(Number(from.value), Number(to.value));
  const [from, to] = ["First", "Last"].map((end) => element("input", { type: "number", min: 0, max: last, "aria-label": `${end} step shown`, change }));
  const whole = element("button", { type: "button", click: () => zoom(0, last) }, "All steps");
  const measured = element("button", { type: "button", click: () => zoom(run.warmup, last) }, "Without warm-up");
  const steady = run.steady === null ? "" : ` Steady from step ${run.steady}.`;
  const thinned = run.bucket ? ` Each bar spans the shortest to the longest of ${run.bucket} steps.` : "";
  const render = () => {
    const [a, b] = (state.get("steps") ?? "").split("-").map((at) => Math.round(Number(at)));
    const isZoomed = b > a && a < last;
    const ends = isZoomed ? [a, Math.min(b, last)] : [0, last];
    [from.value, to.value] = ends;
    stepsChart(run, picture, ...ends, zoom);
    const times = stepsOf(run).filter(({ step }) => step >= Math.max(ends[0], isZoomed ? 0 : run.warmup) && step <= ends[1]).map(({ high }) => high);
    summary.textContent = `${run.warmup} warm-up steps.${steady}${thinned}` + (times.length && !run.bucket ? ` Steps ${ends[1] - times.length + 1} to ${ends[1]}: ${percentiles(times)}.` : "");
    histogram.replaceChildren(imageOf(`Histogram of step times. ${summary.textContent}`, {
      width: Math.max(260, picture.clientWidth), height: 140, marginLeft: 56, marginBottom: 36,
      x: { label: run.bucket ? "longest of each bucket, ms" : "ms", labelArrow: "none" }, y: { label: "steps", labelArrow: "none", grid: true, ticks: 3 },
      marks: [Plot.rectY(times, Plot.binX({ y: "count" }, { x: (ms) => ms, fill: "var(--s0)", thresholds: 30 })), Plot.ruleY([0])],
    }));
  };
  const tools = element("div", { class: "tools" }, element("label", {}, "Steps ", from), element("label", {}, "to ", to), measured, whole);
  return [element("div", {}, element("h3", {}, "Step times"), tools, picture, histogram, summary), render];
}

function phasesChart(run, place) {
  const bars = Object.entries(run.phases).filter(([, seconds]) => seconds > 0).map(([name, seconds]) => ({ name: name.replaceAll("_", " "), seconds }));
  const most = d3.max(bars, ({ seconds }) => seconds);
  const label = `Phases: ${bars.map(({ name, seconds }) => `${name} ${format(seconds, 2)} s`).join(", ")}`;
  place.replaceChildren(imageOf(label, {
    width: Math.max(260, Math.min(640, place.clientWidth)), height: 24 * bars.length + 8, marginLeft: 90, marginRight: 70, marginTop: 4, marginBottom: 4,
    x: { axis: null, domain: [0, most] }, y: { domain: bars.map(({ name }) => name), label: null, tickSize: 0 },
    marks: [Plot.barX(bars, { x: "seconds", y: "name", fill: "var(--s0)", fillOpacity: 0.6 }), Plot.text(bars, { x: "seconds", y: "name", text: ({ seconds }) => `${format(seconds, 2)} s`, textAnchor: "start", dx: 5 })],
  }));
}

const panel = document.getElementById("run");

function showRun(place) {
  const run = data.runs[place];
  const point = data.lines.flatMap((line) => line.points).find(({ runs }) => runs.includes(place));
  const samePoint = (point?.runs ?? []).length > 1 ? element("p", { class: "others" }, "Runs of this point: ", ...point.runs.map((k) => runLink(data.runs[k], { "aria-current": k === place && "true" }))) : "";
  const close = element("button", { type: "button", click: () => panel.close() }, "Close");
  const metrics = data.metrics.filter(({ name }) => name in run.values);
  const numbers = Object.fromEntries(metrics.map((metric) => [captionOf(metric), format(run.values[metric.name], metric.digits)]));
  const [steps, renderSteps] = run.step_ms.length > 1 ? stepsPanel(run) : [element("p", { class: "note" }, "This run has no step times."), () => {}];
  const phases = element("div");
  panel.replaceChildren(
    element("header", {}, element("h2", { id: "run-h" }, run.title), close),
    element("p", { class: "note" }, [run.name, run.status].join(", ")), samePoint,
    terms(numbers),
    ...(run.command ? [element("h3", {}, "Repeat this run"), commandBlock(run.command, `repeat ${run.name}`)] : []),
    ...(run.log ? [fold(run.status === "ok" ? "Log" : "Error and log", element("pre", { tabindex: "0" }, run.log))] : []),
    steps,
    ...(Object.values(run.phases).some(Boolean) ? [element("h3", {}, "Phases"), phases] : []),
    fold("Configuration", terms({ ...data.shared.options, ...run.options })),
    fold("Environment", terms({ ...data.shared.facts, ...run.facts })),
  );
  if (run.status !== "ok") panel.querySelector("details")?.setAttribute("open", "");
  if (!panel.open) panel.showModal();
  panel.scrollTop = 0;
  renderSteps();
  if (phases.isConnected) phasesChart(run, phases);
  panel.renderSteps = renderSteps;
}

function watchRun() {
  panel.addEventListener("close", () => { if (state.has("run")) choose({ run: "", steps: "" }); });
  panel.addEventListener("click", (event) => { if (event.target === panel) panel.close(); });
  watch(() => state.get("run"), () => {
    const place = data.runs.findIndex((run) => run.name === state.get("run"));
    if (place >= 0) showRun(place);
    else if (panel.open) panel.close();
  });
  watch(() => state.get("steps"), () => { if (panel.open) panel.renderSteps?.(); });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const run = new URLSearchParams(link.getAttribute("href").slice(1)).get("run");
    if (run) {
      event.preventDefault();
      choose({ run, steps: "" });
    }
  });
}
