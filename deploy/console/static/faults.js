// Server-sent events update the partition strip and the nodes' states.
"use strict";
(() => {
  const strip = document.getElementById("strip");
  const summary = document.getElementById("summary");
  const none = (value) => (value === null ? "none" : value);

  const cell = (one) => {
    const made = document.createElement("span");
    made.className = `cell ${one.state}`;
    const name = document.createElement("b");
    name.textContent = one.name;
    made.append(name, ` leader ${none(one.leader)} · ${one.isr.join(",")} `);
    if (one.missing.length) {
      const gone = document.createElement("span");
      gone.className = "gone";
      gone.textContent = one.missing.join(",");
      made.append(gone);
    }
    return made;
  };

  const show = (told) => {
    strip.replaceChildren(...told.cells.map(cell));
    summary.textContent = told.problem ? `No answer from the cluster: ${told.problem}` :
      `${told.total} partition${told.total === 1 ? "" : "s"}: ${told.offline} without a leader, ${told.short} short of replicas in sync. ` +
      `Active controller: ${none(told.controller)}.` + (told.fenced.length ? ` Fenced: ${told.fenced.join(", ")}.` : "");
    for (const node of told.nodes) {
      const tag = document.querySelector(`[data-node="${node.node}"]`);
      if (!tag) continue;
      tag.textContent = node.state;
      tag.className = `tag ${["ready", "running"].includes(node.state) ? "active" : "warning"}`;
    }
  };

  const source = new EventSource(strip.dataset.stream);
  source.addEventListener("strip", (event) => show(JSON.parse(event.data)));
  addEventListener("pagehide", () => source.close(), { once: true });
})();
