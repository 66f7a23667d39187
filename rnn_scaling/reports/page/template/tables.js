// Click a column name to sort a table. "Filter" shows a field per column, for text or a number such as ">90".
const numberIn = (text) => {
  const found = /^\s*([-\u2212]?(?:\d[\d,]*)?\.?\d+(?:e[-+]?\d+)?)/.exec(text);
  return found ? Number(found[1].replaceAll(",", "").replace("\u2212", "-")) : NaN;
};
const TESTS = { "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b, "=": (a, b) => a === b };

function fits(text, wanted) {
  const compared = /^([<>]=?|=)\s*(.*)$/.exec(wanted);
  if (!compared) return text.toLowerCase().includes(wanted.toLowerCase());
  const limit = numberIn(compared[2]);
  return Number.isNaN(limit) || TESTS[compared[1]](numberIn(text), limit);
}

// Columns whose first click sorts the smallest first: texts, times, losses and costs. Others begin with the largest.
const SMALLEST_FIRST = /\((s|ms|mJ|GiB|USD|EUR|points)\)|, (s|ms|mJ|GiB|points)$|second|time|loss|lost|latency|energy|cost|memory|padding|waiting/i;

// Words of the field above the first table, which filters its lines and the chart.
const searched = () => (state.get("series") ?? "").toLowerCase().split(/\s+/).filter(Boolean);

// `watched`: further choices after which the table is sorted and filtered again; `tools`: where its buttons are.
function enhance(table, key, { watched = () => "", tools = null } = {}) {
  const name = table.caption.textContent.trim();
  const isOverview = table.classList.contains("overview");
  const heads = [...table.tHead.rows[0].cells];
  const groups = [...table.tBodies].map((body) => {
    const all = [...body.rows];
    return { body, all, titles: all.filter((row) => row.matches(".group:not(.shared)")), shared: all.filter((row) => row.matches(".shared")), rows: all.filter((row) => !row.matches(".group")) };
  });
  const rows = groups.flatMap((group) => group.rows);
  if (rows.length < 2) return;
  const text = (row, column) => row.cells[column]?.textContent.trim() ?? "";
  const isNumber = (i) => rows.every((row) => !/\d/.test(text(row, i)) || !Number.isNaN(numberIn(text(row, i))));
  const firstDirection = (i) => (i > 0 && isNumber(i) && !SMALLEST_FIRST.test(heads[i].textContent) && !/lost|loss/i.test(name) ? "down" : "up");

  const fields = element("tr", { class: "filters", hidden: true });
  heads.forEach((head, i) => {
    const title = head.textContent;
    const hint = element("span", { class: "visually-hidden" }, `, sort ${name}`);
    const button = element("button", { type: "button", class: "sort" }, ...head.childNodes, hint);
    button.addEventListener("click", () => {
      const [column, direction] = (state.get(`${key}.sort`) ?? "").split(".");
      const first = firstDirection(i);
      const next = column !== String(i) ? first : direction === first ? (first === "up" ? "down" : "up") : "";
      choose({ [`${key}.sort`]: next && `${i}.${next}` }, false);
    });
    head.append(button);
    const field = element("input", { type: "search", "aria-label": `Filter ${name} by ${title}`, placeholder: isNumber(i) && i ? ">0" : "text", size: 6 });
    field.addEventListener("input", () => choose({ [`${key}.${i}`]: field.value.trim() }, false));
    fields.append(element("td", { class: head.className, hidden: head.hidden }, field));
  });
  table.tHead.append(fields);
  const count = element("span", { class: "note" });
  const filter = element("button", { type: "button", "aria-expanded": "false" }, isOverview ? "Filter columns" : "Filter", element("span", { class: "visually-hidden" }, ` ${name}`));
  const unfold = (isOpen) => { fields.hidden = !isOpen; filter.setAttribute("aria-expanded", isOpen); };
  filter.addEventListener("click", () => {
    unfold(fields.hidden);
    if (!fields.hidden) fields.querySelector("input").focus();
    else choose(Object.fromEntries(heads.map((_, i) => [`${key}.${i}`, ""])), false);
  });
  if (tools) tools.append(filter, count);
  else (table.closest(".scroll") ?? table).before(element("div", { class: "tools" }, filter, count));

  const ordered = (all, column, direction) => {
    const sign = direction === "down" ? -1 : 1;
    const isNumeric = isNumber(column);
    const order = (a, b) => {
      const [x, y] = [text(a, column), text(b, column)];
      if (!isNumeric) return sign * x.localeCompare(y, "en", { numeric: true });
      const [m, n] = [numberIn(x), numberIn(y)];
      return Number.isNaN(m) || Number.isNaN(n) ? Number.isNaN(m) - Number.isNaN(n) : sign * (m - n);
    };
    return [...all].sort(order);
  };
  watch(() => [[...state].filter(([choice]) => choice.startsWith(`${key}.`)), watched()], () => {
    const wanted = heads.map((_, i) => state.get(`${key}.${i}`) ?? "");
    const words = isOverview ? searched() : [];
    const [column, direction] = (state.get(`${key}.sort`) ?? "").split(".");
    heads.forEach((head, i) => {
      head.setAttribute("aria-sort", String(i) !== column ? "none" : direction === "up" ? "ascending" : "descending");
      const field = fields.cells[i].firstChild;
      if (field !== document.activeElement) field.value = wanted[i];
    });
    // A sorted table has complete names instead of headings above names that begin alike.
    table.classList.toggle("sorted", column !== "");
    for (const { body, all, titles, shared, rows: ofBody } of groups) {
      for (const row of ofBody) {
        const title = (row.dataset.title ?? text(row, 0)).toLowerCase();
        row.hidden = wanted.some((limit, i) => limit && !fits(text(row, i), limit)) || !words.every((word) => title.includes(word));
      }
      body.append(...(column === "" ? all : [...titles, ...shared, ...ordered(ofBody, column, direction)]));
      for (const heading of shared) {
        let next = heading.nextElementSibling;
        while (next?.hidden) next = next.nextElementSibling;
        heading.hidden = column !== "" || !next?.classList.contains("member");
      }
    }
    const isFiltered = wanted.some(Boolean);
    if (isFiltered) unfold(true);
    count.textContent = isFiltered || words.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length} ${isOverview ? "series" : "rows"}` : "";
    if (isFiltered) announce(`${name}: ${count.textContent}`);
  });
}

// A table gets its buttons when it becomes visible, because a large report has hundreds of tables.
const waiting = new Map([...document.querySelectorAll("table")].map((table, k) => [table, `t${k}`]));
function enhanceVisible() {
  for (const [table, key] of waiting) {
    if (table.closest("details:not([open])")) continue;
    waiting.delete(table);
    if (table.classList.contains("overview")) enhanceOverview(table, key);
    else enhance(table, key);
  }
}
