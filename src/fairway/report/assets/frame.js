"use strict";
/* What every page does: colours, numbers with units, charts out of descriptions, tables that sort. */
window.fairway = (() => {
  const NOTHING = "–";

  // Elements. Text is always set as text, never as HTML: it comes from captures.
  function make(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  // Numbers. report/units.py says the same.
  const three = (value) => (value >= 99.95 ? value.toFixed(0) : value >= 9.995 ? value.toFixed(1) : value.toFixed(2));
  const trimmed = (value) => String(Number(value.toPrecision(3)));
  const separated = (value) => Math.round(value).toLocaleString("en-US");
  function scaled(value, steps, last) {
    for (const [size, unit] of steps) if (Math.abs(value) >= size) return [value / size, unit];
    return [value, last];
  }
  const BYTES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];
  const write = {
    number: (value) => (Math.abs(value) >= 1000 ? separated(value) : trimmed(value)),
    count: (value) => {
      const [size, unit] = scaled(value, [[1e10, "G"], [1e7, "M"]], "");
      if (unit) return `${(unit === "G" ? value / 1e9 : value / 1e6).toFixed(1)} ${unit}`;
      return Number.isInteger(size) || Math.abs(size) >= 100 ? separated(size) : trimmed(size);
    },
    bytes: (value) => { const [size, unit] = scaled(value, BYTES, "B"); return `${unit === "B" ? Math.round(size) : three(size)} ${unit}`; },
    bytes_per_s: (value) => `${write.bytes(value)}/s`,
    us: (value) => {
      const seconds = value / 1e6;
      if (seconds >= 3600) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
      if (seconds >= 120) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
      if (seconds >= 1) return `${three(seconds)} s`;
      return value >= 1000 ? `${three(value / 1000)} ms` : `${Math.round(value)} µs`;
    },
    seconds: (value) => (value >= 120 || (value > 0 && value < 0.1) ? write.us(value * 1e6) : `${value.toFixed(value < 10 ? 3 : 2)} s`),
    share: (value) => {
      const percent = 100 * value;
      if (percent > 0 && percent < 0.1) return "< 0.1 %";
      return percent >= 99.95 || percent === 0 ? `${percent.toFixed(0)} %` : `${percent.toFixed(1)} %`;
    },
    clock: (value) => `${new Date(value * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`,
  };
  const format = (value, unit) => (value === null || value === undefined ? NOTHING : write[unit](value));

  // Ticks are short: no needless zeros, and of a time only what changes.
  const tick = {
    ...write,
    bytes: (value) => { const [size, unit] = scaled(value, BYTES, "B"); return `${trimmed(size)} ${unit}`; },
    bytes_per_s: (value) => `${tick.bytes(value)}/s`,
    us: (value) => { const [size, unit] = scaled(value, [[1e6, "s"], [1e3, "ms"]], "µs"); return `${trimmed(size)} ${unit}`; },
    seconds: (value) => (value >= 7200 ? `${trimmed(value / 3600)} h` : value >= 120 ? `${trimmed(value / 60)} min` : value < 1 && value > 0 ? tick.us(value * 1e6) : `${trimmed(value)} s`),
    share: (value) => `${trimmed(100 * value)} %`,
    clock: (value) => new Date(value * 1000).toISOString().slice(11, 19),
  };

  // Colours.
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const redraw = new Set();
  const repaint = () => redraw.forEach((draw) => draw());
  function keepTheme() {
    const chooser = document.getElementById("theme");
    let kept = null;
    try { kept = localStorage.getItem("fairway-theme"); } catch { /* a page opened from a file may have no storage */ }
    const apply = (theme) => {
      if (theme === "auto") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = theme;
      repaint();
    };
    if (kept === "light" || kept === "dark") { chooser.value = kept; apply(kept); }
    chooser.addEventListener("change", () => {
      try { localStorage.setItem("fairway-theme", chooser.value); } catch { /* as above */ }
      apply(chooser.value);
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  }

  // Charts.
  const axisFont = "12px system-ui, sans-serif";
  function axis(description, extra = {}) {
    const unit = description.unit;
    const day = (value) => new Date(value * 1000).toISOString().slice(5, 16).replace("T", " ");
    const word = (splits) => (unit === "clock" && splits.at(-1) - splits[0] > 86400 ? day : tick[unit]);
    const words = (splits) => splits.map((value) => (value === null ? "" : word(splits)(value)));
    return {
      label: description.label, labelSize: 22, labelFont: axisFont, font: axisFont, stroke: style("--soft"),
      grid: { stroke: style("--grid"), width: 1 }, ticks: { stroke: style("--line"), width: 1, size: 4 },
      values: (_, splits) => words(splits), ...extra,
      ...(description.log ? { filter: logFilter, grid: { stroke: style("--grid"), width: 1, filter: logFilter }, ticks: { show: false } } : {}),
    };
  }
  const roomForTicks = (_, values) => Math.max(38, ...(values || []).map((value) => value.length * 7 + 18));

  // Few labels on a logarithmic axis: 1, 2 and 5 where there are few decades, only some decades where there are many.
  function logFilter(_, splits) {
    const exponent = (value) => Math.floor(Math.log10(value) + 1e-9);
    const decades = new Set(splits.map(exponent)).size;
    const apart = Math.ceil(decades / 5);
    return splits.map((value) => {
      const digit = Math.round(value / 10 ** exponent(value));
      return (digit === 1 && exponent(value) % apart === 0) || (decades < 3 && (digit === 2 || digit === 5)) ? value : null;
    });
  }

  function place(tip, chart, left, top) {
    const box = chart.over;
    const right = left + 16 + tip.offsetWidth > box.clientWidth;
    tip.style.left = `${box.offsetLeft + Math.max(0, right ? left - tip.offsetWidth - 14 : left + 14)}px`;
    tip.style.top = `${box.offsetTop + Math.max(0, Math.min(top - 10, box.clientHeight - tip.offsetHeight))}px`;
  }

  /* A tip follows the cursor; `rows(chart)` gives what it says: [colour, name, value] or null for nothing. */
  function tips(rows) {
    let tip;
    return { hooks: {
      init: (chart) => { tip = make("div", { class: "tip", hidden: true, role: "status" }); chart.root.querySelector(".u-wrap").append(tip); },
      setCursor: (chart) => {
        const { left, top } = chart.cursor;
        const said = left >= 0 ? rows(chart) : null;
        tip.hidden = !said;
        if (!said) return;
        tip.replaceChildren(...said.map(([colour, name, value]) => {
          const mark = make("i");
          if (colour) mark.style.background = colour;
          return make("div", {}, ...(colour ? [mark] : []), name ? `${name} ` : "", make("b", {}, value));
        }));
        place(tip, chart, left, top);
      },
    } };
  }

  function nearest(chart, series, index) {
    const values = chart.data[series];
    for (let far = 0; far < 40; far++) {
      if (values[index - far] != null) return index - far;
      if (values[index + far] != null) return index + far;
    }
    return index;
  }

  function whiskers(lines, colours) {
    return { hooks: { draw: (chart) => {
      const pen = chart.ctx;
      pen.save();
      pen.lineWidth = 1.5 * devicePixelRatio;
      lines.forEach((line, number) => {
        if (!line.low || !line.high || !chart.series[number + 1].show) return;
        pen.strokeStyle = colours[number];
        line.x.forEach((x, at) => {
          if (line.low[at] == null || line.high[at] == null) return;
          const left = chart.valToPos(x, "x", true), cap = 3 * devicePixelRatio;
          const low = chart.valToPos(line.low[at], "y", true), high = chart.valToPos(line.high[at], "y", true);
          pen.beginPath();
          pen.moveTo(left, low); pen.lineTo(left, high);
          pen.moveTo(left - cap, low); pen.lineTo(left + cap, low); pen.moveTo(left - cap, high); pen.lineTo(left + cap, high);
          pen.stroke();
        });
      });
      pen.restore();
    } } };
  }

  function series(line, colour) {
    const made = { label: line.name, stroke: colour, width: 1.8, points: { show: line.x.length < 40, size: 6, fill: colour } };
    if (line.drawing === "dashes") Object.assign(made, { dash: [6, 4], points: { show: false } });
    if (line.drawing === "dashed steps") Object.assign(made, { paths: uPlot.paths.stepped({ align: 1 }), dash: [6, 4], width: 1.2, points: { show: false } });
    if (line.drawing === "points") Object.assign(made, { paths: () => null, points: { show: true, size: 7, fill: colour } });
    if (line.drawing === "area") Object.assign(made, { fill: `color-mix(in srgb, ${colour} 14%, transparent)`, points: { show: false } });
    if (line.drawing === "steps") Object.assign(made, { paths: uPlot.paths.stepped({ align: 1 }), points: { show: line.x.length < 2, size: 6, fill: colour } });
    return made;
  }

  const LOG = { distr: 3 };
  function fromZero(low, high) {
    if (low === null) return [0, 1];
    return [Math.min(0, low), high > 0 ? high * 1.06 : 1];
  }

  function options(description, width) {
    const colours = description.lines.map((line) => style(`--c${line.colour}`) || style("--c0"));
    const unit = description.y.unit;
    return {
      width, height: description.height,
      scales: { x: { time: false, ...(description.x.log ? LOG : {}) }, y: description.y.log ? LOG : { range: (_, low, high) => fromZero(low, high) } },
      axes: [
        axis(description.x, { size: 34, space: 70 }),
        axis(description.y, { size: roomForTicks, space: 36 }),
      ],
      series: [{}, ...description.lines.map((line, number) => series(line, colours[number]))],
      legend: { live: false, show: description.lines.length > 1 },
      cursor: { dataIdx: (chart, at, index) => (at === 0 ? index : nearest(chart, at, index)), y: false, sync: description.sync ? { key: description.sync } : undefined },
      plugins: [
        whiskers(description.lines, colours),
        tips((chart) => {
          const index = chart.cursor.idx;
          if (index == null) return null;
          const said = [[null, "", format(chart.data[0][index], description.x.unit)]];
          description.lines.forEach((line, number) => {
            const value = chart.data[number + 1][chart.cursor.idxs[number + 1]];
            if (chart.series[number + 1].show && value != null) said.push([colours[number], line.name, format(value, unit)]);
          });
          return said;
        }),
      ],
    };
  }

  /* Draws into an element as soon as it has a width, again whenever its width or the colours change. */
  function draw(element, build) {
    let chart = null, width = 0;
    const again = () => {
      chart?.destroy();
      chart = width ? build(width) : null;
      element.fairwayChart = chart;
      if (chart) legendKeys(chart);
    };
    // In the next frame: a chart that changes the layout while it is being observed makes the browser complain.
    const watch = new ResizeObserver(() => requestAnimationFrame(() => {
      const now = Math.floor(element.clientWidth);
      if (!now || now === width) return;
      width = now;
      if (chart) chart.setSize({ width, height: chart.height });
      else again();
    }));
    watch.observe(element);
    redraw.add(again);
    return () => { watch.disconnect(); redraw.delete(again); chart?.destroy(); };
  }

  function legendKeys(chart) {
    chart.root.querySelectorAll(".u-legend .u-series").forEach((row) => {
      if (row.hidden) return;
      row.tabIndex = 0;
      row.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); row.querySelector("th").click(); }
      });
    });
  }

  function arrowKeys(element) {
    element.addEventListener("keydown", (event) => {
      const chart = element.fairwayChart;
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!chart || event.target !== element) return;
      if (event.key === "Escape") chart.setCursor({ left: -10, top: -10 });
      if (!step) return;
      event.preventDefault();
      const last = chart.data[0].length - 1;
      const at = Math.max(0, Math.min(last, (chart.cursor.idx ?? (step > 0 ? -1 : last + 1)) + step));
      chart.setCursor({ left: chart.valToPos(chart.data[0][at], "x"), top: chart.over.clientHeight / 3 });
    });
  }

  function chart(element, description) {
    const data = uPlot.join(description.lines.map((line) => [line.x, line.y]));
    element.tabIndex = 0;
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", `${description.title}: ${description.y.label} over ${description.x.label}. ${description.says} Arrow keys read the values.`);
    arrowKeys(element);
    return draw(element, (width) => new uPlot(options(description, width), data, element));
  }

  // Tables.
  function sortable(table) {
    table.querySelectorAll("thead th").forEach((head, column) => {
      head.querySelector("button")?.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const order = (row) => row.cells[column].dataset.order ?? row.cells[column].textContent;
        const rows = [...table.tBodies[0].rows].sort((one, other) => compare(order(one), order(other)) * (down ? -1 : 1));
        table.tBodies[0].append(...rows);
      });
    });
  }
  function compare(one, other) {
    if (one === "" || other === "") return (one === "") - (other === "") ? (one === "" ? -1 : 1) : 0;
    const numbers = [Number(one), Number(other)];
    return numbers.some(Number.isNaN) ? String(one).localeCompare(String(other)) : numbers[0] - numbers[1];
  }

  function choosePoint() {
    const chooser = document.getElementById("point");
    const show = () => document.querySelectorAll("[data-point]").forEach((part) => { part.hidden = part.dataset.point !== chooser.value; });
    if (!chooser) return;
    chooser.addEventListener("change", show);
    show();
  }

  keepTheme();
  choosePoint();
  document.querySelectorAll("[data-chart]").forEach((element) => chart(element, JSON.parse(element.dataset.chart)));
  document.querySelectorAll("table.sortable").forEach(sortable);
  return { make, format, style, axis, roomForTicks, tips, draw, chart, fromZero, data: JSON.parse(document.getElementById("data").textContent) };
})();
