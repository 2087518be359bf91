// Runs before the page is painted, so a chosen theme does not flash.  "" is the theme of the system.
(() => {
  let theme = "";
  try { theme = localStorage.getItem("zkconsumer-theme") || ""; } catch { /* storage may be forbidden */ }
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
})();
