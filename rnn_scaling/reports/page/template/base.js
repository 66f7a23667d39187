"use strict";
// The address keeps all choices as #key=value&key=value, so that a link, a reload and "back" restore them.
// A fragment without "=" is a place on the page and keeps the choices.
const state = new Map();
const watchers = [];

function readState() {
  const text = location.hash.slice(1);
  if (text && !text.includes("=")) return;
  state.clear();
  for (const [key, value] of new URLSearchParams(text)) state.set(key, value);
  for (const watch of watchers) watch();
}

// The address with these changes; "" removes a key.
function address(changes) {
  const wanted = new URLSearchParams([...state]);
  for (const [key, value] of Object.entries(changes)) {
    if (value === "") wanted.delete(key);
    else wanted.set(key, value);
  }
  return `#${wanted}`;
}

// isStep: whether "back" undoes it.
function choose(changes, isStep = true) {
  history[isStep ? "pushState" : "replaceState"](null, "", address(changes));
  readState();
}

// Calls `change` now and whenever the choices that `read` returns have changed.
function watch(read, change) {
  let before;
  const look = () => {
    const now = JSON.stringify(read());
    if (now !== before) {
      before = now;
      change();
    }
  };
  watchers.push(look);
  look();
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== false && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

const status = document.getElementById("status");
const announce = (text) => { status.textContent = text; };

// The number with four significant digits, and at most `digits` decimals.
function format(value, digits) {
  const decimals = Math.max(0, Math.min(digits, 3 - Math.floor(Math.log10(Math.abs(value) || 1))));
  return value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

// A command is broken between its words only.
const commandWords = (line) => line.split(" ").flatMap((word, i) => [i ? " " : "", element("span", {}, word)]);

function commandBlock(line, about) {
  const attributes = { type: "button", class: "copy", "aria-label": `Copy the command: ${about}`, click: (event) => copy(event.currentTarget) };
  return element("div", { class: "command" }, element("code", {}, ...commandWords(line)), element("button", attributes, "Copy"));
}

async function copy(button) {
  const code = button.previousElementSibling;
  let text = "Copied";
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    // Without permission for the clipboard, the text is selected for Ctrl+C.
    getSelection().selectAllChildren(code);
    text = "Selected";
  }
  button.textContent = text;
  announce(`${text}.`);
  setTimeout(() => { button.textContent = "Copy"; announce(""); }, 2000);
}
