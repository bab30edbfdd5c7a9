// Steps through one answer: draws each drafter's tree at the place that the slider points to.
(() => {
  const make = (name, attributes = {}, ...children) => {
    const svg = ["svg", "g", "path", "rect", "text", "title"].includes(name);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const visible = (text) => text.replace(/\n/g, "\u21b5").replace(/^ | $/g, "\u00b7");
  const short = (text) => (text.length > 16 ? text.slice(0, 15) + "\u2026" : text);
  const quoted = (text) => "\u201c" + visible(text) + "\u201d";
  const count = (number, noun) => number + " " + noun + (number === 1 ? "" : "s");
  const shownProb = (prob) => (prob >= 0.995 ? "1" : prob >= 0.01 ? prob.toFixed(2).slice(1) : prob >= 0.001 ? prob.toFixed(3).slice(1) : "<.001");
  const ROW = 24, GAP = 24, CHAR = 7.4, SMALL = 6.2, BADGE = 17;

  // In words, of each source how many nodes it gave and how many of them were accepted.
  const bySource = (step, data) => {
    if (!step.sources) return "";
    const parts = data.sources.map((name, source) => {
      const from = (nodes) => nodes.filter((node) => node && step.sources[node] === source).length;
      return [from([...step.tokens.keys()]), `${name} ${from([...step.tokens.keys()])} (${from(step.path)} accepted)`];
    });
    return parts.some(([given]) => given) ? "; from " + parts.filter(([given]) => given).map(([, said]) => said).join(", ") : "";
  };

  const drawTree = (step, data) => {
    const size = step.tokens.length, depth = [0], below = step.tokens.map(() => []);
    for (let node = 1; node < size; node++) {
      depth.push(depth[step.parents[node]] + 1);
      below[step.parents[node]].push(node);
    }
    const lit = new Set(step.path);
    const label = step.tokens.map((token) => short(visible(data.texts[token])));
    const boxes = step.tokens.map((_, node) => (
      { label: label[node], prob: step.probs && node ? shownProb(step.probs[node]) : "", source: node ? step.sources?.[node] : undefined, depth: depth[node], kind: !node ? "root" : lit.has(node) ? "lit" : node >= size - (step.probes || 0) ? "probe" : "not" }));
    // The model's own token hangs below the last accepted node, unless the answer ended before it.
    const last = step.path[step.path.length - 1];
    if (step.emitted >= step.path.length) {
      const own = data.ids[step.start + step.path.length - 1];
      boxes.push({ prob: "", label: short(visible(data.texts[own])), depth: depth[last] + 1, kind: "own" });
      below[last] = [...below[last], size];
      below.push([]);
    }
    const widths = [];
    for (const box of boxes) {
      box.width = box.label.length * CHAR + 10 + (box.prob ? box.prob.length * SMALL + 5 : 0) + (box.source === undefined ? 0 : BADGE);
      widths[box.depth] = Math.max(widths[box.depth] || 0, box.width);
    }
    const left = widths.map((_, at) => widths.slice(0, at).reduce((sum, width) => sum + width + GAP, 2));
    let rows = 0;
    const place = (node) => {
      const first = rows;
      const children = below[node];
      // The lit path goes straight on: it is laid out first.
      for (const child of [...children].sort((a, b) => (boxes[b].kind === "lit") - (boxes[a].kind === "lit"))) place(child);
      if (!children.length) rows++;
      boxes[node].y = 4 + first * ROW;
    };
    place(0);
    const width = Math.max(...boxes.map((box) => left[box.depth] + widths[box.depth])) + 4;
    const svg = make("svg", { width, height: rows * ROW + 8, viewBox: `0 0 ${width} ${rows * ROW + 8}`, role: "img" });
    svg.append(make("title", {}, `Draft tree of ${count(size - 1, "node")}${bySource(step, data)}`));
    const middle = (box) => box.y + 9;
    for (const [at, box] of boxes.entries()) {
      if (!at) continue;
      const parent = boxes[at === size ? last : step.parents[at]];
      const x0 = left[parent.depth] + parent.width, x1 = left[box.depth];
      const bend = (x0 + x1) / 2;
      svg.append(make("path", { class: "edge " + box.kind, d: `M${x0} ${middle(parent)}C${bend} ${middle(parent)} ${bend} ${middle(box)} ${x1} ${middle(box)}` }));
    }
    for (const [at, box] of boxes.entries()) {
      const token = at < size ? step.tokens[at] : data.ids[step.start + step.path.length - 1];
      const group = make("g", { class: box.kind, transform: `translate(${left[box.depth]} ${box.y})` },
        make("title", {}, `${data.texts[token]} (token ${token})` + (box.prob && `, ${step.probs[at]}`) + (box.source === undefined ? "" : `, from ${data.sources[box.source]}`)),
        make("rect", { width: box.width, height: 18, rx: 4 }),
        make("text", { x: 5, y: 13 }, box.label));
      if (box.prob) group.append(make("text", { class: "prob", x: box.label.length * CHAR + 10, y: 13 }, box.prob));
      if (box.source !== undefined) group.append(make("g", { class: `badge source-${box.source % 6}`, transform: `translate(${box.width - BADGE} 0)` },
        make("rect", { x: 1, y: 2, width: 14, height: 14, rx: 3 }), make("text", { x: 8, y: 12.5 }, data.sources[box.source][0])));
      svg.append(group);
    }
    return svg;
  };

  const explain = (data, at) => {
    const [length, places, followers, seen] = data.evidence[at];
    const token = quoted(data.texts[data.ids[at]]);
    const ends = at ? `Here the answer goes on with ${token}. ` : `Prefill gives the first token, ${token}. `;
    const known = seen ? `It occurs ${count(seen, "time")} in the text before. ` : "It is nowhere in the text before: no copy can foresee it. ";
    if (!length) return ends + known + "The token before it did not occur earlier, so there is no match to draft from.";
    const after = followers.map(([follower, times]) => `${quoted(data.texts[follower])} ${times}\u00d7`).join(", ");
    return ends + known + `Of the text's end, ${count(length, "token")} occurred before, in ${count(places, "place")}; what followed there: ${after}.`;
  };

  for (const explorer of document.querySelectorAll(".explorer")) {
    const data = JSON.parse(explorer.querySelector(".data").textContent);
    const slider = explorer.querySelector("input"), output = explorer.querySelector("output");
    slider.max = data.ids.length - 1;
    explorer.querySelector(".controls").hidden = false;
    if (data.drafters.length < 2) explorer.querySelector("[data-go=difference]").remove();
    const panels = data.drafters.map((drafter) => {
      const drafted = new Set();
      for (const step of drafter.steps) for (let k = 0; k < Math.min(step.path.length - 1, step.emitted); k++) drafted.add(step.start + k);
      const spans = data.pieces.map((piece, at) => make("span", { "data-at": at }, piece.replace(/\n/g, "\u21b5\n")));
      const panel = { drafter, drafted, spans, said: make("p", { class: "said" }), tree: make("div", { class: "tree" }), answer: make("div", { class: "answer", dir: "auto" }, ...spans) };
      const tokens = data.ids.length - 1, steps = drafter.steps.length;
      const mean = steps ? `: ${count(steps, "step")}, accept length ${(tokens / steps).toFixed(2)}` : "";
      explorer.querySelector(".panels").append(make("div", { class: "panel" }, make("h4", {}, drafter.name + mean), panel.said, panel.answer, panel.tree));
      panel.answer.addEventListener("click", (event) => event.target.dataset.at && show(+event.target.dataset.at));
      return panel;
    });
    const starts = [...new Set(data.drafters.flatMap((drafter) => drafter.steps.map((step) => step.start)))].sort((a, b) => a - b);
    const covering = (drafter, at) => drafter.steps.findLast((step) => step.start <= at);
    let now = 0;

    const show = (at) => {
      now = Math.max(0, Math.min(data.ids.length - 1, at));
      slider.value = now;
      output.textContent = `token ${now + 1} of ${data.ids.length}`;
      explorer.querySelector(".why").textContent = explain(data, now);
      for (const { drafter, drafted, spans, said, tree, answer } of panels) {
        const step = now ? covering(drafter, now) : null;
        spans.forEach((span, place) => {
          const current = step ? place >= step.start && place < step.start + step.emitted : place === 0;
          const until = step ? step.start + step.emitted : 1;
          span.className = [drafted.has(place) ? "drafted" : "", current ? "now" : "", place >= until ? "later" : ""].join(" ").trim();
        });
        const first = answer.querySelector(".now");
        if (first) answer.scrollTop = first.offsetTop - answer.clientHeight / 2;
        if (!step) {
          said.textContent = "Before the first step: prefill has given the first token.";
          tree.replaceChildren();
          continue;
        }
        const drafts = step.tokens.length - 1, accepted = step.path.length - 1;
        const expected = step.probs ? `, ${step.probs.slice(1).reduce((sum, prob) => sum + prob, 0).toFixed(2)} expected` : "";
        said.textContent = `Step ${drafter.steps.indexOf(step) + 1}: ${count(drafts, "node")} drafted, ${accepted} accepted${expected}, ${count(step.emitted, "token")} emitted${bySource(step, data)}.`;
        tree.replaceChildren(drawTree(step, data));
      }
    };
    const next = (wanted) => starts.find((start) => start > now && wanted(start));
    const missed = (start) => panels.some(({ drafter }) => { const step = covering(drafter, start); return step.start === start && step.path.length === 1; });
    const apart = (start) => {
      const ends = panels.map(({ drafter }) => covering(drafter, start)).filter((step) => step.start === start).map((step) => step.start + step.emitted);
      return ends.length === panels.length && new Set(ends).size > 1;
    };
    const moves = {
      first: () => 0,
      back: () => starts.findLast((start) => start < now) ?? 0,
      on: () => next(() => true) ?? now,
      miss: () => next(missed) ?? now,
      difference: () => next(apart) ?? now,
    };
    explorer.addEventListener("click", (event) => moves[event.target.dataset.go] && show(moves[event.target.dataset.go]()));
    slider.addEventListener("input", () => show(+slider.value));
    const keys = { ArrowLeft: "back", ArrowRight: "on", m: "miss", d: "difference", Home: "first" };
    explorer.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      show(moves[keys[event.key]]());
    });
    show(starts.find(apart) ?? starts[0] ?? 0);
  }
})();
