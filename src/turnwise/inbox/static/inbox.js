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
  if (here.contains(sent) || sent?.contains(here)) {
    if ("answer" in part.dataset) part.dataset.typed = "";
    return true;
  }
  if (received.get(here) === received.get(part)) return false;
  if (!here.hasAttribute("data-lasting")) return true;
  here.querySelector(".q-head").replaceChildren(...part.querySelector(".q-head").childNodes);
  return false;
}

function swapColumn(old, fresh, sent) {
  const wanted = new Map(partsOf(fresh).map((part) => [part.dataset.part, part]));
  const isMoot = (part) => part.matches(".good") && !fresh.querySelector("[data-answer]"); // There is nothing left to answer.
  const isKept = (part) => part.dataset.part.startsWith("kept-");
  const stays = (part) => isKept(part) || (part.dataset.part === "notice" && !sent && !wanted.has("notice") && !isMoot(part));
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

const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";

// Where the reader is: a part, a place in it, and the parts around it, for where it is gone afterwards.
function placeOf(focused) {
  const part = focused.closest("[data-part]");
  if (!part) return null;
  const beside = partsOf(part.parentElement);
  const at = beside.indexOf(part);
  const around = root.dataset.live === "list" ? [...beside.slice(at + 1), ...beside.slice(0, at).reverse()] : [];
  return { names: [part, ...around].map((one) => one.dataset.part), at: [...part.querySelectorAll(FOCUSABLE)].indexOf(focused) };
}

function focusAgain(place) {
  for (const name of place ? place.names : []) {
    const part = live.querySelector(`[data-part="${name}"]`);
    const places = part ? part.querySelectorAll(FOCUSABLE) : [];
    const found = places[place.at] || places[0];
    if (found) { found.focus({ preventScroll: true }); return; }
  }
  focusFirst();
}

function swap(html, sent = null) {
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  const whole = fresh.content.firstElementChild;
  const old = live.firstElementChild;
  const word = fresh.content.querySelector("input[name=csrf]"); // It is another one where the reader has signed in again.
  if (word) for (const one of document.querySelectorAll("input[name=csrf]")) one.value = word.value;
  if (!whole || !old || Number(whole.dataset.revision) < Number(old.dataset.revision)) return; // It was overtaken on its way.
  remember(fresh.content);
  const typed = [...live.querySelectorAll("[data-typed]:not([aria-busy], [aria-busy] *)")].map((part) => ({ part, ...holding(part) }));
  const place = live.contains(document.activeElement) ? placeOf(document.activeElement) : null;
  const hadFocus = live.contains(document.activeElement);
  const topColumns = (place) => [place, ...columnsOf(place)].filter((one) => one.dataset.column && !one.dataset.part);
  const columns = new Map(topColumns(whole).map((one) => [one.dataset.column, one]));
  for (const column of topColumns(old)) {
    if (columns.has(column.dataset.column)) swapColumn(column, columns.get(column.dataset.column), sent);
  }
  const lost = typed.filter(({ part }) => !document.contains(part));
  if (lost.length) overtaken(lost, whole.dataset.me);
  prepare(live);
  if (whole.dataset.tell !== old.dataset.tell) tell(whole.dataset.tell);
  document.title = `${whole.dataset.title} – Turnwise inbox`;
  Object.assign(old.dataset, whole.dataset);
  if (hadFocus && !live.contains(document.activeElement)) (lost.length ? focusFirst : focusAgain)(place);
  forgetAnswered();
}

const holding = (part) => ({ question: part.dataset.part, words: wordsIn(part), isSent: "sent" in part.dataset });

// Who was first, and what was typed in vain: that stays until it is dismissed.
function overtaken(lost, me) {
  const boxes = new Map();
  for (const { question, words, isSent } of lost) {
    const answer = live.querySelector(`[data-answered="${CSS.escape(question)}"]`);
    const isMine = answer?.dataset.by === me;
    if (isSent && isMine) { boxes.set("You have answered this", []); continue; } // The reply did not come through.
    const who = answer && (isMine ? "You answered this elsewhere" : `${answer.dataset.by} was first`);
    const heading = who || "This question is no longer asked";
    boxes.set(heading, [...(boxes.get(heading) || []), ...words]);
  }
  dropNotices();
  for (const [heading, words] of boxes) {
    const isTaken = heading === "You have answered this";
    const text = isTaken ? "Your answer was taken." : words.length ? "What you typed was not sent. Here it is:" : "What you typed here was not sent.";
    const box = notice(`summary notice${isTaken ? " good" : ""}`, "h2", heading, text);
    box.dataset.part = "notice";
    box.dataset.focus = "";
    if (isTaken) box.setAttribute("role", "status");
    holdIn(box, words);
    live.querySelector("[data-part='head']").after(box);
  }
}

function holdIn(box, words) {
  if (!words.length) return;
  const button = box.querySelector("button[data-dismiss]");
  if (button) button.before(...listed(words)); else box.append(...listed(words));
  box.dataset.part = `kept-${Date.now()}`;
}

function dropNotices() {
  for (const box of live.querySelectorAll("[data-part='notice']")) box.remove();
  for (const box of live.querySelectorAll("[data-part^='kept-']")) delete box.dataset.focus;
}

function dismiss(event) {
  if (!event.target.closest("button[data-dismiss]")) return;
  event.target.closest("[data-part]").remove();
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
  if (place.offsetHeight > innerHeight) place.scrollIntoView();
}

function tell(words) {
  told.textContent = "";
  setTimeout(() => { told.textContent = words; }, 50);
}

// What is typed

const controlsOf = (place) => [...place.querySelectorAll("input, select, textarea")].filter((one) => one.name && !["hidden", "password"].includes(one.type));
const isChoice = (control) => ["radio", "checkbox"].includes(control.type);
const keyOf = (control) => (isChoice(control) ? `${control.name}=${control.value}` : control.name);
const valueOf = (control) => (isChoice(control) ? control.checked : control.value);
const valuesOf = (place) => Object.fromEntries(controlsOf(place).map((one) => [keyOf(one), valueOf(one)]));
const nameOf = (field) => (field.querySelector("legend > span, label > span") || field.querySelector("label")).textContent;
const asAsked = new Map(); // What a question's controls hold before anybody types.

function putIn(part, values) {
  for (const one of controlsOf(part)) {
    const value = values[keyOf(one)];
    if (value === undefined) continue;
    if (isChoice(one)) one.checked = value; else one.value = value;
    if (one.name.endsWith(".zone")) one.dispatchEvent(new Event("change")); // It no longer follows its clock.
  }
}

function textOf(control) {
  if (isChoice(control)) return control.checked ? control.closest("label").textContent.trim() : "";
  return control.tagName === "SELECT" ? control.selectedOptions[0]?.textContent || "" : control.value;
}

// Names and texts of the fields that somebody has changed.
function wordsIn(part) {
  const before = asAsked.get(part.dataset.part) || {};
  const isChanged = (field) => controlsOf(field).some((one) => before[keyOf(one)] !== valueOf(one));
  const fields = [...part.querySelectorAll(".field")].filter(isChanged);
  const textIn = (field) => controlsOf(field).map(textOf).filter(Boolean).join(field.tagName === "FIELDSET" ? ", " : " ");
  return fields.map((field) => [nameOf(field), textIn(field)]).filter(([, text]) => text);
}

// Texts that can be copied, with a mouse or a keyboard.
function listed(words) {
  return words.map(([name, text]) => {
    const label = document.createElement("label");
    const area = document.createElement("textarea");
    label.textContent = `${name}, not sent`;
    Object.assign(area, { readOnly: true, value: text, rows: Math.min(8, text.split("\n").length + Math.floor(text.length / 80)) });
    label.append(area);
    return label;
  });
}

// Drafts: what is typed and not sent is kept in this tab, so that it outlives a reload, a way back and a new session.

const KEPT = root ? `turnwise draft ${root.dataset.events} ` : "turnwise draft ";
let keeping = null, hasLeft = false, isLeaving = false;

function draftsOf(prefix) {
  const names = Object.keys(sessionStorage).filter((name) => name.startsWith(prefix));
  return new Map(names.map((name) => [name, JSON.parse(sessionStorage.getItem(name))]));
}

const draftName = (part) => `${KEPT}${root.dataset.item} ${part.dataset.part}`;

function keep() {
  clearTimeout(keeping);
  keeping = null;
  if (hasLeft) return;
  for (const part of live.querySelectorAll("[data-answer][data-typed]")) {
    const values = valuesOf(part);
    const isBlank = JSON.stringify(values) === JSON.stringify(asAsked.get(part.dataset.part));
    const kept = { me: live.firstElementChild.dataset.me, values, words: wordsIn(part), sent: "sent" in part.dataset };
    try {
      if (isBlank) sessionStorage.removeItem(draftName(part));
      else sessionStorage.setItem(draftName(part), JSON.stringify(kept));
    } catch { return; } // There is no room, or the browser keeps nothing.
  }
}

function forget(prefix, isWanted = () => true) {
  for (const [name, draft] of draftsOf(prefix)) if (isWanted(name, draft)) sessionStorage.removeItem(name);
}

const partNamed = (name) => live.querySelector(`[data-answer][data-part="${CSS.escape(name.split(" ").at(-1))}"]`);

function forgetAnswered() {
  if (root.dataset.item) forget(`${KEPT}${root.dataset.item} `, (name) => !partNamed(name));
}

function bringBack() {
  const me = live.firstElementChild.dataset.me;
  forget(KEPT, (name, draft) => draft.me !== me);
  const gone = [];
  for (const [name, draft] of draftsOf(`${KEPT}${root.dataset.item} `)) {
    const part = partNamed(name);
    if (!part) gone.push({ question: name.split(" ").at(-1), words: draft.words, isSent: draft.sent });
    else { putIn(part, draft.values); part.dataset.typed = ""; sayBack(part); }
  }
  if (gone.length) overtaken(gone, me);
  forgetAnswered();
}

function sayBack(part) {
  const box = document.createElement("p");
  const button = document.createElement("button");
  box.className = "intro";
  box.setAttribute("role", "status");
  box.dataset.back = "";
  Object.assign(button, { type: "button", className: "quiet", textContent: "Discard it" });
  button.dataset.discard = "";
  box.append("What you typed here before is back. ", button);
  part.querySelector(".faults").after(box);
}

function signOut(event) {
  if (!event.target.matches("form.leave")) return;
  hasLeft = isLeaving = true;
  forget(KEPT);
  air?.postMessage({ kind: "left" });
}

function discard(event) {
  const part = event.target.closest("button[data-discard]")?.closest("[data-answer]");
  if (!part) return;
  putIn(part, asAsked.get(part.dataset.part));
  delete part.dataset.typed;
  sessionStorage.removeItem(draftName(part));
  part.querySelector("[data-back]").remove();
  controlsOf(part)[0].focus();
  tell("Discarded.");
}

// Looking again

const AWAY = "The inbox cannot be reached. What you see may be old; it is looked at again by itself.";
const SIGNED_OUT = "You are signed out. What you typed stays here:";
const PATIENCE = 3000, SILENCE = 40000; // The inbox gives a sign of life every 15 seconds.
const UNREACHED = [502, 503, 504]; // What a proxy says of an inbox that is away.
const state = document.querySelector("[data-away]");
let looking = null, again = false, lost = null, lapses = 0;

function say(words) {
  if (!state || state.dataset.away === words) return;
  state.dataset.away = words;
  state.textContent = words;
  if (words === SIGNED_OUT) state.append(" ", wayIn());
}

function wayIn() {
  const link = document.createElement("a");
  Object.assign(link, { href: root.dataset.login, target: "_blank", textContent: "Sign in in another tab" });
  return link;
}

function shutOut() {
  if (isLeaving) return;
  if (live.querySelector("[data-typed]")) say(SIGNED_OUT);
  else location.reload();
}

function lapse() {
  lapses += 1;
  say(AWAY);
}

function doubt() {
  lost ??= setTimeout(() => { lost = null; lapse(); }, PATIENCE);
}

function trust() {
  clearTimeout(lost);
  lost = null;
}

async function look(address = location.href) {
  if (looking) { again = true; return looking; }
  const before = lapses; // A reply that was on its way when the inbox was lost does not say that it is back.
  looking = (async () => {
    try {
      const reply = await fetch(address, { headers: { "X-Part": "live" }, redirect: "manual", signal: AbortSignal.timeout(SILENCE) });
      if (reply.status === 200) {
        swap(await reply.text());
        trust();
        if (state?.dataset.away === SIGNED_OUT) hasLeft = false;
        if (before === lapses) { say(""); settle(); }
        if (refusals) { refusals = 0; if (events?.readyState === EventSource.CLOSED) listen(); }
      }
      else if (reply.status === 401) shutOut();
      else if (UNREACHED.includes(reply.status)) doubt();
      else if (reply.status === 404 && !live.querySelector("[data-typed]")) location.reload();
    } catch { doubt(); } // The stream of events comes back when the inbox does, and we look again then.
  })();
  await looking;
  looking = null;
  if (again) { again = false; setTimeout(look, 250); }
}

// Browsers keep few connections to a host, and a stream holds one for as long as it lasts. So of all tabs that can be seen one
// has the lock, and with it the stream, and passes on what it hears. Where none can be seen there is no stream: tabs look once a
// minute then, and as soon as they are seen. Without locks, as over plain http, every tab that can be seen has its own stream.

const MINUTE = 60000;
let events = null, heard = 0, soon = null, air = null, turn = null, refusals = 0;

function hear({ kind, ids = "" }) {
  if (["alive", "beat", "change"].includes(kind)) trust();
  if (kind === "lost") doubt();
  if (kind === "in" && state?.dataset.away) look(); // Another tab has opened a page: the reader may have signed in there.
  if (kind === "left") { forget(KEPT); hasLeft = true; }
  if (kind === "look" || kind === "change") changed(ids);
  if (kind === "beat" && state?.dataset.away === AWAY) look();
}

function pass(kind, ids = "") {
  air?.postMessage({ kind, ids });
  hear({ kind, ids });
}

function hush() {
  events?.close();
  events = null;
}

function listen() {
  hush();
  const stream = events = new EventSource(root.dataset.events);
  const on = (name, kind) => stream.addEventListener(name, (event) => { heard = Date.now(); pass(kind, event.data); });
  heard = Date.now();
  on("open", "alive");
  on("beat", "beat");
  on("change", "change");
  stream.addEventListener("error", () => {
    if (stream.readyState !== EventSource.CLOSED) { pass("lost"); return; }
    const pause = Math.min(PATIENCE * 2 ** refusals, MINUTE); // Who is signed out does not ask every other moment all night.
    refusals += 1;
    setTimeout(() => { if (events === stream) { pass("look"); listen(); } }, pause);
  });
}

function compete(steal = false) {
  rest();
  turn = new AbortController();
  heard = Date.now();
  if (!navigator.locks) { listen(); return; }
  const { signal } = turn;
  const hold = () => new Promise((done) => {
    if (signal.aborted) { done(); return; }
    signal.addEventListener("abort", done);
    listen();
  });
  navigator.locks.request(`turnwise ${root.dataset.events}`, steal ? { steal } : { signal }, hold).catch((error) => {
    if (signal.aborted) return;
    if (error.name === "AbortError") compete(); // Another tab has taken it, because it did not hear of us.
    else listen();
  });
}

function rest() {
  turn?.abort();
  turn = null;
  hush();
}

function attend() {
  const isSilent = Date.now() - heard > SILENCE;
  if (events && isSilent) listen();
  if (events) air.postMessage({ kind: "here" });
  else if (turn && isSilent) compete(true); // Who has the lock is frozen.
}

function changed(ids) {
  if (!ids && document.hidden) return; // It is looked at within a minute, or when it is seen.
  if (root.dataset.live === "item") {
    if (!ids || ids.split(" ").includes(root.dataset.item)) look();
  } else soon ??= setTimeout(() => { soon = null; look(); }, 300);
}

function join() {
  air = new BroadcastChannel(`turnwise ${root.dataset.events}`);
  air.addEventListener("message", (event) => { heard = Date.now(); hear(event.data); });
  air.postMessage({ kind: "in" });
  if (!document.hidden) compete();
  setTimeout(() => { if (!events) look(); }, 300); // What happened since the page was drawn; a stream says that by itself.
}

function watch() {
  join();
  setInterval(attend, 5000);
  setInterval(() => { if (document.hidden) look(); }, MINUTE);
  addEventListener("pagehide", () => { rest(); air.close(); });
  addEventListener("pageshow", (event) => { if (event.persisted) { join(); look(); } });
  addEventListener("offline", lapse);
  addEventListener("online", () => { if (events) listen(); look(); });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) rest();
    else { compete(); look(); }
  });
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
  if (state.badInput) return control.type === "number" ? "must be a number" : "is not complete";
  if (state.valueMissing || (control.required && !control.value.trim())) return "is needed";
  if (control.dataset.notEmpty && !control.value.trim()) return control.dataset.notEmpty;
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

function checkAll(question) {
  const wrongs = [...question.querySelectorAll(".field")].map((field) => [field, check(field)]).filter(([, wrong]) => wrong);
  summarise(question, wrongs);
}

function summarise(question, wrongs) {
  const box = document.createElement("div");
  box.className = "summary";
  box.setAttribute("role", "alert");
  box.tabIndex = -1;
  const head = document.createElement("h3");
  head.textContent = wrongs.length === 1 ? "One thing is not right yet" : `${wrongs.length} things are not right yet`;
  const list = document.createElement("ul");
  for (const [field, wrong] of wrongs) {
    const link = document.createElement("a");
    link.href = `#${field.id || field.querySelector("input, select, textarea").id}`;
    link.textContent = `${nameOf(field)} ${wrong}.`;
    list.appendChild(document.createElement("li")).appendChild(link);
  }
  box.append(head, list);
  question.querySelector(".faults").replaceChildren(box);
  document.title = `Not right yet: ${document.querySelector("h1").textContent} – Turnwise inbox`;
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

// One form has all questions of the page; what is sent are the controls of one of them, or of another form.
function contentOf(form, place, button) {
  const names = new Set([...place.querySelectorAll("[name]")].map((one) => one.name)).add("csrf");
  const body = new URLSearchParams([...new FormData(form)].filter(([name]) => names.has(name)));
  if (button && button.name) body.append(button.name, button.value);
  return body;
}

async function post(form, body, signal) {
  const ask = () => fetch(form.getAttribute("action"), { method: "POST", body: body(), headers: { "X-Part": "live" }, redirect: "manual", signal });
  const reply = await ask();
  if (reply.status !== 403) return reply;
  await look(); // The reader may have signed in again meanwhile: then the session has another word.
  return ask();
}

function complain(place, heading, text, ...more) {
  const box = notice("summary", "h3", heading, text);
  box.lastChild.append(...more);
  const faults = place.querySelector(".faults") || place.insertBefore(document.createElement("div"), place.firstChild);
  faults.className = "faults";
  faults.replaceChildren(box);
  return box;
}

// What is only so while the inbox is away, or the reader is signed out, is taken away afterwards.
function complainMeanwhile(place, ...words) {
  const box = complain(place, ...words);
  box.dataset.meanwhile = "";
  box.focus();
  setTimeout(look, PATIENCE);
}

function settle() {
  for (const box of live.querySelectorAll("[data-meanwhile]")) {
    const place = box.closest("[data-answer], form");
    const hadFocus = box.contains(document.activeElement);
    box.remove();
    tell("What you typed is not sent yet. You can send it now.");
    if (hadFocus) (place.querySelector("button.primary") || place.querySelector("button:not([hidden])"))?.focus();
  }
}

// No refusal can be taken back, and a server may give the whole call up at one. So where something is typed that was not sent,
// in this question or in another, a refusal is asked for twice; otherwise it is one press.
function isMeant(button, place) {
  if (!/^(decline|cancel) /.test(button.value) || "sure" in button.dataset || !live.querySelector("[data-typed]")) return true;
  const word = button.textContent;
  const lost = "typed" in place.dataset ? "What you typed here is not sent then." : "The call may end with it, and what you typed into the other questions is not sent then.";
  const box = document.createElement("p");
  box.className = "why";
  box.setAttribute("role", "alert");
  box.textContent = `${word}? ${lost} Press again if you mean it.`;
  button.dataset.sure = "";
  button.textContent = `${word}: press again`;
  button.parentElement.prepend(box);
  button.addEventListener("blur", () => { delete button.dataset.sure; button.textContent = word; box.remove(); }, { once: true });
  return false;
}

// The inbox says all that is wrong with an answer at once. But of what cannot be read as a number or a date a browser sends
// nothing, and it would be taken for empty.
function send(event) {
  const form = event.target.closest("form[data-post]");
  if (!form) return;
  event.preventDefault();
  const button = event.submitter;
  const place = (button && button.closest("[data-answer]")) || form;
  if (place.getAttribute("aria-busy") === "true") return;
  const isUnread = (field) => [...field.querySelectorAll("input")].some((one) => one.validity.badInput);
  const unread = button && /^(accept|all) /.test(button.value) && [...place.querySelectorAll(".field")].find(isUnread);
  if (unread) { checkAll(unread.closest("[data-answer]")); return; }
  if (button && !isMeant(button, place)) return;
  deliver(form, place, button);
}

const LATE = 15000, LARGEST = 2 * 1024 * 1024; // The inbox takes no more at once.
const underWay = new WeakMap();

// A word beside the buttons, for all who see it or hear it.
function sending(button) {
  const word = document.createElement("span");
  word.className = "optional";
  word.setAttribute("role", "status");
  const beside = [...(button?.parentElement.children || [])].filter((one) => one.matches("button"));
  beside.at(-1)?.after(word);
  setTimeout(() => { word.textContent = "Sending…"; }, 50); // A place that comes with its words is not read out.
  return word;
}

function isLate(place, word) {
  word.remove();
  place.removeAttribute("aria-busy");
  complain(place, "There is no reply yet", "Nobody can say yet whether the inbox has it. You can wait, or send it again: it counts once.");
}

async function deliver(form, place, button) {
  const body = () => contentOf(form, place, button);
  if (String(body()).length > LARGEST) { tooLong(place); return; }
  place.querySelector(".faults")?.replaceChildren();
  underWay.get(place)?.abort(); // An earlier try, which nobody waits for any more.
  const attempt = new AbortController();
  underWay.set(place, attempt);
  place.setAttribute("aria-busy", "true");
  const isAgain = "sent" in place.dataset;
  place.dataset.sent = "";
  const word = sending(button);
  const timer = setTimeout(() => isLate(place, word), LATE);
  try {
    await taken(await post(form, body, attempt.signal), place, isAgain);
  } catch (error) {
    if (attempt.signal.aborted) return;
    if (!(error instanceof TypeError)) throw error;
    unreached(place);
  } finally {
    clearTimeout(timer);
    word.remove();
    if (underWay.get(place) === attempt) place.removeAttribute("aria-busy");
  }
}

async function taken(reply, place, isAgain) {
  const what = "answer" in place.dataset ? "Your answer" : "This";
  const held = holding(place);
  if (UNREACHED.includes(reply.status)) { unreached(place); return; }
  delete place.dataset.sent;
  place.setAttribute("aria-busy", "true"); // Again, where it was late: what comes by the stream meanwhile is no surprise.
  if ([200, 409, 422].includes(reply.status)) {
    const html = await reply.text();
    dropNotices(); // Here and not in the swap, which does nothing where the reply was overtaken.
    swap(html, place);
    if (reply.status === 409 && !document.contains(place) && held.question) keepUnused(held, isAgain);
    if (!document.contains(place) || reply.status !== 200) focusFirst();
  } else if (reply.status === 401) complainMeanwhile(place, "You are signed out", `${what} was not sent, and stays here. `, wayIn());
  else if (reply.status === 413) tooLong(place);
  else complain(place, "That did not work", `${what} was not sent (${reply.status}). Try again in a while.`).focus();
}

// What was sent and not used, because there is an answer: another one, or this one, whose reply did not come through before.
function keepUnused(held, isAgain) {
  const me = live.firstElementChild.dataset.me;
  const isMine = live.querySelector(`[data-answered="${CSS.escape(held.question)}"]`)?.dataset.by === me;
  const box = live.querySelector("[data-part='notice']:not(.good)");
  if (box && !(isAgain && isMine)) holdIn(box, held.words);
  else overtaken([{ ...held, isSent: isAgain }], me);
  prepare(live);
}

function tooLong(place) {
  complain(place, "Your answer is too long", "It was not sent, and stays here. Shorten it, and send it again.").focus();
}

function unreached(place) {
  if (!document.contains(place) && "part" in place.dataset) { // The page has heard of an answer, and nobody was told whose.
    overtaken([{ ...holding(place), isSent: true }], live.firstElementChild.dataset.me);
    prepare(live);
    focusFirst();
    return;
  }
  complainMeanwhile(place, "The inbox cannot be reached", "What you typed stays here. Send it again when the inbox is back: it counts once.");
}

// Small things

function prepare(place) {
  const skip = document.querySelector("[data-skip]");
  const asked = live.querySelector("[data-answer] .q-head");
  if (skip) skip.hidden = !asked;
  if (asked) skip.hash = asked.id;
  for (const box of place.querySelectorAll(":is([data-part='notice'], [data-part^='kept-']):not(.good, :has(button))")) {
    const button = box.appendChild(document.createElement("button"));
    Object.assign(button, { type: "button", textContent: "Dismiss" });
    button.dataset.dismiss = "";
  }
  for (const zone of place.querySelectorAll("select[data-zone]")) {
    delete zone.dataset.zone;
    const clock = zone.parentElement.querySelector("input[type='datetime-local']");
    const follows = zone.parentElement.querySelector("input[name$='.follows']");
    const choose = () => { zone.value = offset(clock.value); if (zone.selectedIndex < 0) zone.value = "+00:00"; };
    choose();
    follows.value = "yes"; // Until somebody chooses another; what comes back with a fault follows on.
    clock.addEventListener("change", choose);
    zone.addEventListener("change", () => { follows.value = ""; clock.removeEventListener("change", choose); });
  }
  for (const part of place.querySelectorAll("[data-answer]")) {
    if (!asAsked.has(part.dataset.part)) asAsked.set(part.dataset.part, valuesOf(part));
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

if (live) { remember(document); prepare(live); watch(); tick(); setInterval(tick, 15000); }
if (root?.dataset.item) { bringBack(); prepare(live); addEventListener("pagehide", keep); }
document.addEventListener("submit", send);
document.addEventListener("submit", signOut);
document.addEventListener("click", discard);
document.addEventListener("click", jump);
document.addEventListener("click", dismiss);
document.addEventListener("focusout", (event) => {
  const field = event.target.closest("[data-answer] .field");
  if (field && !field.contains(event.relatedTarget) && event.target.value) check(field);
});
document.addEventListener("input", (event) => {
  const question = event.target.closest("[data-answer]");
  if (question) { question.dataset.typed = ""; keeping ??= setTimeout(keep, 500); }
  const field = event.target.closest("[data-answer] .field.wrong");
  if (!field) return;
  check(field);
  if (!question.querySelector(".field.wrong")) question.querySelector(".faults").replaceChildren();
});
document.addEventListener("keydown", (event) => {
  const question = event.key === "Enter" && !event.isComposing && event.target.closest("[data-answer]");
  if (!question || !(event.ctrlKey || event.metaKey || event.target.matches("input"))) return;
  event.preventDefault(); // Enter would press the first button of the form, which is another question's.
  const button = question.querySelector("button[value^='accept ']");
  if (button) button.form.requestSubmit(button);
});
for (const form of document.querySelectorAll("form[data-filter]")) filter(form);
const first = document.querySelector(".summary[data-focus]");
if (first) first.focus();
