"use strict";
// Before the first paint: the scheme that was chosen here, else the system's.
try {
  const chosen = localStorage.getItem("kraft-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch (_) { /* storage may be forbidden: the system's scheme holds */ }
