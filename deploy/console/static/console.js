"use strict";
// Live updates, the switch between light and dark, and keyboard shortcuts. Everything else works without this file.
(() => {
  const PAUSE_MS = 250;
  const root = document.documentElement;
  const typing = (it) => it && (it.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(it.tagName));

  // --- light and dark
  document.getElementById("theme").addEventListener("click", () => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    try { localStorage.setItem("kraft-theme", root.dataset.theme); } catch (_) { /* storage may be forbidden: not remembered */ }
  });

  // --- keys: / goes to the search field, Escape leaves a field, n and p go to the next and previous page
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && typing(document.activeElement)) { document.activeElement.blur(); return; }
    if (typing(event.target)) return;
    if (event.key === "/") {
      const field = document.querySelector("main input[type=search]") || document.getElementById("find");
      event.preventDefault();
      field.focus();
      field.select();
    }
    const link = { n: "a[rel=next]", p: "a[rel=prev]" }[event.key];
    const found = link && document.querySelector(link);
    if (found) found.click();
  });

  // --- show why a change failed in its form, which keeps the user's input
  const send = async (form, submitter) => {
    const button = submitter || form.querySelector("button");
    let why = form.querySelector(".problem");
    if (why) why.remove();
    if (button) button.disabled = true;
    try {
      const body = new URLSearchParams(new FormData(form));
      if (submitter && submitter.name) body.set(submitter.name, submitter.value);
      const answer = await fetch(form.getAttribute("action"), { method: "POST", body });
      if (answer.redirected) { location.assign(answer.url); return; }
      const text = await answer.text();
      const told = new DOMParser().parseFromString(text, "text/html").querySelector("main .problem");
      why = told ? told.textContent : text;
    } catch (problem) { why = `The console does not respond: ${problem.message}`; }
    const shown = document.createElement("p");
    shown.className = "problem";
    shown.setAttribute("role", "alert");
    shown.textContent = why;
    form.append(shown);
    if (button) button.disabled = false;
  };

  // --- forms that need a confirmation, and forms that are sent when a choice changes
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !confirm(question)) event.preventDefault();
    else if (event.target.method === "post") { event.preventDefault(); send(event.target, event.submitter); }
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("select[data-submit]")) event.target.form.requestSubmit();
  });

  // --- live updates: replace elements with data-live and an id by those of the same page, fetched again
  let version = root.dataset.version;
  let fetching = false, again = false, problem = null;

  const replace = (old, fresh) => {
    const focused = document.activeElement;
    if (old.contains(focused) && typing(focused)) return;
    const within = old.contains(focused) && focused !== old ? focused.getAttribute("href") : null;
    const kept = [...old.querySelectorAll("details[open][id]")].map((it) => it.id);
    old.replaceWith(fresh);
    kept.forEach((id) => { const it = document.getElementById(id); if (it) it.open = true; });
    if (within) {
      const link = [...fresh.querySelectorAll("a")].find((it) => it.getAttribute("href") === within);
      if (link) link.focus({ preventScroll: true });
    }
  };

  const update = async () => {
    if (fetching) { again = true; return; }
    fetching = true;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of document.querySelectorAll("[data-live][id]")) {
        const fresh = page.getElementById(old.id);
        if (fresh && fresh.outerHTML !== old.outerHTML) replace(old, document.importNode(fresh, true));
      }
    } catch (_) { /* the event stream shows that the console does not respond */ }
    fetching = false;
    if (again) { again = false; setTimeout(update, PAUSE_MS); }
  };

  const lost = document.getElementById("lost");
  const listen = () => {
    const events = new EventSource("/events");
    events.onopen = () => { lost.hidden = true; };
    events.onerror = () => {
      lost.hidden = false;
      if (events.readyState === EventSource.CLOSED) { events.close(); setTimeout(listen, 2000); }
    };
    events.onmessage = (event) => {
      const state = JSON.parse(event.data);
      if (String(state.version) === version && state.problem === problem) return;
      version = String(state.version);
      problem = state.problem;
      if (!document.hidden) update();
    };
    addEventListener("pagehide", () => events.close(), { once: true });
  };
  if (document.querySelector("[data-live]")) listen();
  document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
  addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
})();
