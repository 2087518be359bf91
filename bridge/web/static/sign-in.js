// The token may be after # in the address, where no server sees it.  It is taken out of the address bar at once.
const form = document.querySelector("form");

function takeToken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (location.hash || location.search) history.replaceState(null, "", location.pathname);
  if (!found) return;
  document.getElementById("token").value = found;
  form.submit();
}

if (new URLSearchParams(location.search).has("wrong")) document.getElementById("wrong").hidden = false;
addEventListener("hashchange", takeToken);
takeToken();
