// Live updates: server-sent events become rows at the top; at most ROWS_MAX rows are kept.
"use strict";
(() => {
  const ROWS_MAX = 500;
  const button = document.getElementById("follow");
  const body = document.getElementById("records");
  const state = document.getElementById("live-state");
  let source = null;
  let leftOut = 0;
  let seen = 0;

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  const shown = (one) => {
    const cell = element("td");
    if (one.form === "null") {
      cell.append(element("span", "null", "null"));
      return cell;
    }
    cell.append(element("span", one.form, "form"), element("pre", one.text));
    if (one.cut) cell.append(element("span", `${one.cut} more bytes`, "small"));
    if (one.problem) cell.append(element("span", one.problem, "warning"));
    return cell;
  };

  const row = (record) => {
    const line = element("tr", undefined, "new");
    const link = element("a", record.offset);
    link.href = `/messages/${body.dataset.topic}/${record.partition}/${record.offset}`;
    const offset = element("td", undefined, "n");
    offset.append(link);
    const headers = element("td");
    for (const header of record.headers) {
      const one = element("div", undefined, "header");
      one.append(element("b", header.name), ` ${header.form === "null" ? "null" : header.text}`);
      headers.append(one);
    }
    line.append(element("td", record.partition, "n"), offset, element("td", record.time, "time"),
      shown(record.key), shown(record.value), headers);
    return line;
  };

  const stop = (text) => {
    if (source) source.close();
    source = null;
    button.setAttribute("aria-pressed", "false");
    button.textContent = "Follow live";
    state.textContent = text;
  };

  const start = () => {
    const asked = new URLSearchParams(new FormData(document.getElementById("ask")));
    asked.set("where", "end");
    for (const name of ["offset", "time"]) asked.delete(name);
    body.replaceChildren();
    leftOut = seen = 0;
    source = new EventSource(`${button.dataset.follow}?${asked}`);
    button.setAttribute("aria-pressed", "true");
    button.textContent = "Stop";
    state.textContent = "Following: waiting for records.";
    source.addEventListener("records", (event) => {
      const told = JSON.parse(event.data);
      body.prepend(...told.rows.map(row).reverse());
      while (body.children.length > ROWS_MAX) body.lastChild.remove();
      leftOut += told.left_out;
      seen += told.rows.length;
      state.textContent = `Following: ${seen} record${seen === 1 ? "" : "s"}` + (leftOut ? `, ${leftOut} more came too fast to be shown.` : ".");
    });
    source.addEventListener("problem", (event) => stop(JSON.parse(event.data)));
    source.onerror = () => { if (source) state.textContent = "The console does not respond; trying again."; };
  };

  button.disabled = false;
  button.addEventListener("click", () => (source ? stop("Stopped.") : start()));
})();
