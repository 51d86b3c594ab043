// See the header. Panels stand below each other, so that maps of many ranks are legible.
#include "cli/experts/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace braid {
namespace {

constexpr double kPageWidth = 960, kEdge = 60, kPlotHeight = 180;
constexpr std::string_view kLines[] = {"#6b7280", "#2563eb", "#059669", "#dc2626"};

// White: as much as the mean rank; red up to twice as much and more, blue down to nothing.
std::string ColourOf(double load) {
  const double part = std::clamp(load - 1, -1.0, 1.0);
  const auto fade = [&](int to) { return static_cast<int>(255 - (255 - to) * std::abs(part)); };
  return part > 0 ? fmt::format("#{:02x}{:02x}{:02x}", fade(200), fade(20), fade(20))
                  : fmt::format("#{:02x}{:02x}{:02x}", fade(30), fade(80), fade(200));
}

struct Canvas {
  std::string out;
  double y = 20;

  void Text(double x, double at, std::string_view text) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x, at, text);
  }
};

void AddMap(const ExpertLoads& loads, const PlacementReport& report, Canvas& canvas) {
  const size_t layers = report.rank_loads.size(), ranks = report.rank_loads[0].size();
  const double cell = std::min(24.0, (kPageWidth - kEdge - 20) / static_cast<double>(ranks));
  const double height = std::clamp(300.0 / static_cast<double>(layers), 3.0, 14.0);
  canvas.Text(
      kEdge, canvas.y,
      fmt::format("{}: balance {:.3f}, fullest rank {:.2f} of the mean", NameOf(report.method),
                  report.balance_held_out, 1 / report.balance_held_out));
  canvas.y += 8;
  for (size_t layer = 0; layer < layers; ++layer) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      const double load = report.rank_loads[layer][rank];
      canvas.out += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\">"
          "<title>layer {}, rank {}: {:.2f}</title></rect>\n",
          kEdge + cell * static_cast<double>(rank), canvas.y, cell, height, ColourOf(load),
          loads.layers[layer], rank, load);
    }
    canvas.y += height;
  }
  canvas.Text(4, canvas.y - height * static_cast<double>(layers) / 2, "layers");
  canvas.Text(kEdge, canvas.y + 14, fmt::format("ranks 0 to {}", ranks - 1));
  canvas.y += 40;
}

void AddWindows(std::span<const PlacementReport> reports, Canvas& canvas) {
  canvas.Text(kEdge, canvas.y, "balance of each window, placed anew after the windows before it");
  canvas.y += 10;
  const double width = kPageWidth - kEdge - 140;
  for (const double mark : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    const double y = canvas.y + kPlotHeight * (1 - mark);
    canvas.out += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#e5e7eb\"/>\n",
        kEdge, y, kEdge + width, y);
    canvas.Text(kEdge - 34, y + 4, fmt::format("{:.2f}", mark));
  }
  for (size_t i = 0; i < reports.size(); ++i) {
    const std::vector<double>& windows = reports[i].windows_online;
    const std::string_view colour = kLines[i % std::size(kLines)];
    std::string points;
    for (size_t w = 0; w < windows.size(); ++w) {
      const double at =
          windows.size() > 1 ? static_cast<double>(w) / static_cast<double>(windows.size() - 1) : 0;
      points += fmt::format("{:.1f},{:.1f} ", kEdge + width * at,
                            canvas.y + kPlotHeight * (1 - windows[w]));
    }
    canvas.out +=
        fmt::format("<polyline fill=\"none\" stroke=\"{}\" points=\"{}\"/>\n", colour, points);
    canvas.out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{} {:.3f}</text>\n",
                              kEdge + width + 10, canvas.y + 14 + 16 * static_cast<double>(i),
                              colour, NameOf(reports[i].method), reports[i].balance_online);
  }
  canvas.y += kPlotHeight + 30;
}

}  // namespace

std::string ExpertsSvg(const ExpertLoads& loads, const ExpertShape& shape,
                       std::span<const PlacementReport> reports) {
  Canvas canvas;
  canvas.Text(kEdge, canvas.y,
              fmt::format("{} layers of {} experts, {} a token, on {} ranks in {} nodes, {} "
                          "redundant experts",
                          loads.layers.size(), loads.experts, loads.top_k, shape.ranks,
                          shape.nodes(), shape.redundant));
  canvas.y += 30;
  for (const PlacementReport& report : reports) AddMap(loads, report, canvas);
  AddWindows(reports, canvas);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{2}</svg>\n",
      kPageWidth, canvas.y, canvas.out);
}

}  // namespace braid
