// The load of experts in the last steps as a heat map: a row for each layer, a column for each expert
// or, where ranks share the experts, for each rank.
import { useEffect, useRef, useState } from "preact/hooks";
import { count, some } from "../base/format.js";
import { askJson } from "../base/http.js";

const kPeriod = 2000;
// Of the mean load: what is loaded as much or more has the full colour.
const kFullColour = 3;

// /v1/expert_load while the card is shown; null before the first answer.
function useLoad(shown) {
  const [load, setLoad] = useState(null);
  useEffect(() => {
    if (!shown) return undefined;
    let timer = null;
    let over = false;
    const step = async () => {
      setLoad(await askJson("v1/expert_load").catch(() => null));
      if (!over) timer = setTimeout(step, kPeriod);
    };
    step();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [shown]);
  return load;
}

const sum = (row) => row.reduce((all, value) => all + value, 0);

// Each row by its mean: 1 is an even share. With the balance of all rows (mean over fullest) and
// what is fullest.
export function heatOf(rows) {
  const heat = rows.map((row) => {
    const mean = sum(row) / row.length;
    return row.map((value) => (mean > 0 ? value / mean : 0));
  });
  const fullest = { times: 0, row: 0, column: 0 };
  heat.forEach((row, at) => row.forEach((times, column) => {
    if (times > fullest.times) Object.assign(fullest, { times, row: at, column });
  }));
  const means = rows.map((row) => sum(row) / row.length);
  const most = sum(rows.map((row) => Math.max(...row)));
  return { heat, fullest, balance: most > 0 ? sum(means) / most : 1 };
}

function draw(canvas, heat) {
  canvas.width = heat[0].length;
  canvas.height = heat.length;
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = getComputedStyle(canvas).color;
  heat.forEach((row, y) => row.forEach((times, x) => {
    context.globalAlpha = Math.min(1, times / kFullColour);
    context.fillRect(x, y, 1, 1);
  }));
}

// What the pointer is over.
function placeOf(event, heat) {
  const box = event.currentTarget.getBoundingClientRect();
  const along = (at, from, size, cells) =>
    Math.min(cells - 1, Math.max(0, Math.floor(((at - from) / size) * cells)));
  return {
    row: along(event.clientY, box.top, box.height, heat.length),
    column: along(event.clientX, box.left, box.width, heat[0].length),
  };
}

function HeatMap({ rows, layers, what }) {
  const canvas = useRef(null);
  const [place, setPlace] = useState(null);
  const [scheme, setScheme] = useState(0);
  const { heat, fullest, balance } = heatOf(rows);
  useEffect(() => draw(canvas.current, heat), [rows, scheme]);
  // The colour is the text's, which the theme changes.
  useEffect(() => {
    const watcher = new MutationObserver(() => setScheme((before) => before + 1));
    watcher.observe(document.documentElement, { attributes: true });
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const change = () => setScheme((before) => before + 1);
    dark.addEventListener("change", change);
    return () => {
      watcher.disconnect();
      dark.removeEventListener("change", change);
    };
  }, []);
  const say = ({ row, column }) =>
    `layer ${layers[row]}, ${what} ${column}: ${heat[row][column].toFixed(2)} × an even share`;
  const summary = `Balance ${balance.toFixed(2)} (mean over fullest). Most: ${say(fullest)}`;
  return (
    <>
      <p class="note" data-testid="expert-balance">{summary}</p>
      <canvas ref={canvas} class="heat" role="img" data-testid="expert-heat"
        aria-label={`Load by layer and ${what}. ${summary}`}
        style={{ height: `${Math.min(20, Math.max(5, heat.length * 0.55))}rem` }}
        onPointerMove={(event) => setPlace(placeOf(event, heat))}
        onPointerLeave={() => setPlace(null)} />
      <p class="note heat-scale">
        <span>{what} 0</span>
        <span>{place ? say(place) : `layers ${layers[0]} to ${layers.at(-1)}, from the top`}</span>
        <span>{rows[0].length - 1}</span>
      </p>
      <p class="legend">
        <span class="heat-legend" aria-hidden="true" />
        nothing to {kFullColour} × an even share and more
      </p>
    </>
  );
}

export function Experts({ shown }) {
  const load = useLoad(shown);
  if (!shown || !load || load.experts === 0) return null;
  const ranks = load.rank_rows.length > 0;
  return (
    <section class="card wide" aria-label="Load of experts" data-testid="experts">
      <h2>Load of experts</h2>
      {load.counts.length > 0 ? (
        <>
          <p class="note">
            Of {some(load.tokens, "token")} in {some(load.passes, "step")}, each with{" "}
            {count(load.top_k)} of {count(load.experts)} experts.
          </p>
          <HeatMap rows={load.counts} layers={load.layers} what="expert" />
          {ranks && <HeatMap rows={load.rank_rows} layers={load.layers} what="rank" />}
        </>
      ) : (
        <p class="note">The first ten steps are not over yet.</p>
      )}
    </section>
  );
}
