// Under the pointer, a drawing tells who held how many blocks at that moment.
"use strict";
for (const chart of document.querySelectorAll(".chart")) {
  const books = JSON.parse(document.getElementById(chart.dataset.books).textContent);
  const readout = chart.querySelector(".readout");
  const hint = readout.textContent;
  const count = (n) => n.toLocaleString("en-US");
  for (const drawing of chart.querySelectorAll("svg")) {
    const cursor = drawing.querySelector(".cursor");
    const { left, right, last } = drawing.dataset;
    drawing.addEventListener("pointermove", (event) => {
      const box = drawing.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * drawing.viewBox.baseVal.width;
      const share = Math.min(1, Math.max(0, (x - left) / (right - left)));
      let index = 0;
      while (index + 1 < books.seconds.length && books.seconds[index + 1] <= share * last) index++;
      const at = Number(left) + share * (right - left);
      cursor.setAttribute("x1", at);
      cursor.setAttribute("x2", at);
      cursor.style.visibility = "visible";
      const held = books.requests.filter((r) => r.blocks[index] > 0)
        .map((r) => `${r.name}: ${count(r.blocks[index])}`);
      readout.textContent = `${books.seconds[index].toFixed(1)} s: ` +
        `${count(books.blocks_live[index])} blocks in use` +
        (held.length ? ` (${held.join(", ")})` : "");
    });
    drawing.addEventListener("pointerleave", () => {
      cursor.style.visibility = "hidden";
      readout.textContent = hint;
    });
  }
}
