// The chart of a metric over an axis, and the bars of parts. Points are links, so Tab and screen readers reach them.
const data = JSON.parse(document.getElementById("data").textContent);
const MOST_LINES = 24;
const FEW = 2; // up to this many places on an axis, points have no line between them
const SYMBOLS = ["circle", "square", "triangle", "diamond"];
const PATHS = ["M6 2a4 4 0 1 0 .01 0z", "M2.5 2.5h7v7h-7z", "M6 2l4.5 8h-9z", "M6 1l5 5-5 5-5-5z"];
const colourOf = (line) => `var(--s${line.colour % 6})`;
const shapeOf = (line) => line.shape % SYMBOLS.length;
const hrefOf = (point) => (point.runs.length ? address({ run: data.runs[point.runs[0]].name }) : point.href);
const unitOf = (metric) => (metric.unit && metric.unit !== metric.title ? ` ${metric.unit}` : "");
const captionOf = (metric) => metric.title[0].toUpperCase() + metric.title.slice(1) + (unitOf(metric) && `,${unitOf(metric)}`);

// The row of the first table that leads to the details of a line.
const rowLinks = new Map([...document.querySelectorAll(".overview tbody a")].map((link) => [link.getAttribute("href"), link.closest("tr")]));
const rowOf = (line) => (line.anchor ? rowLinks.get(`#${line.anchor}`) : undefined);
const isFound = (line) => searched().every((word) => line.title.toLowerCase().includes(word));
const shortTitle = (line) => line.short || line.title;

// The table marks the column of the metric that the chart shows, or has one more column for it, after the names.
function enhanceOverview(table, key) {
  const lineOf = new Map(data.lines.map((line) => [rowOf(line), line]));
  lineOf.delete(undefined);
  for (const [row, line] of lineOf) row.dataset.title = line.title;
  const extra = element("th", { scope: "col", class: "extra", hidden: true }, "metric");
  if (lineOf.size) {
    table.tHead.rows[0].cells[0].after(extra);
    for (const row of table.querySelectorAll("tbody tr:not(.group)")) row.cells[0].after(element("td", { class: "extra", hidden: true }, "n/a"));
  }
  const mark = () => {
    const { metric } = chosen();
    if (!lineOf.size || !metric) return;
    const heads = [...table.tHead.rows[0].cells];
    const column = heads.findIndex((head) => head.dataset.metric === metric.name);
    for (const cell of table.querySelectorAll(".extra")) cell.hidden = column >= 0;
    if (column < 0) {
      const title = captionOf(metric).replace(/, ([^,]+)$/, " ($1)").replace(/( \(.*\))?$/, (unit) => table.dataset.place + unit);
      (extra.querySelector("button")?.firstChild ?? extra.firstChild).textContent = title;
      table.querySelector(".filters .extra input")?.setAttribute("aria-label", `Filter All series by ${title}`);
      for (const [row, line] of lineOf) {
        const cell = row.querySelector(".extra");
        cell.textContent = line.cells[metric.name] ?? "n/a";
        cell.dataset.head = title;
      }
    }
    for (const row of table.rows) {
      [...row.cells].forEach((cell, i) => cell.classList.toggle("chosen", i === (column >= 0 ? column : 1) && !row.matches(".group")));
    }
  };
  watch(() => [state.get("metric"), state.get("group")], mark);
  enhance(table, key, { watched: () => [state.get("metric"), state.get("series")], tools: document.getElementById("view") });
  mark();
}

// The part of the data that the address selects; defaults are the first group, metric and axis.
function chosen() {
  const groups = [...new Set(data.lines.map((line) => line.group))];
  const group = groups.includes(state.get("group")) ? state.get("group") : groups[0];
  const lines = data.lines.map((line, place) => ({ ...line, place })).filter((line) => line.group === group);
  const has = (line, read) => line.points.some((point) => read(point) !== undefined);
  const metrics = data.metrics.filter(({ name }) => lines.some((line) => has(line, (point) => point.values[name])));
  const metric = metrics.find(({ name }) => name === state.get("metric")) ?? metrics[0];
  const places = data.axes.filter(({ name }) => lines.some((line) => has(line, (point) => point.x[name])));
  const axes = [...places, ...metrics.map(({ name, title, unit }) => ({ name, title, unit, kind: "metric" }))];
  const axis = axes.find(({ name }) => name === state.get("axis")) ?? axes[0];
  const off = new Set((state.get("off") ?? "").split("."));
  // The chart has the lines that the table shows, in the order of the table.
  const listed = lines.filter((line) => rowOf(line)?.hidden !== true && (rowOf(line) || isFound(line)));
  if (listed.every(rowOf)) listed.sort((a, b) => rowOf(a).rowIndex - rowOf(b).rowIndex);
  const on = listed.filter((line) => !off.has(String(line.place)));
  return { groups, group, lines, metrics, metric, axes, axis, off, listed, on, drawn: on.slice(0, MOST_LINES) };
}

const xOf = (point, axis) => {
  const at = axis.kind === "metric" ? point.values[axis.name]?.[0] : point.x[axis.name];
  return axis.kind === "time" && at !== undefined ? new Date(at) : at;
};

// The marks of a number, such as "†": the first letters of the sentences that explain them.
const markOf = (value) => value.slice(3).map((sentence) => sentence[0]).join("");
const marksOf = (points, x, y, options) => Plot.text(points.filter(({ mark }) => mark), { x, y, text: "mark", lineAnchor: "bottom", textAnchor: "start", fontSize: 12, pointerEvents: "none", ...options });

function pointsOf(line, metric, axis) {
  return line.points
    .map((point) => ({ point, line, x: xOf(point, axis), value: point.values[metric.name] }))
    .filter(({ x, value }) => x !== undefined && value !== undefined)
    .map((datum) => ({ ...datum, y: datum.value[0], low: datum.value[1] ?? undefined, high: datum.value[2] ?? undefined, mark: markOf(datum.value) }));
}

// The text of a point on hover, focus and touch.
function wordsOf({ point, line }, metric) {
  const [value, low, high, ...explanations] = point.values[metric.name];
  const digits = metric.digits + (low === null ? 0 : 1);
  const names = point.runs.map((run) => data.runs[run].name);
  return [
    [line.title, point.label].filter(Boolean).join(", "),
    `${metric.title}: ${format(value, digits)}${unitOf(metric)}`,
    ...explanations,
    low === null || low === high ? "" : `95 % confidence interval: ${format(low, digits)} to ${format(high, digits)}`,
    names.length ? `${names.length === 1 ? "run" : `${names.length} runs`}: ${names.slice(0, 3).join(", ")}${names.length > 3 ? ", ..." : ""}` : "",
  ].filter(Boolean);
}

// The range of the vertical axis: from 0, unless all numbers are close to each other.
function frame(points, ideals, isGrowing) {
  const ends = points.flatMap(({ y, low, high }) => [y, Math.max(low ?? y, y / 2), Math.min(high ?? y, 2 * y)]);
  const [least, most] = d3.extent([...ends, ...ideals]);
  const from = least >= 0 && least < (isGrowing ? 0.8 : 0.5) * most ? 0 : least;
  const room = 0.06 * (most - from) || 0.02 * Math.abs(most) || 1;
  return [from === 0 ? 0 : from - room, most + room];
}

// The ideal at each place; n devices have an ideal of n, other numbers on the axis do not.
const idealsOf = (metric, axis, places) =>
  metric.ideal === "one" ? places.map(() => (metric.unit === "%" ? 100 : 1)) : metric.ideal === "n" && axis === data.axes[0] ? places : [];
const startOf = ([from]) => (from > 0 ? ` (axis from ${format(from, 1)}, not from 0)` : "");

// Invisible links over the points, with a name and large enough for a finger.
const LINK = { href: (datum) => hrefOf(datum.point) || "#main", ariaLabel: "label" };
const links = (points, x, y, options = {}) => Plot.dot(points, { x, y, r: 11, fill: "transparent", stroke: "transparent", ...LINK, ...options });

// The title of each row, above it.
const rowTitles = (rows, width, dy, options = {}) =>
  Plot.text(rows, { ...options, y: "place", text: "title", frameAnchor: "left", textAnchor: "start", dy, fontSize: 12, lineWidth: width / 13, textOverflow: "ellipsis" });

const chartOf = (options) => Plot.plot({ ...options, style: { background: "none", fontSize: "12px", ...options.style } });

function imageOf(label, options) {
  const svg = chartOf(options);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  return svg;
}

// A speedup of 1 and an efficiency of 100 % on one device are definitions: they are not drawn beside measured numbers.
const isDefinition = (metric) => ({ value: [value, low, high] }) => metric.ideal !== "" && value === low && value === high;

function measuredOf(drawn, metric, axis) {
  const points = drawn.flatMap((line) => pointsOf(line, metric, axis));
  const measured = points.filter((datum) => !isDefinition(metric)(datum));
  return measured.length ? measured : points;
}

// The rows of a chart: names that begin alike have a heading instead of their beginning.
function rowsOf(drawn) {
  const rows = [];
  let heading = "";
  for (const line of drawn) {
    if (line.shared && line.shared !== heading) rows.push({ place: `heading ${line.place}`, title: line.shared, isHeading: true });
    heading = line.shared;
    rows.push({ place: String(line.place), title: `${line.shared && "\u2003"}${shortTitle(line)}` });
  }
  return rows;
}

function rowsPlot({ drawn, metric, axis }, width) {
  const points = measuredOf(drawn, metric, axis);
  const places = [...new Set(drawn.flatMap((line) => pointsOf(line, metric, axis)).map(({ x }) => x))].sort(d3.ascending);
  const rows = rowsOf(drawn);
  const ideals = idealsOf(metric, axis, places).slice(-1);
  const domain = frame(points, ideals, metric.ideal === "n");
  const y = ({ line }) => String(line.place);
  const marks = [Plot.ruleX(ideals, { stroke: "var(--muted)", strokeDasharray: "2 2" })];
  for (const line of drawn) {
    const ofLine = points.filter((datum) => datum.line === line);
    const dot = { x: "y", y, symbol: SYMBOLS[shapeOf(line)], r: 4.5, stroke: colourOf(line), strokeWidth: 1.5 };
    marks.push(
      ...d3.groups(ofLine, ({ x }) => x).flatMap(([x, ofPlace]) => {
        const isLast = x === places.at(-1);
        // Intervals of two places may overlap.
        const dy = ofLine.length < 2 ? 0 : isLast ? 3 : -3;
        return [
          Plot.ruleY(ofPlace.filter(({ low }) => low !== undefined), { x1: "low", x2: "high", y, dy, stroke: colourOf(line), strokeWidth: isLast ? 2 : 1.2, clip: true }),
          Plot.dot(ofPlace, { ...dot, dy, fill: isLast ? colourOf(line) : "var(--paper)" }),
          marksOf(ofPlace, "y", y, { dx: 5, dy: dy - 2 }),
        ];
      }),
    );
  }
  return { points, domain, options: {
    height: 44 + 32 * rows.length, marginLeft: 6, marginRight: 14, marginTop: 10, marginBottom: 34,
    x: { domain, label: captionOf(metric) + startOf(domain), labelAnchor: "left", labelArrow: "none", ticks: Math.max(3, width / 90), grid: true },
    y: { type: "band", domain: rows.map(({ place }) => place), axis: null },
    marks: [
      Plot.ruleY(rows.filter((row) => !row.isHeading), { y: "place", stroke: "var(--rule)" }),
      rowTitles(rows.filter((row) => !row.isHeading), width, -13),
      rowTitles(rows.filter((row) => row.isHeading), width, 3, { fontWeight: 600 }),
      ...marks, links(points, "y", y),
    ],
  } };
}

function linesPlot({ drawn, metric, axis }, width) {
  const byLine = drawn.map((line) => pointsOf(line, metric, axis));
  const points = byLine.flat();
  const places = d3.sort(new Set(points.map(({ x }) => +x || x)));
  const isNumber = ["number", "log", "metric"].includes(axis.kind);
  const isLog = axis.kind === "log" || (isNumber && places[0] > 0 && places.at(-1) / places[0] > 16);
  const ideals = idealsOf(metric, axis, places);
  const isLogY = isLog && metric.ideal === "n" && ideals.length > 0;
  const domain = isLogY ? [d3.min(points, ({ y }) => y) / 3, 1.4 * d3.max([...ideals, ...points.map(({ y }) => y)])] : frame(points, ideals, metric.ideal === "n");
  const marks = [Plot.line(places, { x: (x) => x, y: (_, i) => ideals[i], stroke: "var(--muted)", strokeDasharray: "2 2", filter: () => ideals.length > 0 })];
  const shift = (k) => (isNumber && axis.kind !== "metric" ? 3 * (k - (drawn.length - 1) / 2) * Math.min(1, 12 / drawn.length) : 0);
  drawn.forEach((line, k) => {
    const both = { x: "x", stroke: colourOf(line), dx: shift(k) };
    const isPredicted = ({ point }) => point.is_predicted;
    const band = { y1: ({ y, low }) => Math.max(low ?? y, domain[0]), y2: ({ y, high }) => Math.min(high ?? y, domain[1]) };
    if (byLine[k].some(isPredicted)) marks.push(Plot.areaY(byLine[k], { x: "x", ...band, dx: shift(k), fill: colourOf(line), fillOpacity: 0.36 / (1 + drawn.length) }));
    marks.push(Plot.ruleX(byLine[k].filter((datum) => datum.low !== undefined && !isPredicted(datum)), { ...both, y1: "low", y2: "high", strokeWidth: 1.2, clip: true }));
    if (axis.kind !== "metric") marks.push(Plot.line(byLine[k], { ...both, y: "y", strokeWidth: 1.6 }));
    marks.push(Plot.dot(byLine[k], { ...both, y: "y", r: 4, symbol: SYMBOLS[shapeOf(line)], fill: (datum) => (isPredicted(datum) ? "var(--paper)" : colourOf(line)) }));
    marks.push(marksOf(byLine[k], "x", "y", { dx: shift(k) + 5, dy: -2 }));
  });
  for (const mark of data.marks.filter((candidate) => candidate.axis === axis.name)) {
    const at = axis.kind === "time" ? new Date(mark.x) : mark.x;
    marks.push(Plot.ruleX([at], { stroke: "var(--muted)", strokeDasharray: "4 3" }));
    marks.push(Plot.text([at], { x: (x) => x, text: () => mark.text, frameAnchor: "top", textAnchor: "start", dx: 4, lineWidth: 12 }));
  }
  const type = axis.kind === "order" ? "point" : axis.kind === "time" ? "utc" : isLog ? "log" : "linear";
  const isListed = axis.kind !== "metric" && isNumber && (isLog || places.length <= 10);
  const few = places.filter((_, i) => (places.length - 1 - i) % Math.ceil(places.length / 10) === 0);
  const every = Math.ceil(places.length / Math.max(1, (width - 82) / 84));
  const order = { domain: [...new Set([...axis.order ?? [], ...points.map(({ x }) => x)])], tickFormat: (x, i) => (i % every ? "" : String(x).slice(0, 10)) };
  const ticks = isListed ? { base: isLog ? 2 : undefined, ticks: few, tickFormat: (x) => x.toLocaleString("en-US") } : axis.kind === "order" ? order : { ticks: width / 90 };
  return { points, domain, options: {
    height: Math.max(260, Math.min(380, 0.62 * width)), marginLeft: 62, marginRight: 20, marginTop: 28, marginBottom: 38,
    x: { type, label: axis.title + (axis.unit ? `, ${axis.unit}` : ""), labelArrow: "none", inset: 12, ...ticks },
    y: { type: isLogY ? "log" : "linear", domain, label: captionOf(metric) + (isLogY ? " (log axis)" : startOf(domain)), labelArrow: "none", grid: true, ...(isLogY ? { base: 2, ticks: few, tickFormat: "," } : { ticks: 5 }) },
    marks: [...marks, ...drawn.map((line, k) => links(byLine[k], "x", "y", { dx: shift(k) }))],
  } };
}

// The parts of each line's last point as one bar; gains are left of 0.
function barsPlot({ drawn }, width) {
  const parts = data.parts.map((name) => data.metrics.find((metric) => metric.name === name) ?? {});
  const points = [];
  for (const line of drawn) {
    const point = line.points.filter(({ values }) => data.parts.some((name) => values[name])).at(-1);
    let [left, right] = [0, 0];
    for (const [k, metric] of parts.entries()) {
      const value = point?.values[metric.name]?.[0];
      if (value === undefined) continue;
      points.push({ point, line, metric, k, x1: value < 0 ? left + value : right, x2: value < 0 ? left : right + value, value });
      if (value < 0) left += value;
      else right += value;
    }
  }
  const rows = d3.groups(points, ({ line }) => line).map(([{ title, place }, [{ point }]]) => ({ place, title: `${title}, ${point.label}` }));
  const [least, most] = [d3.min(points, ({ x1 }) => x1), d3.max(points, ({ x2 }) => x2)];
  const fill = ({ k }) => (k < 6 ? `var(--s${k})` : "var(--rest)");
  const scale = (width - 30) / (most - least || 1);
  const wide = (datum) => Math.abs(datum.value) * scale;
  const name = ({ metric, value }) => [`${metric.name} ${format(value, 1)}`, format(value, 1)];
  const text = (datum) => name(datum).find((words) => 6.6 * words.length < wide(datum)) ?? "";
  const y = ({ line }) => line.place;
  const middle = ({ x1, x2 }) => (x1 + x2) / 2;
  return { points, domain: [], options: {
    height: 52 + 44 * rows.length, marginLeft: 8, marginRight: 14, marginTop: 14, marginBottom: 34,
    x: { label: "points of efficiency lost", labelAnchor: "left", labelArrow: "none", grid: true, ticks: width / 90, domain: [Math.min(0, least), most] },
    y: { type: "band", domain: rows.map(({ place }) => place), axis: null, paddingInner: 0.55, paddingOuter: 0.4 },
    marks: [
      rowTitles(rows, width, -19),
      Plot.barX(points, { x1: "x1", x2: "x2", y, fill, fillOpacity: 0.5, stroke: "var(--ink)", strokeWidth: 0.5, ...LINK }),
      Plot.text(points, { x: middle, y, text, fontSize: 11.5, pointerEvents: "none" }),
      Plot.ruleX([0], { stroke: "var(--muted)" }),
    ],
  } };
}

// Draws into `place`. The tip shows the text of the point that has the pointer or the focus. Returns whether an interval is cut.
function draw(place, make, choice) {
  const width = Math.max(260, place.clientWidth);
  const { points, domain, options } = make(choice, width);
  const tip = element("div", { class: "tip", hidden: true });
  const words = points.map((datum) => wordsOf(datum, datum.metric ?? choice.metric));
  points.forEach((datum, i) => { datum.label = words[i].join("; "); });
  const svg = chartOf({ width, style: { overflow: "visible" }, ...options });
  svg.setAttribute("role", "group");
  svg.setAttribute("aria-label", place.dataset.name);
  const byLabel = new Map(points.map((datum, i) => [datum.label, { words: words[i], point: datum.point }]));
  for (const link of svg.querySelectorAll("a")) {
    const mark = link.firstElementChild;
    const about = byLabel.get(mark.getAttribute("aria-label"));
    const href = hrefOf(about.point);
    link.setAttribute("aria-label", mark.getAttribute("aria-label"));
    mark.removeAttribute("aria-label");
    if (href) link.setAttribute("href", href);
    const show = () => {
      const run = data.runs[about.point.runs[0]];
      tip.replaceChildren(...about.words.map((line, i) => element(i ? "div" : "strong", {}, line)), ...(run?.command ? [element("code", {}, ...commandWords(run.command))] : []));
      tip.hidden = false;
      const [box, at] = [place.getBoundingClientRect(), mark.getBoundingClientRect()];
      tip.style.left = `${Math.max(0, Math.min(at.left - box.left, box.width - tip.offsetWidth))}px`;
      tip.style.top = `${at.bottom - box.top + 6}px`;
    };
    for (const start of ["pointerenter", "focus"]) link.addEventListener(start, show);
    for (const end of ["pointerleave", "blur"]) link.addEventListener(end, () => { tip.hidden = true; });
    // With a finger, the first tap shows the tip and the second follows the link.
    let isSeen = false;
    link.addEventListener("pointerdown", (event) => { isSeen = event.pointerType !== "touch" || place.seen === link; });
    link.addEventListener("click", (event) => {
      if (event.pointerType === "touch" && !isSeen) {
        event.preventDefault();
        event.stopPropagation();
        show();
      }
      if (!href) event.preventDefault();
      place.seen = link;
    });
  }
  place.replaceChildren(svg, tip);
  return points.some(({ low, high }) => low < domain[0] || high > domain[1]);
}

function select(label, options, value, key) {
  const choices = options.map(([name, title]) => element("option", { value: name, selected: name === value }, title));
  return element("label", {}, `${label} `, element("select", { change: (event) => choose({ [key]: event.target.value }) }, ...choices));
}

function legend(choice) {
  const { lines, listed, off, drawn, on } = choice;
  const key = (line) => {
    const isOn = !off.has(String(line.place));
    const swatch = `<svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true"><path d="${PATHS[shapeOf(line)]}" fill="${isOn ? colourOf(line) : "none"}" stroke="${colourOf(line)}"/></svg>`;
    const click = () => {
      const next = new Set(off);
      if (isOn) next.add(String(line.place));
      else next.delete(String(line.place));
      next.delete("");
      choose({ off: [...next].join(".") });
    };
    const button = element("button", { type: "button", "aria-pressed": String(isOn), "data-place": line.place, click });
    button.innerHTML = swatch;
    if (line.shared) button.append(element("span", { class: "visually-hidden" }, `${line.shared}, `));
    button.append(shortTitle(line));
    return button;
  };
  const keys = [];
  let heading = "";
  for (const line of listed) {
    if (line.shared && line.shared !== heading) keys.push(element("span", { class: "heading" }, line.shared));
    heading = line.shared;
    keys.push(key(line));
  }
  const more = on.length > drawn.length ? `The chart shows the first ${MOST_LINES}.` : "";
  return [`Series (${drawn.length} of ${lines.length})`, keys, more];
}

function chartView(place) {
  const tools = element("span", { class: "choices" });
  const picture = element("div", { class: "picture" });
  const keys = element("div", { class: "keys", role: "group", "aria-label": "Series to show" });
  const title = element("summary");
  const note = element("p", { class: "note" });
  const filter = () => choose({ series: search.value.trim() }, false);
  const search = element("input", { type: "search", "aria-label": "Filter the series by words", placeholder: "Filter series", input: filter });
  const series = element("details", { class: "series", open: true }, title, keys);
  document.getElementById("view").prepend(tools, search);
  place.append(picture, note, series);
  let hadRows;
  const render = () => {
    const choice = chosen();
    const { groups, group, metrics, metric, axes, axis, lines } = choice;
    if (!metric) return;
    const focus = document.activeElement?.dataset.place;
    const chooser = tools.contains(document.activeElement) && document.activeElement.closest("label")?.textContent[0];
    tools.replaceChildren(
      ...(groups.length > 1 ? [select("Group", groups.map((name) => [name, name]), group, "group")] : []),
      select("Metric", metrics.map(({ name, title: text }) => [name, text]), metric.name, "metric"),
      select("Axis", axes.map(({ name, title: text }) => [name, text]), axis.name, "axis"),
    );
    picture.dataset.name = `${captionOf(metric)} over ${axis.title}, a link for each point`;
    const places = new Set(choice.drawn.flatMap((line) => pointsOf(line, metric, axis).map(({ x }) => +x || x)));
    const isRows = places.size <= FEW && !["metric", "time"].includes(axis.kind);
    // Rows have the names of the series already.
    if (isRows !== hadRows) series.open = !isRows;
    hadRows = isRows;
    const isCut = draw(picture, isRows ? rowsPlot : linesPlot, choice);
    const [text, buttons, more] = legend(choice);
    title.textContent = text;
    keys.replaceChildren(...buttons);
    search.hidden = lines.length < 3;
    if (search !== document.activeElement) search.value = state.get("series") ?? "";
    const [least, most] = d3.sort(places);
    const shown = new Set(measuredOf(choice.drawn, metric, axis).map(({ x }) => x));
    const hasBars = choice.drawn.some((line) => pointsOf(line, metric, axis).some(({ low }) => low !== undefined));
    const hasBand = !isRows && choice.drawn.some((line) => line.points.some((point) => point.is_predicted));
    note.textContent = [
      idealsOf(metric, axis, [...places]).length > 0 && "Dashed: ideal.",
      isRows && shown.size > 1 && `Hollow: ${least}, filled: ${most} (${axis.title}).`,
      isRows && shown.size === 1 && axis === data.axes[0] && metric.ideal && `On ${most} ${axis.title}.`,
      hasBand && "Hollow: not measured.",
      ...new Set(measuredOf(choice.drawn, metric, axis).flatMap(({ value }) => value.slice(3))),
      hasBars && `${hasBand ? "Band" : "Bars"}: 95 % confidence intervals${isCut ? "; some continue beyond the frame" : ""}.`,
      more,
    ].filter(Boolean).join(" ");
    if (focus) keys.querySelector(`[data-place="${focus}"]`)?.focus();
    if (chooser) [...tools.querySelectorAll("label")].find((label) => label.textContent[0] === chooser)?.lastChild.focus();
    announce(`${captionOf(metric)} over ${axis.title}: ${choice.drawn.length} series`);
  };
  watch(() => [...state].filter(([key]) => ["group", "metric", "axis", "off", "series"].includes(key) || key.startsWith("t0.")), render);
  onResize(picture, render);
}

function barsView(place) {
  const hasParts = (line) => line.points.some((point) => data.parts.some((name) => point.values[name]));
  const lines = data.lines.map((line, k) => ({ ...line, place: k })).filter(hasParts).slice(0, MOST_LINES);
  const picture = element("div", { class: "picture", "data-name": "Points of efficiency lost, a link for each part" });
  place.append(picture);
  const render = () => draw(picture, barsPlot, { ...chosen(), drawn: lines, metric: {} });
  render();
  onResize(picture, render);
}

function onResize(place, render) {
  let width = place.clientWidth;
  new ResizeObserver(() => {
    if (place.clientWidth && Math.abs(place.clientWidth - width) > 4) {
      width = place.clientWidth;
      render();
    }
  }).observe(place);
}
