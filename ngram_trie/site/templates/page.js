// Narrows the page down to a model, a data set or a group, and keeps the choice in the address; unfolds what a link leads to.
(() => {
  const form = document.querySelector("form.filter"), names = ["model", "dataset", "group"];
  form.hidden = false;
  const datasets = new Set([...form.elements.dataset.options].map((option) => option.value).filter(Boolean));
  const plain = (text) => text.trim().replace(/ \(synthetic\)$/, "").replace(/: .*$/, "");
  const narrow = () => {
    const wanted = Object.fromEntries(names.map((name) => [name, form.elements[name].value]));
    for (const run of document.querySelectorAll("details.run")) run.hidden = !!wanted.model && run.dataset.model !== wanted.model;
    for (const table of document.querySelectorAll("table.sortable")) {
      const heads = [...table.tHead.rows[0].cells], columns = heads.map((head) => plain(head.dataset.name || ""));
      const at = (name) => columns.indexOf(name);
      const known = columns.map((name) => datasets.has(name));
      const across = wanted.dataset && columns.includes(wanted.dataset);
      for (const row of table.rows) {
        [...row.cells].forEach((cell, i) => { cell.hidden = across && known[i] && columns[i] !== wanted.dataset; });
        if (row.parentNode !== table.tBodies[0]) continue;
        const other = (name) => {
          const place = at(name), text = place < 0 ? "" : plain(row.cells[place].textContent);
          return !!wanted[name] && place >= 0 && text !== wanted[name] && !(name === "group" && text === "baseline");
        };
        row.hidden = names.some(other);
      }
    }
    const chosen = names.filter((name) => wanted[name]);
    const runs = [...document.querySelectorAll("details.run")], shown = runs.filter((run) => !run.hidden).length;
    form.querySelector("output").textContent = chosen.length ? `${shown} of ${runs.length} runs` : "";
    return new URLSearchParams(chosen.map((name) => [name, wanted[name]])).toString();
  };
  const keep = () => { const query = narrow(); history.replaceState(null, "", (query ? `?${query}` : location.pathname) + location.hash); };
  const given = new URLSearchParams(location.search);
  for (const name of names) form.elements[name].value = given.get(name) || "";
  narrow();
  form.addEventListener("change", keep);
  form.addEventListener("reset", () => setTimeout(keep));
  form.addEventListener("submit", (event) => event.preventDefault());
  const arrive = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let part = target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", arrive);
  if (location.hash) arrive();
})();
