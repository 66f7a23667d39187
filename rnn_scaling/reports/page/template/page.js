// Copy buttons, printing, links into what is folded, and the start of everything else.
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", () => copy(button));
}
// A table is a stop of the Tab key only where it has to be scrolled.
const fit = () => document.querySelectorAll(".scroll").forEach((each) => { each.tabIndex = each.scrollWidth > each.clientWidth ? 0 : -1; });
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open], .screen)")];
  for (const each of closed) each.open = true;
});
addEventListener("afterprint", () => { for (const each of closed) each.open = false; });
// A link into something folded opens it with all around it, and the section whose heading it names.
const unfold = () => {
  const place = location.hash.includes("=") ? null : document.getElementById(location.hash.slice(1));
  for (let folded = place?.closest("details"); folded; folded = folded.parentElement.closest("details")) folded.open = true;
  place?.scrollIntoView();
};
const VIEWS = { chart: chartView, bars: barsView, runs: runsView };
function fill() {
  for (const place of document.querySelectorAll(".live[hidden]")) {
    if (place.closest("details:not([open])")) continue;
    place.hidden = false; // first: what is drawn has to be measured
    VIEWS[place.dataset.view](place);
  }
}
document.documentElement.classList.add("scripted");
const seen = () => { fill(); enhanceVisible(); fit(); };
addEventListener("resize", fit);
document.addEventListener("toggle", seen, true);
addEventListener("popstate", () => { readState(); unfold(); });
readState();
seen();
watchRun();
unfold();
if ([...state.keys()].some((key) => key.startsWith("runs."))) document.getElementById("runs").closest("details").open = true;
