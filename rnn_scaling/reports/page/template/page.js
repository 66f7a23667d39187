"use strict";
const status = document.getElementById("status");
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
      say(button, "Copied");
    } catch {
      // Without the right to use the clipboard the text is selected, ready for Ctrl+C.
      getSelection().selectAllChildren(code);
      say(button, "Selected");
    }
  });
}
function say(button, text) {
  button.textContent = text;
  status.textContent = text + ".";
  setTimeout(() => { button.textContent = "Copy"; status.textContent = ""; }, 2000);
}
// A table is a stop of the Tab key only where it has to be scrolled.
const fit = () => document.querySelectorAll(".scroll").forEach((each) => { each.tabIndex = each.scrollWidth > each.clientWidth ? 0 : -1; });
addEventListener("resize", fit);
document.addEventListener("toggle", fit, true);
fit();
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open], .screen)")];
  for (const each of closed) each.open = true;
});
addEventListener("afterprint", () => { for (const each of closed) each.open = false; });
// A link into something folded opens it; browsers that do so themselves find it open.
const unfold = () => { const folded = location.hash && document.getElementById(location.hash.slice(1))?.closest("details"); if (folded) folded.open = true; };
addEventListener("hashchange", unfold);
unfold();
