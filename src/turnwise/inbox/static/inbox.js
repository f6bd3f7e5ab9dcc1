// What the pages do beyond plain posts: they change by themselves, check before they send, and keep the reader's place.
"use strict";

const told = document.getElementById("told");
const root = document.querySelector("[data-live]");
const live = document.getElementById("live");

// Parts of the page

const received = new WeakMap(); // A part as it came: the reader's typing is no change of ours.
const asText = (part) => part.outerHTML.replace(/(<time[^>]*>)[^<]*/g, "$1");
const partsOf = (column) => [...column.children].filter((one) => one.dataset.part);
const columnsOf = (place) => [...place.querySelectorAll("[data-column]")];

function remember(place) {
  for (const column of columnsOf(place)) for (const part of partsOf(column)) received.set(part, asText(part));
}

// A question that is still asked is left as the reader has it, but for its number. What the reader sent is always taken as
// it comes back, even where the same is wrong with it as before: the checks before sending have wiped the words about it.
function freshen(here, part, sent) {
  if (here.contains(sent)) {
    for (const form of part.querySelectorAll("form[data-answer]")) form.dataset.typed = "";
    return true;
  }
  if (received.get(here) === received.get(part)) return false;
  if (!here.hasAttribute("data-lasting")) return true;
  here.querySelector(".q-head").replaceChildren(...part.querySelector(".q-head").childNodes);
  return false;
}

function swapColumn(old, fresh, sent) {
  const wanted = new Map(partsOf(fresh).map((part) => [part.dataset.part, part]));
  const stays = (part) => part.dataset.part === "notice" && !sent && !wanted.has("notice");
  for (const part of partsOf(old)) if (!wanted.has(part.dataset.part) && !stays(part)) part.remove();
  const known = new Map(partsOf(old).map((part) => [part.dataset.part, part]));
  let last = null;
  for (const [name, part] of wanted) {
    const text = received.get(part);
    let here = known.get(name);
    if (here && here.dataset.column && part.dataset.column) swapColumn(here, part, sent);
    else if (!here) here = part;
    else if (freshen(here, part, sent)) { here.replaceWith(part); here = part; }
    let after = last ? last.nextElementSibling : old.firstElementChild;
    while (after && after !== here && stays(after)) after = after.nextElementSibling;
    if (here !== after) old.insertBefore(here, after);
    received.set(here, text);
    last = here;
  }
}

function swap(html, sent = null) {
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  const whole = fresh.content.firstElementChild;
  const old = live.firstElementChild;
  if (!whole || !old || Number(whole.dataset.revision) < Number(old.dataset.revision)) return; // It was overtaken on its way.
  remember(fresh.content);
  const typed = [...live.querySelectorAll("form[data-typed]:not([aria-busy])")].map((form) => form.closest("[data-part]"));
  const hadFocus = live.contains(document.activeElement);
  const topColumns = (place) => [place, ...columnsOf(place)].filter((one) => one.dataset.column && !one.dataset.part);
  const columns = new Map(topColumns(whole).map((one) => [one.dataset.column, one]));
  for (const column of topColumns(old)) {
    if (columns.has(column.dataset.column)) swapColumn(column, columns.get(column.dataset.column), sent);
  }
  const lost = typed.find((part) => !document.contains(part));
  if (lost) overtaken(lost.dataset.part, whole.dataset.me);
  prepare(live);
  if (whole.dataset.tell !== old.dataset.tell) tell(whole.dataset.tell);
  Object.assign(old.dataset, whole.dataset);
  if (hadFocus && !live.contains(document.activeElement)) focusFirst();
}

function overtaken(question, me) {
  const answer = live.querySelector(`[data-answered="${question}"]`);
  const who = answer && (answer.dataset.by === me ? "You answered this elsewhere" : `${answer.dataset.by} was first`);
  const box = notice("summary notice", "h2", who || "This question is no longer asked", "What you typed here was not sent.");
  Object.assign(box.dataset, { part: "notice", focus: "" });
  dropNotices();
  live.querySelector("[data-part='head']").after(box);
}

function dropNotices() {
  for (const box of live.querySelectorAll("[data-part='notice']")) box.remove();
}

function dismiss(event) {
  if (!event.target.closest("button[data-dismiss]")) return;
  dropNotices();
  focusFirst();
}

function notice(kind, level, heading, text) {
  const box = document.createElement("div");
  box.className = kind;
  box.setAttribute("role", "alert");
  box.tabIndex = -1;
  box.append(document.createElement(level), document.createElement("p"));
  box.firstChild.textContent = heading;
  box.lastChild.textContent = text;
  return box;
}

function focusFirst() {
  const place = live.querySelector(".summary[data-focus]") || live.querySelector("[data-focus]") || document.getElementById("main");
  place.focus({ preventScroll: false });
}

function tell(words) {
  told.textContent = "";
  setTimeout(() => { told.textContent = words; }, 50);
}

// Looking again

let looking = null, again = false;

async function look(address = location.href) {
  if (looking) { again = true; return looking; }
  looking = (async () => {
    try {
      const reply = await fetch(address, { headers: { "X-Part": "live" }, redirect: "manual" });
      if (reply.status === 200) swap(await reply.text());
      else if (reply.status === 401 || reply.status === 404) location.reload();
    } catch { /* The inbox is away: the stream of events comes back when it does, and we look again then. */ }
  })();
  await looking;
  looking = null;
  if (again) { again = false; setTimeout(look, 250); }
}

function listen() {
  const events = new EventSource(root.dataset.events);
  let lost = false, timer = null;
  events.addEventListener("open", () => { if (lost) look(); lost = false; });
  events.addEventListener("error", () => {
    lost = true;
    if (events.readyState === EventSource.CLOSED) setTimeout(() => { look(); listen(); }, 3000);
  });
  events.addEventListener("change", (event) => {
    if (root.dataset.live === "item" && event.data && !event.data.split(" ").includes(root.dataset.item)) return;
    if (root.dataset.live === "item") look();
    else timer ??= setTimeout(() => { timer = null; look(); }, 300);
  });
  addEventListener("pagehide", () => events.close());
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
}

// Checking before sending

const lengthOf = (text) => [...text].length;

function wrongIn(field) {
  if (field.tagName === "FIELDSET") {
    const chosen = field.querySelectorAll("input:checked").length;
    if ("required" in field.dataset && !chosen) return "is needed";
    if (field.dataset.several !== "True" || (!chosen && !field.dataset.least)) return "";
    if (chosen < Number(field.dataset.least || 0)) return `needs at least ${field.dataset.least}`;
    if (field.dataset.most && chosen > Number(field.dataset.most)) return `takes at most ${field.dataset.most}`;
    return "";
  }
  const control = field.querySelector("input, select, textarea");
  const state = control.validity;
  if (state.valueMissing || (control.required && !control.value.trim() && !state.badInput)) return "is needed";
  if (state.badInput) return control.type === "number" ? "must be a number" : "must be a whole date";
  if (state.typeMismatch) return control.type === "email" ? "must be an email address" : "must be an address with its scheme, as https://example.com";
  if (state.stepMismatch) return "must be a whole number";
  if (state.rangeUnderflow) return `must be at least ${control.min}`;
  if (state.rangeOverflow) return `must be at most ${control.max}`;
  const length = lengthOf(control.value.replace(/\r\n/g, "\n"));
  if (length && control.dataset.shortest && length < Number(control.dataset.shortest)) return `must have at least ${control.dataset.shortest} characters`;
  if (control.dataset.longest && length > Number(control.dataset.longest)) return `must have at most ${control.dataset.longest} characters`;
  return "";
}

function check(field) {
  const wrong = wrongIn(field);
  const place = field.querySelector(".fault");
  if (place) place.textContent = wrong ? `This ${wrong}.` : "";
  field.classList.toggle("wrong", Boolean(wrong));
  for (const control of field.querySelectorAll("input, select, textarea")) {
    if (wrong) control.setAttribute("aria-invalid", "true"); else control.removeAttribute("aria-invalid");
  }
  return wrong;
}

function summarise(form, wrongs) {
  const box = document.createElement("div");
  box.className = "summary";
  box.setAttribute("role", "alert");
  box.tabIndex = -1;
  const head = document.createElement("h3");
  head.textContent = wrongs.length === 1 ? "One thing is not right yet" : `${wrongs.length} things are not right yet`;
  const list = document.createElement("ul");
  for (const [field, wrong] of wrongs) {
    const link = document.createElement("a");
    const name = field.querySelector("legend > span, label > span") || field.querySelector("label");
    link.href = `#${field.id || field.querySelector("input, select, textarea").id}`;
    link.textContent = `${name.textContent} ${wrong}.`;
    list.appendChild(document.createElement("li")).appendChild(link);
  }
  box.append(head, list);
  form.querySelector(".faults").replaceChildren(box);
  box.focus();
}

function jump(event) {
  const link = event.target.closest(".summary a[href^='#']");
  const place = link && document.getElementById(link.hash.slice(1));
  if (!place) return;
  event.preventDefault();
  (place.matches("fieldset") ? place.querySelector("input") : place).focus();
  place.scrollIntoView({ block: "center" });
}

// Sending

async function send(event) {
  const form = event.target.closest("form[data-post]");
  if (!form) return;
  event.preventDefault();
  if (form.getAttribute("aria-busy") === "true") return;
  const button = event.submitter;
  if (button && button.value === "accept") {
    const wrongs = [...form.querySelectorAll(".field")].map((field) => [field, check(field)]).filter(([, wrong]) => wrong);
    if (wrongs.length) { summarise(form, wrongs); return; }
  }
  const body = new URLSearchParams(new FormData(form));
  if (button && button.name) body.append(button.name, button.value);
  form.setAttribute("aria-busy", "true");
  try {
    const reply = await fetch(form.getAttribute("action"), { method: "POST", body, headers: { "X-Part": "live" }, redirect: "manual" });
    if ([200, 409, 422].includes(reply.status)) {
      const html = await reply.text();
      dropNotices(); // Here and not in the swap, which does nothing where the reply was overtaken.
      swap(html, form);
    } else location.reload();
    if (!document.contains(form) || reply.status !== 200) focusFirst();
  } catch {
    tell("The inbox cannot be reached. Your answer was not sent.");
    const box = form.querySelector(".faults");
    if (box) {
      box.replaceChildren(notice("summary", "h3", "The inbox cannot be reached", "Your answer was not sent. Try again in a while."));
      box.firstChild.focus();
    }
  }
  form.removeAttribute("aria-busy");
}

// Small things

function prepare(place) {
  for (const form of place.querySelectorAll("form[data-answer]")) form.noValidate = true;
  for (const box of place.querySelectorAll("[data-part='notice']:not(:has(button))")) {
    const button = box.appendChild(document.createElement("button"));
    Object.assign(button, { type: "button", textContent: "Dismiss" });
    button.dataset.dismiss = "";
  }
  for (const zone of place.querySelectorAll("select[data-zone]")) {
    delete zone.dataset.zone;
    const clock = zone.parentElement.querySelector("input");
    const choose = () => { zone.value = offset(clock.value); if (zone.selectedIndex < 0) zone.value = "+00:00"; };
    choose();
    clock.addEventListener("change", choose);
    zone.addEventListener("change", () => clock.removeEventListener("change", choose));
  }
}

function offset(moment) {
  const away = -(moment ? new Date(moment) : new Date()).getTimezoneOffset();
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  return `${away < 0 ? "-" : "+"}${two(Math.abs(away) / 60)}:${two(Math.abs(away) % 60)}`;
}

function inWords(seconds) {
  for (const [unit, word] of [[86400, "day"], [3600, "hour"], [60, "minute"]]) {
    const count = Math.floor(seconds / unit);
    if (count) return `${count} ${word}${count === 1 ? "" : "s"}`;
  }
  return "less than a minute";
}

function tick() {
  for (const time of document.querySelectorAll("time")) {
    const distance = (new Date(time.dateTime) - Date.now()) / 1000;
    const words = distance > 0 ? `in ${inWords(distance)}` : distance > -60 ? "just now" : `${inWords(-distance)} ago`;
    if (time.textContent !== words) time.textContent = words;
    time.title = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
  }
}

function filter(form) {
  let timer = null;
  form.elements.q.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const words = form.elements.q.value.trim();
      history.replaceState(null, "", form.getAttribute("action") + (words ? `?q=${encodeURIComponent(words)}` : ""));
      look();
    }, 150);
  });
}

if (live) { remember(document); prepare(live); listen(); tick(); setInterval(tick, 15000); }
document.addEventListener("submit", send);
document.addEventListener("click", jump);
document.addEventListener("click", dismiss);
document.addEventListener("focusout", (event) => {
  const field = event.target.closest("form[data-answer] .field");
  if (field && !field.contains(event.relatedTarget) && event.target.value) check(field);
});
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-answer]");
  if (form) form.dataset.typed = "";
  const field = event.target.closest("form[data-answer] .field.wrong");
  if (field) check(field);
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  const form = event.target.closest("form[data-answer]");
  const button = form && form.querySelector("button[value='accept']");
  if (button) form.requestSubmit(button);
});
for (const form of document.querySelectorAll("form[data-filter]")) filter(form);
const first = document.querySelector(".summary[data-focus]");
if (first) first.focus();
