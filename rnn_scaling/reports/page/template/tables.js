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

function enhance(table, key) {
  const name = table.caption.textContent.trim();
  const heads = [...table.tHead.rows[0].cells];
  const groups = [...table.tBodies].map((body) => ({ body, rows: [...body.rows].filter((row) => !row.classList.contains("group")) }));
  const rows = groups.flatMap((group) => group.rows);
  if (rows.length < 2) return;
  const text = (row, column) => row.cells[column]?.textContent.trim() ?? "";
  const isNumber = heads.map((_, i) => rows.every((row) => !/\d/.test(text(row, i)) || !Number.isNaN(numberIn(text(row, i)))));

  const fields = element("tr", { class: "filters", hidden: true });
  heads.forEach((head, i) => {
    const title = head.textContent;
    const hint = element("span", { class: "visually-hidden" }, `, sort ${name}`);
    const button = element("button", { type: "button", class: "sort" }, ...head.childNodes, hint);
    button.addEventListener("click", () => {
      const [column, direction] = (state.get(`${key}.sort`) ?? "").split(".");
      const next = column !== String(i) ? "up" : direction === "up" ? "down" : "";
      choose({ [`${key}.sort`]: next && `${i}.${next}` }, false);
    });
    head.append(button);
    const field = element("input", { type: "search", "aria-label": `Filter ${name} by ${title}`, placeholder: isNumber[i] && i ? ">0" : "text", size: 6 });
    field.addEventListener("input", () => choose({ [`${key}.${i}`]: field.value.trim() }, false));
    fields.append(element("td", {}, field));
  });
  table.tHead.append(fields);
  const count = element("span", { class: "note" });
  const filter = element("button", { type: "button", "aria-expanded": "false" }, "Filter", element("span", { class: "visually-hidden" }, ` ${name}`));
  const unfold = (isOpen) => { fields.hidden = !isOpen; filter.setAttribute("aria-expanded", isOpen); };
  filter.addEventListener("click", () => {
    unfold(fields.hidden);
    if (!fields.hidden) fields.querySelector("input").focus();
    else choose(Object.fromEntries(heads.map((_, i) => [`${key}.${i}`, ""])), false);
  });
  (table.closest(".scroll") ?? table).before(element("div", { class: "tools" }, filter, count));

  const ordered = (all, column, direction) => {
    const sign = direction === "down" ? -1 : 1;
    const order = (a, b) => {
      const [x, y] = [text(a, column), text(b, column)];
      if (!isNumber[column]) return sign * x.localeCompare(y, "en", { numeric: true });
      const [m, n] = [numberIn(x), numberIn(y)];
      return Number.isNaN(m) || Number.isNaN(n) ? Number.isNaN(m) - Number.isNaN(n) : sign * (m - n);
    };
    return column === "" ? all : [...all].sort(order);
  };
  watch(() => [...state].filter(([name]) => name.startsWith(`${key}.`)), () => {
    const wanted = heads.map((_, i) => state.get(`${key}.${i}`) ?? "");
    const [column, direction] = (state.get(`${key}.sort`) ?? "").split(".");
    heads.forEach((head, i) => {
      head.setAttribute("aria-sort", String(i) !== column ? "none" : direction === "up" ? "ascending" : "descending");
      const field = fields.cells[i].firstChild;
      if (field !== document.activeElement) field.value = wanted[i];
    });
    for (const { body, rows: all } of groups) {
      for (const row of all) row.hidden = wanted.some((filter, i) => filter && !fits(text(row, i), filter));
      body.append(...ordered(all, column, direction));
    }
    const isFiltered = wanted.some(Boolean);
    if (isFiltered) unfold(true);
    count.textContent = isFiltered ? `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows` : "";
    if (isFiltered) announce(`${name}: ${count.textContent}`);
  });
}

// A table gets its buttons when it becomes visible, because a large report has hundreds of tables.
const waiting = new Map([...document.querySelectorAll("table")].map((table, k) => [table, `t${k}`]));
function enhanceVisible() {
  for (const [table, key] of waiting) {
    if (table.closest("details:not([open])")) continue;
    waiting.delete(table);
    enhance(table, key);
  }
}
