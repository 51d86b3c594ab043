// Line plots by hand: a polyline per series, a grid with round numbers, a legend.
#include "cli/cluster_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quantities.h"

namespace braid {
namespace {

constexpr double kPlotWidth = 560, kHeight = 250, kLeft = 58, kRight = 14, kTop = 12, kBottom = 40;
constexpr size_t kColours = 4;  // classes c0 and so on

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

struct Plot {
  std::string title, x, y;
  std::vector<Series> series;
};

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

// 1, 2 or 5 times a power of ten: about five steps to `most`.
double RoundStep(double most) {
  const double raw = most / 5, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

std::string NumberText(double value) {
  if (value >= 1e6) return fmt::format("{:g}M", value / 1e6);
  return value >= 1e4 ? fmt::format("{:g}k", value / 1e3) : fmt::format("{:.4g}", value);
}

std::string Svg(const Plot& plot) {
  double x_most = 1e-9, y_most = 1e-9;
  for (const Series& series : plot.series) {
    for (const auto& [x, y] : series.points) {
      x_most = std::max(x_most, x);
      y_most = std::max(y_most, y);
    }
  }
  const double x_step = RoundStep(x_most), y_step = RoundStep(y_most);
  y_most = std::ceil(y_most / y_step) * y_step;
  const auto px = [&](double x) { return kLeft + x / x_most * (kPlotWidth - kLeft - kRight); };
  const auto py = [&](double y) {
    return kHeight - kBottom - y / y_most * (kHeight - kTop - kBottom);
  };
  std::string out = fmt::format(
      "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{}\">",
      Escaped(plot.title), kPlotWidth, kHeight, Escaped(plot.title));
  for (double y = 0; y <= y_most * 1.001; y += y_step) {
    out += fmt::format(
        "<line class=\"g\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>",
        kLeft, kPlotWidth - kRight, py(y), kLeft - 6, py(y) + 4, NumberText(y));
  }
  for (double x = 0; x <= x_most * 1.001; x += x_step) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>", px(x),
                       kHeight - kBottom + 16, NumberText(x));
  }
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                     (kLeft + kPlotWidth - kRight) / 2, kHeight - 6, Escaped(plot.x));
  out += fmt::format(
      "<text transform=\"translate(13 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
      (kTop + kHeight - kBottom) / 2, Escaped(plot.y));
  for (size_t i = 0; i < plot.series.size(); ++i) {
    const size_t colour = i % kColours;
    std::string points;
    for (const auto& [x, y] : plot.series[i].points) {
      points += fmt::format("{:.1f},{:.1f} ", px(x), py(y));
    }
    out += fmt::format("<polyline class=\"c{}\" points=\"{}\"/>", colour, points);
    for (const auto& [x, y] : plot.series[i].points) {
      if (plot.series[i].points.size() > 20) break;
      out += fmt::format("<circle class=\"c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>", colour,
                         px(x), py(y));
    }
  }
  out += "</svg><p>";
  for (size_t i = 0; i < plot.series.size(); ++i) {
    out += fmt::format("<span class=\"c{}\">&#9632; {}</span> ", i % kColours,
                       Escaped(plot.series[i].name));
  }
  return out + "</p></figure>";
}

Series Distribution(std::string name, const TimeHistogram& times, double unit) {
  Series series{.name = std::move(name)};
  for (int i = 0; i <= 99; ++i) {
    series.points.emplace_back(i, times.Quantile(i / 100.0) * unit);
  }
  return series;
}

std::vector<Plot> PlotsOf(const std::vector<ClusterRun>& runs) {
  const ClusterReport& last = runs.back().report;
  Plot tokens{.title = "Tokens over time",
              .x = "seconds",
              .y = "tokens/s",
              .series = {{"computed prompt tokens"}, {"output tokens"}}};
  Plot requests{.title = "Requests over time",
                .x = "seconds",
                .y = "requests",
                .series = {{"running"}, {"waiting"}}};
  for (size_t i = 0; i < last.moments.size(); ++i) {
    const double at = (static_cast<double>(i) + 0.5) * last.moment_seconds;
    const ClusterMoment& m = last.moments[i];
    tokens.series[0].points.emplace_back(at, m.input_tokens / last.moment_seconds);
    tokens.series[1].points.emplace_back(at, m.output_tokens / last.moment_seconds);
    requests.series[0].points.emplace_back(at, m.running);
    requests.series[1].points.emplace_back(at, m.waiting);
  }
  Plot balance{.title = "Balance of experts over time",
               .x = "seconds",
               .y = "mean over fullest rank",
               .series = {{"steps that began"}}};
  for (size_t i = 0; i < last.moments.size(); ++i) {
    if (last.moments[i].steps == 0) continue;
    balance.series[0].points.emplace_back((static_cast<double>(i) + 0.5) * last.moment_seconds,
                                          last.moments[i].balance);
  }
  std::vector<Plot> plots;
  if (runs.size() > 1) {
    Plot first{.title = "Time to first token by throughput",
               .x = "output tokens/s",
               .y = "seconds",
               .series = {{"median"}, {"99 %"}}};
    Plot between{.title = "Inter-token latency by throughput",
                 .x = "output tokens/s",
                 .y = "ms",
                 .series = {{"median"}, {"99 %"}}};
    for (const ClusterRun& run : runs) {
      const ClusterReport& r = run.report;
      const double speed = static_cast<double>(r.output_tokens) / r.seconds;
      for (size_t q = 0; q < 2; ++q) {
        const double part = q == 0 ? 0.5 : 0.99;
        first.series[q].points.emplace_back(speed, r.first_token.Quantile(part));
        between.series[q].points.emplace_back(speed, r.inter_token.Quantile(part) * 1e3);
      }
    }
    plots.push_back(std::move(first));
    plots.push_back(std::move(between));
  }
  plots.push_back(std::move(tokens));
  plots.push_back(std::move(requests));
  plots.push_back({.title = "Time to first token",
                   .x = "% of requests",
                   .y = "seconds",
                   .series = {Distribution("at most", last.first_token, 1)}});
  plots.push_back({.title = "Inter-token latency",
                   .x = "% of tokens",
                   .y = "ms",
                   .series = {Distribution("at most", last.inter_token, 1e3)}});
  if (!balance.series[0].points.empty()) plots.push_back(std::move(balance));
  return plots;
}

std::string Row(const ClusterRun& run) {
  const ClusterReport& r = run.report;
  return fmt::format(
      "<tr><td>{:.3g}</td><td>{}</td><td>{:.0f}</td><td>{:.0f}</td><td>{:.1f} %</td>"
      "<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.0f} %</td></tr>",
      run.rate, r.finished, static_cast<double>(r.output_tokens) / r.seconds,
      static_cast<double>(r.input_tokens) / r.seconds,
      r.input_tokens > 0
          ? 100.0 * static_cast<double>(r.reused_tokens) / static_cast<double>(r.input_tokens)
          : 0.0,
      TimeText(r.first_token.Quantile(0.5)), TimeText(r.first_token.Quantile(0.99)),
      TimeText(r.inter_token.Quantile(0.5)), TimeText(r.inter_token.Quantile(0.99)), r.busy * 100);
}

constexpr std::string_view kHead = R"(<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>braid simulate cluster</title><style>
:root{color-scheme:light dark;--ink:#1f2937;--soft:#6b7280;--line:#e5e7eb;--page:#fff;
--c0:#2563eb;--c1:#dc2626;--c2:#047857;--c3:#7c3aed}
@media(prefers-color-scheme:dark){:root{--ink:#e5e7eb;--soft:#9ca3af;--line:#374151;--page:#111827;
--c0:#60a5fa;--c1:#f87171;--c2:#34d399;--c3:#a78bfa}}
body{font:15px/1.45 system-ui,sans-serif;max-width:1200px;margin:2rem auto;padding:0 1rem;
color:var(--ink);background:var(--page);overflow-wrap:break-word}
main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:1.5rem}
figure{margin:0;min-width:0}figcaption{font-weight:600}
figure p{margin:.2rem 0 0;padding-left:10%;font-size:13px}
svg{width:100%;height:auto}svg text{font-size:11px;fill:var(--soft)}.g{stroke:var(--line)}
polyline{fill:none;stroke-width:2;stroke-linejoin:round;stroke:currentColor}
circle{fill:currentColor}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}
.rows{overflow-x:auto;margin:1rem 0 2rem}table{border-collapse:collapse}
td,th{padding:.25rem .8rem;text-align:right;white-space:nowrap;
border-bottom:1px solid var(--line);font-variant-numeric:tabular-nums}
</style><h1>Simulated cluster</h1>)";

}  // namespace

std::string ClusterPage(const std::string& title, const std::vector<ClusterRun>& runs) {
  std::string page;
  page += kHead;
  page += fmt::format("<p>{}</p><div class=\"rows\" tabindex=\"0\"><table><tr>", Escaped(title));
  for (const char* name : {"requests/s", "finished", "output tokens/s", "input tokens/s", "reused",
                           "first token", "its 99 %", "inter-token", "its 99 %", "busy"}) {
    page += fmt::format("<th>{}</th>", name);
  }
  page += "</tr>";
  for (const ClusterRun& run : runs) page += Row(run);
  page += fmt::format(
      "</table></div><p>First token and inter-token: medians. Timeline and distributions at {:.3g} "
      "requests/s.</p><main>",
      runs.back().rate);
  for (const Plot& plot : PlotsOf(runs)) page += Svg(plot);
  return page + "</main></html>\n";
}

}  // namespace braid
