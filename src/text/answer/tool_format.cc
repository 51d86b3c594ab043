// Looking a format up; the rows are in families/tool_formats.cc.
#include "text/answer/tool_format.h"

#include <algorithm>

#include "text/chat/named_rows.h"

namespace braid {

const ToolFormat* DetectToolFormat(std::string_view chat_template) {
  for (const ToolFormat& format : ToolFormats()) {
    const auto shown = [&](std::string_view word) {
      return chat_template.find(word) != std::string_view::npos;
    };
    if (std::ranges::all_of(format.evidence, shown)) return &format;
  }
  return nullptr;
}

const ToolFormat* FindToolFormat(std::string_view name) { return FindByName(ToolFormats(), name); }

std::string ToolFormatNames() { return JoinNames(ToolFormats()); }

}  // namespace braid
