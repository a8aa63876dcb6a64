// The slider shows the offset while it moves, and opens that offset when it is released.
"use strict";
(() => {
  const slide = document.getElementById("slide");
  const value = document.getElementById("slide-value");
  let timer = 0;
  slide.addEventListener("input", () => {
    value.textContent = slide.value;
    clearTimeout(timer);
    timer = setTimeout(() => slide.form.requestSubmit(), 500);
  });
  if (sessionStorage.getItem("slide") === "1") slide.focus({ preventScroll: true });
  slide.form.addEventListener("submit", () => sessionStorage.setItem("slide", "1"));
  slide.addEventListener("blur", () => sessionStorage.removeItem("slide"));
})();
