// Sorts a table by the column whose header button is pressed: down, up, then back to the given order.
(() => {
  const numeric = (cell) => cell.dataset.key !== undefined;
  const keyOf = (cell) => (numeric(cell) ? +cell.dataset.key : cell.textContent.trim().toLowerCase());
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0], given = [...body.rows], heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const cells = given.map((row) => row.cells[column]);
      const first = cells.some(numeric) ? "descending" : "ascending", second = first === "descending" ? "ascending" : "descending";
      const before = head.getAttribute("aria-sort");
      const order = before === first ? second : before === second ? "none" : first;
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", order);
      const sign = order === "descending" ? -1 : 1;
      const sorted = order === "none" ? given : [...given].sort((a, b) => {
        const [left, right] = [a.cells[column], b.cells[column]];
        if (numeric(left) !== numeric(right)) return numeric(left) ? -1 : 1; // what has no number stays below
        const [x, y] = [keyOf(left), keyOf(right)];
        return sign * (x < y ? -1 : x > y ? 1 : 0);
      });
      body.append(...sorted);
    }));
  }
  const unfold = () => { for (const folded of document.querySelectorAll("details:not([open])")) { folded.open = true; folded.dataset.unfolded = ""; } };
  const fold = () => { for (const unfolded of document.querySelectorAll("details[data-unfolded]")) { unfolded.open = false; delete unfolded.dataset.unfolded; } };
  addEventListener("beforeprint", unfold);
  addEventListener("afterprint", fold);
})();
