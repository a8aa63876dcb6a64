"use strict";
// Before the first paint, set the colour scheme that the user chose here, else the system's.
try {
  const chosen = localStorage.getItem("kraft-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch (_) { /* storage may be forbidden: use the system's scheme */ }
