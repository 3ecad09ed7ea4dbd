// A line under the pointer and the values of all lines there. Without it, the page has all but these.
"use strict";
(() => {
  const svgName = "http://www.w3.org/2000/svg";
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);

  function nearest(points, x) {
    let best = null;
    for (const point of points) {
      if (best === null || Math.abs(point[0] - x) < Math.abs(best[0] - x)) best = point;
    }
    return best;
  }

  function fill(rows, heading) {
    const table = document.createElement("table");
    const top = document.createElement("div");
    top.textContent = heading;
    for (const [line, point] of rows) {
      const row = table.insertRow();
      const spot = document.createElement("span");
      spot.className = "spot";
      spot.style.background = line.color;
      row.insertCell().append(spot, line.name);
      row.insertCell().textContent = point[3];
    }
    tip.replaceChildren(top, table);
  }

  function place(event) {
    const room = 16;
    const left = event.clientX + room + tip.offsetWidth > window.innerWidth
      ? event.clientX - room - tip.offsetWidth : event.clientX + room;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.min(event.clientY + room, window.innerHeight - tip.offsetHeight - 4)}px`;
  }

  for (const plot of document.querySelectorAll("svg[data-lines]")) {
    const lines = JSON.parse(plot.dataset.lines).filter((line) => line.points.length);
    const [left, top, right, bottom] = JSON.parse(plot.dataset.frame);
    if (!lines.length) continue;
    for (const title of plot.querySelectorAll("title")) {
      if (title.parentNode === plot) plot.setAttribute("aria-label", title.textContent);
      title.remove();  // or the browser's own tip would lie over this one
    }
    const pointer = document.createElementNS(svgName, "line");
    pointer.setAttribute("class", "pointer");
    const hide = () => { pointer.remove(); tip.hidden = true; };
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("pointermove", (event) => {
      const scale = plot.viewBox.baseVal.width / plot.getBoundingClientRect().width;
      const x = (event.clientX - plot.getBoundingClientRect().left) * scale;
      if (x < left - 8 || x > right + 8) return hide();
      const found = lines.map((line) => [line, nearest(line.points, x)]);
      const anchor = nearest(found.map(([, point]) => point), x);
      for (const [name, value] of [["x1", anchor[0]], ["x2", anchor[0]], ["y1", top], ["y2", bottom]]) {
        pointer.setAttribute(name, value);
      }
      plot.append(pointer);
      const near = found.filter(([, point]) => Math.abs(point[0] - anchor[0]) <= 12);
      near.sort((a, b) => a[1][1] - b[1][1]);
      const label = [...plot.querySelectorAll("text.name.middle")].map((node) => node.textContent)[0];
      fill(near, `${anchor[2]}${label ? ` ${label}` : ""}`);
      tip.hidden = false;
      place(event);
    });
  }
})();
