"use strict";
/* The list of sessions and the view of one. The numbers come from report/capture.py. */
(() => {
  const { make, format, style, axis, roomForTicks, tips, draw, chart, fromZero, data } = window.fairway;
  const PAGE_ROWS = 50, RUNGS_AT_FIRST = 24;
  const FIRST = 0, COPY = 1, DUPLICATE = 2, ANSWER = 3, LOST = 4;

  const named = (row) => Object.fromEntries(data.columns.map((name, at) => [name, row[at]]));
  const sessions = data.sessions.map(named);
  const keyOf = (row) => JSON.stringify([row.session, row.point]);
  const detailOf = new Map(data.chosen.map((row, at) => [keyOf(row), at]));
  const address = (host, port) => (String(host).includes(":") ? `[${host}]:${port}` : `${host}:${port}`);
  const larger = (one, other) => (one === null ? other : other === null ? one : Math.max(one, other));
  const many = new Set(sessions.map((row) => row.point)).size > 1;
  const wireshark = (file, frame) => `wireshark -r '${String(file).replaceAll("'", "'\\''")}' -g ${frame}`;
  const protocolMark = (name) => make("span", { class: `protocol p-${name}` }, name);

  // The list.
  sessions.forEach((row) => {
    row.caller_text = address(row.caller, row.caller_port);
    row.callee_text = address(row.callee, row.callee_port);
    row.names = `${row.caller_text} → ${row.callee_text}`;
    row.packets = row.packets_out + row.packets_in;
    row.bytes = row.bytes_out + row.bytes_in;
    row.loss = larger(row.loss_out, row.loss_in);
    row.detail = detailOf.get(keyOf(row));
    row.hay = [row.names, row.session, row.protocol, row.point, row.ending].join(" ").toLowerCase();
  });
  const most = Math.max(1, ...sessions.map((row) => row.severity_score));
  const COLUMNS = [
    ["Session", "names", (row) => nameCell(row)],
    ["Protocol", "protocol", (row) => cell(protocolMark(row.protocol))],
    ...(many ? [["Point", "point", (row) => cell(row.point)]] : []),
    ["Severity", "severity_score", (row) => { const made = cell(row.severity_score.toFixed(0), "number bar"); made.style.setProperty("--bar", row.severity_score / most); return made; }],
    ["Breaches", "violations", (row) => cell(format(row.violations, "count"), `number ${row.violations ? "bad" : "dim"}`)],
    ["Loss (est.)", "loss", (row) => cell(format(row.loss, "share"), `number ${row.loss >= 0.02 ? "bad" : ""}`)],
    ["Retransmissions", "retransmission_ratio", (row) => cell(format(row.retransmission_ratio, "share"), `number ${row.retransmission_ratio >= 0.05 ? "bad" : ""}`)],
    ["RTT p50", "rtt_p50_us", (row) => cell(format(row.rtt_p50_us, "us"), "number")],
    ["RTT p99", "rtt_p99_us", (row) => cell(format(row.rtt_p99_us, "us"), "number")],
    ["Datagrams", "packets", (row) => cell(format(row.packets, "count"), "number")],
    ["Payload", "bytes", (row) => cell(format(row.bytes, "bytes"), "number")],
    ["Began", "first", (row) => cell(format(row.first / 1e6, "clock").slice(11, 19), "number")],
    ["Lasted", "duration_us", (row) => cell(format(row.duration_us, "us"), "number")],
    ["End", "ending", (row) => cell(row.ending, ["refused", "unanswered"].includes(row.ending) ? "bad" : "")],
  ];
  const state = { page: 0, sort: "severity_score", down: true, hidden: new Set() };
  const table = document.getElementById("sessions");

  function cell(content, kind = "") { return make("td", { class: kind }, content); }
  function nameCell(row) {
    if (row.detail === undefined) return cell(row.names);
    return cell(make("a", { href: `#session-${row.detail}` }, `▸ ${row.names}`));
  }
  function order(row) { const value = row[state.sort]; return value === null || value === undefined ? -Infinity : value; }

  function matching() {
    const words = document.getElementById("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const point = document.getElementById("point")?.value;
    const found = sessions.filter((row) => !state.hidden.has(row.protocol) && (point === undefined || row.point === point) && words.every((word) => row.hay.includes(word)));
    const sign = state.down ? -1 : 1;
    return found.sort((one, other) => {
      const [a, b] = [order(one), order(other)];
      return sign * (typeof a === "string" && typeof b === "string" ? a.localeCompare(b) : a < b ? -1 : a > b ? 1 : 0);
    });
  }

  function heads() {
    return make("tr", {}, ...COLUMNS.map(([title, name]) => make(
      "th",
      { scope: "col", class: ["Session", "Protocol", "Point", "End"].includes(title) ? "word" : "number", "aria-sort": state.sort === name ? (state.down ? "descending" : "ascending") : null },
      make("button", { type: "button", onclick: () => sortBy(name) }, title),
    )));
  }
  function sortBy(name) {
    Object.assign(state, { down: state.sort === name ? !state.down : true, sort: name, page: 0 });
    showList();
    table.querySelector("th[aria-sort] button")?.focus();
  }

  function showList() {
    const found = matching();
    const pages = Math.max(1, Math.ceil(found.length / PAGE_ROWS));
    state.page = Math.min(state.page, pages - 1);
    const rows = found.slice(state.page * PAGE_ROWS, (state.page + 1) * PAGE_ROWS).map((row) => make(
      "tr",
      row.detail === undefined ? {} : { class: "opens", onclick: (event) => { if (!event.target.closest("a")) location.hash = `session-${row.detail}`; } },
      ...COLUMNS.map(([, , show]) => show(row)),
    ));
    const empty = make("tr", {}, make("td", { colspan: COLUMNS.length, class: "dim" }, "No session matches."));
    table.replaceChildren(make("thead", {}, heads()), make("tbody", {}, ...(rows.length ? rows : [empty])));
    document.getElementById("matches").textContent = `${format(found.length, "count")} of ${format(sessions.length, "count")} listed`;
    const turn = (by, words) => make("button", { type: "button", disabled: state.page + by < 0 || state.page + by >= pages, onclick: () => { state.page += by; showList(); } }, words);
    document.getElementById("pages").replaceChildren(...(pages > 1 ? [turn(-1, "Previous"), `page ${state.page + 1} of ${pages}`, turn(1, "Next")] : []));
  }

  function startList() {
    const chips = [...new Set(sessions.map((row) => row.protocol))].sort();
    document.getElementById("protocols").append(...chips.map((name) => make("button", {
      type: "button", class: "chip", "aria-pressed": "true",
      onclick: (event) => {
        const chip = event.currentTarget, shown = chip.getAttribute("aria-pressed") === "true";
        chip.setAttribute("aria-pressed", String(!shown));
        if (shown) state.hidden.add(name); else state.hidden.delete(name);
        state.page = 0;
        showList();
      },
    }, protocolMark(name))));
    document.getElementById("search").addEventListener("input", () => { state.page = 0; showList(); });
    document.getElementById("point")?.addEventListener("change", () => { state.page = 0; showList(); });
    showList();
  }

  // One session.
  const article = document.getElementById("one");
  let undo = [];
  let scrolled = 0;

  function route() {
    const match = /^#session-(\d+)/.exec(location.hash);
    const at = match ? Number(match[1]) : -1;
    const open = at >= 0 && at < data.chosen.length;
    if (open && article.hidden) scrolled = scrollY;
    undo.forEach((stop) => stop());
    undo = [];
    const wasOpen = !article.hidden;
    article.hidden = !open;
    for (const name of ["overview", "list", "unread"]) {
      const part = document.getElementById(name);
      if (part) part.hidden = open;
    }
    if (!open) { article.replaceChildren(); if (wasOpen) scrollTo(0, scrolled); return; }
    article.replaceChildren(...view(at));
    article.focus({ preventScroll: true });
    scrollTo(0, 0);
  }

  function view(at) {
    const row = data.chosen[at], detail = data.details[at];
    const step = (to, words) => make("button", { type: "button", disabled: to < 0 || to >= data.chosen.length, onclick: () => { location.hash = `session-${to}`; } }, words);
    const frames = new Set(detail.violations.map((broken) => `${broken[2]}\n${broken[3]}`));
    return [
      make("div", { class: "bar-top" }, make("a", { href: "#list" }, "← All sessions"), make("span", { class: "gap" }), step(at - 1, "Worse"), step(at + 1, "Better")),
      make("h2", {}, address(row.caller, row.caller_port), make("span", { class: "arrow" }, "→"), address(row.callee, row.callee_port)),
      make("p", { class: "under" }, protocolMark(row.protocol), ` · session ${row.session}${row.protocol_session ? ` · id ${row.protocol_session}` : ""}${row.point ? ` · seen at ${row.point}` : ""}${row.from_start ? "" : " · its beginning is not in the capture"}`),
      facts(row, detail),
      ...(detail.violations.length ? [violations(row, detail)] : []),
      ...(Object.keys(detail.streams).length ? [sequence(row, detail)] : []),
      ...overTime(detail, at),
      ...(detail.ladder.length ? [ladder(row, detail, frames)] : []),
      ...(detail.messages.worst.length ? [slowest(detail)] : []),
    ];
  }

  function facts(row, detail) {
    const both = (one, other, unit) => `${format(one, unit)} → · ← ${format(other, unit)}`;
    const outcomes = Object.entries(detail.messages.outcomes).map(([name, number]) => `${format(number, "count")} ${name}`).join(", ");
    const loss = larger(row.loss_out, row.loss_in);
    const shown = [
      ["Began", format(row.first / 1e6, "clock").slice(11), `on ${format(row.first / 1e6, "clock").slice(0, 10)}, lasted ${format(row.duration_us, "us")}`],
      ["Handshake", format(row.handshake_us, "us"), `ended: ${row.ending}`, ["refused", "unanswered"].includes(row.ending)],
      ["Datagrams", both(row.packets_out, row.packets_in, "count"), both(row.bytes_out, row.bytes_in, "bytes")],
      ["Messages", both(row.transfers_out, row.transfers_in, "count"), outcomes],
      ["Retransmissions", both(row.retransmissions_out, row.retransmissions_in, "count"), `${format(row.retransmission_ratio, "share")} of what may be repeated; ${format(row.duplicates, "count")} needless`, row.retransmission_ratio >= 0.05],
      ["Loss, estimated", both(row.loss_out, row.loss_in, "share"), "", loss >= 0.02],
      ["Round trip, median", format(row.rtt_p50_us, "us"), `p90 ${format(row.rtt_p90_us, "us")}, p99 ${format(row.rtt_p99_us, "us")}, least ${format(row.rtt_min_us, "us")}; ${format(row.rtt_samples, "count")} samples`],
      ["Broken rules", format(row.violations, "count"), `severity ${row.severity_score.toFixed(0)}`, row.violations > 0],
    ];
    return make("dl", { class: "facts" }, ...shown.map(([name, value, more, bad]) => make("div", {}, make("dt", {}, name), make("dd", { class: bad ? "bad" : null }, value, ...(more ? [make("small", {}, more)] : [])))));
  }

  function violations(row, detail) {
    const rungs = new Set(detail.ladder.map((rung) => `${rung[3]}\n${rung[4]}`));
    const rows = detail.violations.map(([rule, severity, file, frame, at, found, expected]) => {
      const words = `frame ${frame} of ${file}`;
      const inLadder = rungs.has(`${file}\n${frame}`);
      const where = inLadder ? make("a", { href: "#", onclick: (event) => { event.preventDefault(); toRung(file, frame); } }, words) : words;
      return make("tr", {},
        cell(make("span", { class: `severity ${severity}` }, severity)), cell(make("strong", {}, rule)), cell(format((at - row.first) / 1e6, "seconds"), "number"),
        cell(found, "wrap"), cell(expected, "wrap"), cell(where), cell(make("code", {}, wireshark(file, frame))));
    });
    const heads = ["", "Rule", "At", "Found", "Expected", "Frame", "Open in Wireshark"].map((title) => make("th", { scope: "col", class: title === "At" ? "number" : null }, title));
    const rest = row.violations - detail.violations.length;
    return make("section", {}, make("h2", {}, "Broken rules"), make("div", { class: "scroll" }, make("table", { id: "broken" }, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows))), ...(rest > 0 ? [make("p", { class: "note more" }, `and ${format(rest, "count")} more in the table violations`)] : []));
  }

  // The time-sequence plot.
  const MARKS = [
    ["■ first transmission", "--c1", (pen, x, y, r) => { pen.rect(x - r * 0.7, y - r * 0.7, r * 1.4, r * 1.4); return "fill"; }],
    ["▲ retransmission", "--c2", (pen, x, y, r) => { pen.moveTo(x, y - r * 1.5); pen.lineTo(x + r * 1.4, y + r); pen.lineTo(x - r * 1.4, y + r); pen.closePath(); return "fill"; }],
    ["◇ duplicate", "--c4", (pen, x, y, r) => { pen.moveTo(x, y - r * 1.6); pen.lineTo(x + r * 1.6, y); pen.lineTo(x, y + r * 1.6); pen.lineTo(x - r * 1.6, y); pen.closePath(); return "stroke"; }],
    ["━ answer of the other side", "--c3", (pen, x, y, r) => { pen.moveTo(x - r * 1.3, y); pen.lineTo(x + r * 1.3, y); return "stroke"; }],
    ["✕ presumed lost", "--c8", (pen, x, y, r) => { r *= 1.5; pen.moveTo(x - r, y - r); pen.lineTo(x + r, y + r); pen.moveTo(x + r, y - r); pen.lineTo(x - r, y + r); return "stroke"; }],
  ];
  const DRAWN_ORDER = [ANSWER, FIRST, DUPLICATE, COPY, LOST];

  /* The legend shows each mark in its own shape and colour instead of a square. */
  const colouredLegend = (marks) => ({ hooks: { init: (chart) => {
    chart.root.querySelectorAll(".u-legend .u-series").forEach((row, at) => { if (at) row.querySelector("th").style.color = style(MARKS[marks[at - 1]][1]); });
  } } });

  function marker(mark) {
    return (chart, at, from, to) => {
      const pen = chart.ctx, ratio = devicePixelRatio, [, colour, shape] = MARKS[mark];
      pen.save();
      pen.beginPath();
      pen.rect(chart.bbox.left - 4, chart.bbox.top - 4, chart.bbox.width + 8, chart.bbox.height + 8);
      pen.clip();
      pen.fillStyle = pen.strokeStyle = style(colour);
      pen.lineWidth = 1.6 * ratio;
      const values = chart.data[at], times = chart.data[0];
      for (let place = from; place <= to; place++) {
        if (values[place] == null) continue;
        pen.beginPath();
        pen[shape(pen, chart.valToPos(times[place], "x", true), chart.valToPos(values[place], "y", true), 2.6 * ratio)]();
      }
      pen.restore();
      return null;
    };
  }

  function closest(chart, stream, marks) {
    const { left, top } = chart.cursor;
    let best = -1, least = 24 ** 2;
    stream.t.forEach((time, at) => {
      const distance = (chart.valToPos(time, "x") - left) ** 2 + (chart.valToPos(stream.y[at], "y") - top) ** 2;
      const shown = chart.series[marks.indexOf(stream.k[at]) + 1].show;
      if (shown && distance <= least) { least = distance; best = at; }
    });
    return best;
  }

  function sequencePlot(element, row, stream, sync) {
    const rup = row.protocol === "rup";
    const marks = DRAWN_ORDER.filter((mark) => stream.k.includes(mark));
    const columns = marks.map((mark) => stream.y.map((height, at) => (stream.k[at] === mark ? height : null)));
    const words = { label: rup ? "bytes of the messages, end to end" : "messages since the first seen", unit: rup ? "bytes" : "count" };
    return draw(element, (width) => new uPlot({
      width, height: 380,
      scales: { x: { time: false, range: (_, low, high) => [Math.min(low, 0), high > low ? high : low + 1] }, y: { range: (_, low, high) => fromZero(low, high) } },
      axes: [axis({ label: "since the session began", unit: "seconds" }, { size: 34, space: 70 }), axis(words, { size: roomForTicks, space: 36 })],
      series: [{}, ...marks.map((mark) => ({ label: MARKS[mark][0], stroke: style(MARKS[mark][1]), fill: style(MARKS[mark][1]), paths: marker(mark), points: { show: false } }))],
      legend: { live: false, markers: { show: false } },
      cursor: { points: { show: false }, sync: { key: sync }, drag: { x: true, y: false } },
      plugins: [colouredLegend(marks), tips((plot) => {
        const at = closest(plot, stream, marks);
        if (at < 0) return null;
        const mark = MARKS[stream.k[at]];
        const name = rup ? `byte ${format(stream.y[at], "number")}` : `message ${stream.lowest + stream.y[at]}`;
        return [[style(mark[1]), "", mark[0]], [null, "", name], [null, "frame", String(stream.f[at])], [null, "at", format(stream.t[at], "seconds")]];
      })],
    }, [stream.t, ...columns], element));
  }

  function sequence(row, detail) {
    const plot = make("div", { class: "chart", id: "sequence", tabindex: "0", role: "img", "aria-label": "Time-sequence plot: each mark is a datagram; losses and copies stand out." });
    plot.style.minHeight = "380px";
    const names = { out: `${address(row.caller, row.caller_port)} →`, in: `← ${address(row.callee, row.callee_port)}` };
    const ways = Object.keys(detail.streams);
    let stop = () => {};
    const show = (way) => {
      stop();
      stop = sequencePlot(plot, row, detail.streams[way], "session");
      buttons.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.way === way)));
    };
    const buttons = make("div", { class: "segments", role: "group", "aria-label": "Direction" }, ...ways.map((way) => make("button", { type: "button", "data-way": way, onclick: () => show(way) }, names[way])));
    const thinned = detail.stride > 1 ? ` One in ${detail.stride} first transmissions is drawn, chosen evenly.` : "";
    const size = (way) => detail.streams[way].k.filter((mark) => mark !== ANSWER).length;
    show(ways.sort((one, other) => size(other) - size(one))[0]);
    undo.push(() => stop());
    return make("figure", {}, make("div", { class: "figure-head" }, make("h3", {}, "Time and sequence"), ways.length > 1 ? buttons : make("span", { class: "way" }, names[ways[0]])), plot,
      make("figcaption", {}, `A steep line is fast, a flat one waits. Presumed lost: it had to be sent again. Drag to zoom, double-click for all.${thinned}`));
  }

  function overTime(detail, at) {
    const times = detail.timeline;
    if (!times.t.length) return [];
    const per = times.step === 1 ? "each second" : `each ${format(times.step * 1e6, "us")}`;
    const line = (name, column, colour, drawing = "steps") => ({ name, x: times.t, y: times[column], colour, drawing });
    const x = { label: "since the session began", unit: "seconds", log: false };
    const pictures = [
      { title: "Goodput", x, y: { label: "bytes per second", unit: "bytes_per_s", log: false }, height: 220, sync: "session", says: `Bodies seen for the first time, and all UDP payload with retransmissions and headers, ${per}.`,
        lines: [line("to the callee", "goodput_out", 1), line("to the caller", "goodput_in", 3), line("on the wire →", "bytes_out", 0, "dashed steps"), line("on the wire ←", "bytes_in", 5, "dashed steps")].filter((one) => one.y.some((value) => value > 0)) },
      { title: "Round trips", x, y: { label: "round-trip time", unit: "us", log: false }, height: 220, sync: "session", says: `Only samples without ambiguity, ${per}.`,
        lines: [line("median", "rtt_p50_us", 1, "line"), line("99th percentile", "rtt_p99_us", 2, "line")].filter((one) => one.y.some((value) => value !== null)) },
      { title: "Retransmissions", x, y: { label: "retransmissions per second", unit: "count", log: false }, height: 220, sync: "session", says: `Datagrams sent again, ${per}.`,
        lines: [line("by the caller", "retransmissions_out", 1), line("by the callee", "retransmissions_in", 3)].filter((one) => one.y.some((value) => value > 0)) },
    ].filter((picture) => picture.lines.length);
    return [make("div", { class: "columns", id: "over-time" }, ...pictures.map((picture) => {
      const place = make("div", { class: "chart" });
      place.style.minHeight = `${picture.height}px`;
      undo.push(chart(place, picture));
      return make("figure", {}, make("h3", {}, picture.title), place, make("figcaption", {}, picture.says));
    })), make("p", {})];
  }

  // The ladder.
  const SVG = "http://www.w3.org/2000/svg";
  function svg(name, attributes, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }
  const rungId = (file, frame) => `rung-${frame}-${file}`;
  function toRung(file, frame) {
    document.querySelectorAll(".ladder .marked").forEach((other) => other.classList.remove("marked"));
    document.getElementById("all-rungs")?.click();
    const rung = document.getElementById(rungId(file, frame));
    rung?.classList.add("marked");
    rung?.scrollIntoView({ block: "center" });
  }

  function rung(entry, at, lost, broken) {
    const [time, out, words, file, frame, copy] = entry;
    const top = 44 + at * 30, left = 120, right = 600;
    const gone = lost.has(frame);
    const [from, to] = out ? [left, right] : [right, left];
    const end = gone ? from + (to - from) * 0.72 : to;
    const slope = 8, fall = gone ? slope * 0.72 : slope;
    const kinds = [out ? "" : "back", copy ? "copy" : "", gone ? "lost" : "", broken ? "broken" : ""].filter(Boolean).join(" ");
    const made = svg("g", { class: kinds, id: rungId(file, frame) });
    const sign = Math.sign(to - from);
    made.append(
      svg("rect", { x: 0, y: top - 19, width: 720, height: 30 }),
      svg("text", { x: left - 14, y: top, "text-anchor": "end", class: "quiet" }, format(time, "seconds")),
      svg("text", { x: (left + right) / 2, y: top - 4, "text-anchor": "middle", class: "words" }, `${broken ? "⚠ " : ""}${words}${copy ? " (copy)" : ""}`),
      svg("text", { x: right + 14, y: top, class: "quiet" }, `frame ${frame}`),
      svg("line", { x1: from, y1: top, x2: end, y2: top + fall, class: "rung" }),
      gone ? svg("path", { d: `M${end - 5} ${top + fall - 5}l10 10m0 -10l-10 10`, class: "cross" })
        : svg("path", { d: `M${end} ${top + fall}l${-9 * sign} -5.5l${-0.6 * sign} 8z`, class: "head" }),
    );
    made.append(svg("title", {}, `${words}; frame ${frame} of ${file}${gone ? "; presumed lost" : ""}`));
    return made;
  }

  function ladder(row, detail, brokenFrames) {
    const lost = new Set(Object.values(detail.streams).flatMap((stream) => stream.f.filter((_, at) => stream.k[at] === LOST)));
    const holder = make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Ladder diagram of the first exchanges" });
    const show = (rungs) => {
      const height = 44 + rungs * 30 + 4;
      const picture = svg("svg", { viewBox: `0 0 720 ${height}`, class: "ladder", role: "img" });
      picture.append(
        svg("title", {}, "Ladder diagram: time runs down, each arrow is a datagram"),
        svg("text", { x: 120, y: 14, "text-anchor": "middle", class: "side" }, address(row.caller, row.caller_port)),
        svg("text", { x: 600, y: 14, "text-anchor": "middle", class: "side" }, address(row.callee, row.callee_port)),
        svg("line", { x1: 120, y1: 22, x2: 120, y2: height, class: "life" }), svg("line", { x1: 600, y1: 22, x2: 600, y2: height, class: "life" }),
        ...detail.ladder.slice(0, rungs).map((entry, at) => rung(entry, at, lost, brokenFrames.has(`${entry[3]}\n${entry[4]}`))),
      );
      holder.replaceChildren(picture);
    };
    const first = Math.min(RUNGS_AT_FIRST, detail.ladder.length);
    show(first);
    const more = first < detail.ladder.length ? [make("button", { type: "button", class: "more", id: "all-rungs", onclick: (event) => { show(detail.ladder.length); event.currentTarget.remove(); } }, `Show the first ${detail.ladder.length}`)] : [];
    return make("figure", {}, make("h3", {}, "The first exchanges"), holder, ...more, make("figcaption", {}, "Time runs down. Dashed: a retransmission. Ends in a cross: presumed lost, a copy followed. ⚠: breaks a rule."));
  }

  function slowest(detail) {
    const rows = detail.messages.worst.map(([out, message, kind, size, parts, first, attempts, copies, latency, outcome]) => make("tr", {},
      cell(`${out ? "→" : "←"} ${message}`, "wrap"), cell(kind), cell(format(size, "bytes"), "number"), cell(format(parts, "count"), "number"),
      cell(format(attempts, "count"), `number ${attempts > 1 ? "bad" : ""}`), cell(format(copies, "count"), "number"), cell(format(latency, "us"), "number"),
      cell(outcome, ["unacknowledged", "refused"].includes(outcome) ? "bad" : "")));
    const heads = [["Message", ""], ["Kind", ""], ["Size", "number"], ["Parts", "number"], ["Attempts", "number"], ["Copies", "number"], ["Latency", "number"], ["Outcome", ""]];
    return make("section", {}, make("h2", {}, "Messages that fared worst"), make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads.map(([title, kind]) => make("th", { scope: "col", class: kind }, title)))), make("tbody", {}, ...rows))));
  }

  // Places in the overview lead to the session, where it has details; otherwise they are no links.
  document.querySelectorAll("a[data-session]").forEach((link) => {
    const point = link.closest("[data-point]")?.dataset.point;
    const at = detailOf.get(JSON.stringify([link.dataset.session, point]));
    if (at === undefined) link.replaceWith(...link.childNodes);
    else link.href = `#session-${at}`;
  });
  if (document.getElementById("list")) startList();
  addEventListener("hashchange", route);
  route();
})();
