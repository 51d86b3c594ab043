// The live strip: requests, pages and throughput, each second, from /metrics.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

const number = (value) => (value === undefined ? "–" : value.toLocaleString("en"));
function percent(value) {
  if (value === undefined) return "–";
  if (value > 0 && value < 0.001) return "< 0.1 %";
  return `${(value * 100).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
}
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
    const observer = new ResizeObserver(() => plot.current.setSize(size()));
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

export function Strip({ server }) {
  const { running, waiting, pages } = server.metrics;
  return (
    <dl class="strip" aria-label="Server load" data-testid="strip">
      <Cell label="Running" value={number(running)} name="running" />
      <Cell label="Waiting" value={number(waiting)} name="waiting" />
      <Cell label="Pages in use" value={percent(pages)} name="pages">
        <dd class="bar" aria-hidden="true">
          <i style={{ width: `${Math.min(100, (pages ?? 0) * 100)}%` }} />
        </dd>
      </Cell>
      <Cell label="Prompt tok/s" value={rate(server.prompt_rate)} name="prompt" />
      <Cell label="Output tok/s" value={rate(server.generation_rate)} name="output" />
      <dd class="graph">
        <Sparkline history={server.history} />
      </dd>
    </dl>
  );
}
