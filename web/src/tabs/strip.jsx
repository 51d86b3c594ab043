// The live strip: requests, pages and throughput, each second, from /metrics.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { count, percent } from "../base/format.js";

const rate = (value) => (value >= 10 || value === 0 ? value.toFixed(0) : value.toFixed(1));

// The canvas takes its colours from the style of its element, so it follows the theme.
const colourOf = (plot) => getComputedStyle(plot.root.parentNode).color;

function Sparkline({ history }) {
  const box = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    const size = () => ({ width: box.current.clientWidth, height: box.current.clientHeight });
    const line = {
      stroke: colourOf,
      fill: (self) => colourOf(self).replace("rgb(", "rgba(").replace(")", ", 0.15)"),
      width: 1.5,
      points: { show: false },
    };
    const options = {
      ...size(),
      padding: [2, 0, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      axes: [{ show: false }, { show: false }],
      scales: { x: { time: false, range: [0, 59] }, y: { range: (_, __, top) => [0, top || 1] } },
      series: [{}, line],
    };
    plot.current = new uPlot(options, [[], []], box.current);
    const observer = new ResizeObserver(() => box.current && plot.current.setSize(size()));
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      plot.current.destroy();
    };
  }, []);
  useEffect(() => {
    const first = 60 - history.length;
    plot.current.setData([history.map((_, index) => first + index), history]);
  }, [history]);
  return <div class="spark" ref={box} aria-hidden="true" />;
}

function Cell({ label, value, name, children }) {
  return (
    <div class={`cell cell-${name}`}>
      <dt>{label}</dt>
      <dd data-testid={`strip-${name}`}>{value}</dd>
      {children}
    </div>
  );
}

// Pages that running requests use, and those that later ones can take over.
function PageBar({ by_state, used }) {
  const { used: busy = 0, cached = 0, free = 0 } = by_state ?? {};
  const all = busy + cached + free;
  const share = (count) => ({ width: `${all > 0 ? (100 * count) / all : 0}%` });
  const title = all > 0 ? `${busy} pages in use, ${cached} cached, ${free} free` : undefined;
  return (
    <dd class="bar" title={title} data-testid="strip-page-bar">
      <i class="used" style={all > 0 ? share(busy) : { width: `${100 * (used ?? 0)}%` }} />
      <i class="cached" style={share(cached)} />
    </dd>
  );
}

export function Strip({ server }) {
  const { running, waiting, pages, pages_by_state, looked_up, reused } = server.metrics;
  const hit_rate = looked_up > 0 ? reused / looked_up : undefined;
  return (
    <dl class="strip" aria-label="Server load" data-testid="strip">
      <Cell label="Running" value={count(running)} name="running" />
      <Cell label="Waiting" value={count(waiting)} name="waiting" />
      <Cell label="Pages in use" value={percent(pages)} name="pages">
        <PageBar by_state={pages_by_state} used={pages} />
      </Cell>
      <Cell label="Prompt reused" value={percent(hit_rate)} name="reused" />
      <Cell label="Prompt tok/s" value={rate(server.prompt_rate)} name="prompt" />
      <Cell label="Output tok/s" value={rate(server.generation_rate)} name="output" />
      <dd class="graph">
        <Sparkline history={server.history} />
      </dd>
    </dl>
  );
}
