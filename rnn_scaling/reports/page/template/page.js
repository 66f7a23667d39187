// Copy buttons, printing, links into folded sections, and the start of all views.
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", () => copy(button));
}
// Tab stops at a table only if it has to be scrolled.
const fit = () => document.querySelectorAll(".scroll").forEach((box) => { box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1; });
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open], .screen)")];
  for (const folded of closed) folded.open = true;
});
addEventListener("afterprint", () => { for (const folded of closed) folded.open = false; });
// A link into a folded section opens it and the sections around it.
const unfold = () => {
  const place = location.hash.includes("=") ? null : document.getElementById(location.hash.slice(1));
  for (let folded = place?.closest("details"); folded; folded = folded.parentElement.closest("details")) folded.open = true;
  place?.scrollIntoView();
};
const VIEWS = { chart: chartView, bars: barsView, runs: runsView };
function fill() {
  for (const place of document.querySelectorAll(".live[hidden]")) {
    if (place.closest("details:not([open])")) continue;
    place.hidden = false; // before drawing, which needs the size
    VIEWS[place.dataset.view](place);
  }
}
document.documentElement.classList.add("scripted");
// Tables come first, because the chart has the lines that the first table shows.
const seen = () => { enhanceVisible(); fill(); fit(); };
addEventListener("resize", fit);
document.addEventListener("toggle", seen, true);
addEventListener("popstate", () => { readState(); unfold(); });
readState();
seen();
watchRun();
unfold();
if ([...state.keys()].some((key) => key.startsWith("runs."))) document.getElementById("runs").closest("details").open = true;
