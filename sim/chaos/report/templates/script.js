(() => {
  "use strict";
  const root = document.documentElement;
  const tip = document.getElementById("tip");

  // Light and dark: the system's choice until the button is pressed.
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => { button.querySelector("span").textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); });
  system.addEventListener("change", name);
  name();

  // What an item says: its title becomes its label, which is shown at once when it is pointed at or has the focus.
  for (const title of document.querySelectorAll("svg .item > title")) {
    title.parentNode.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  const showTip = (text, box) => {
    tip.textContent = text;
    tip.hidden = false;
    const own = tip.getBoundingClientRect();
    const left = Math.max(8, Math.min(box.left + box.width / 2 - own.width / 2, innerWidth - own.width - 8));
    const above = box.top - own.height - 10;
    const top = above > 4 ? above : Math.min(box.bottom + 10, innerHeight - own.height - 4);
    tip.style.transform = `translate(${left}px, ${Math.max(4, top)}px)`;
  };
  const hideTip = () => { tip.hidden = true; };
  const mark = (item, on) => {
    const number = item.dataset.fault;
    if (!number) return;
    for (const id of [`band-${number}`, `fault-${number}`]) {
      const found = document.getElementById(id);
      if (found) found.classList.toggle("on", on);
    }
  };
  const seen = (item, on) => {
    mark(item, on);
    if (on) showTip(item.getAttribute("aria-label"), item.getBoundingClientRect()); else hideTip();
  };
  const itemOf = (event) => event.target instanceof Element && event.target.closest("svg .item");
  for (const [type, on] of [["pointerover", true], ["pointerout", false], ["focusin", true], ["focusout", false]]) {
    document.addEventListener(type, (event) => { const item = itemOf(event); if (item) seen(item, on); });
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

  // A track is one stop of the Tab key; the arrow keys move between its items.
  for (const track of document.querySelectorAll("[data-track]")) {
    const items = [...track.querySelectorAll(".item")];
    if (!items.length) continue;
    items[0].setAttribute("tabindex", "0");
    track.addEventListener("keydown", (event) => {
      const at = items.indexOf(document.activeElement);
      const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
      if (at < 0 || to === undefined) return;
      event.preventDefault();
      const next = items[Math.max(0, Math.min(to, items.length - 1))];
      items[at].setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
      next.scrollIntoView({ block: "nearest", inline: "nearest" });
    });
  }

  // The marks of operations: found by their data, not by an element each.
  const points = document.getElementById("points");
  if (points) {
    const data = JSON.parse(document.getElementById("points-data").textContent);
    const scale = JSON.parse(points.dataset.scale);
    const ring = points.querySelector(".ring");
    const rows = data.rows;
    const about = points.getAttribute("aria-label");
    let at = -1;
    const x = (row) => scale.left + (row[0] - scale.from) / (scale.to - scale.from) * (scale.right - scale.left);
    const y = (row) => scale.height * (1 - Math.min(1, Math.log10(Math.max(row[1], scale.low) / scale.low) / Math.log10(scale.high / scale.low)));
    const span = (ms) => ms >= 1000 ? `${(ms / 1000).toPrecision(3)} s` : `${ms < 10 ? ms.toFixed(1) : ms.toFixed(0)} ms`;
    const say = (row) => {
      const place = data.place[row[5]] ? ` ${data.place[row[5]]}` : "";
      const error = row[6] ? `: ${data.error[row[6]]}` : "";
      return `${(row[0] / 1000).toFixed(3)} s: ${data.f[row[3]]}${place} of ${data.process[row[4]]} ${data.outcome[row[2]]} after ${span(row[1])}${error} (event ${row[7]})`;
    };
    const show = (number) => {
      at = number;
      ring.setAttribute("cx", x(rows[at]));
      ring.setAttribute("cy", y(rows[at]));
      const text = say(rows[at]);
      points.setAttribute("aria-label", text);
      showTip(text, ring.getBoundingClientRect());
    };
    const hide = () => { ring.setAttribute("cx", -20); points.setAttribute("aria-label", about); hideTip(); };
    const nearest = (event) => {
      const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(points.getScreenCTM().inverse());
      let best = -1, distance = 14 * 14;
      rows.forEach((row, number) => {
        const right = x(row) - place.x;
        if (Math.abs(right) > 14) return;
        const down = y(row) - place.y;
        const found = right * right + down * down - (row[2] ? 16 : 0);
        if (found < distance) { best = number; distance = found; }
      });
      return best;
    };
    const step = (from, by, matches) => {
      for (let number = from + by; number >= 0 && number < rows.length; number += by) if (matches(rows[number])) return number;
      return from;
    };
    points.addEventListener("pointermove", (event) => { const found = nearest(event); if (found >= 0) show(found); else hide(); });
    points.addEventListener("pointerleave", hide);
    points.addEventListener("focus", () => show(Math.max(at, 0)));
    points.addEventListener("blur", hide);
    points.addEventListener("keydown", (event) => {
      const to = {
        ArrowRight: () => step(at, 1, () => true), ArrowLeft: () => step(at, -1, () => true),
        ArrowDown: () => step(at, 1, (row) => row[2]), ArrowUp: () => step(at, -1, (row) => row[2]),
        Home: () => 0, End: () => rows.length - 1,
      }[event.key];
      if (!to) return;
      event.preventDefault();
      show(Math.max(0, to()));
    });
  }

  // A link into a closed section opens it; a printed page has all of them open.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const closed = target && (target.matches("details") ? target : target.closest("details"));
    if (closed && !closed.open) { closed.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  reveal();
  let opened = [];
  addEventListener("beforeprint", () => { opened = [...document.querySelectorAll("details:not([open])")]; opened.forEach((each) => { each.open = true; }); });
  addEventListener("afterprint", () => opened.forEach((each) => { each.open = false; }));

  for (const copy of document.querySelectorAll("button[data-copy]")) {
    copy.addEventListener("click", async () => {
      const source = document.getElementById(copy.dataset.copy);
      try { await navigator.clipboard.writeText(source.textContent); copy.textContent = "Copied"; }
      catch { getSelection().selectAllChildren(source); copy.textContent = "Selected"; }
    });
  }
})();
