// How each family's models write tool calls. Sources: the chat templates that the models' authors
// publish with their checkpoints (Qwen2.5, Qwen3-Coder and Qwen3.5, GLM-4.5, Ling and Ring,
// Kimi-K2, DeepSeek-V3 and V3.1).
#include "text/answer/tool_format.h"

namespace braid {
namespace {

using Body = ToolFormat::Body;

constexpr std::string_view kDeepseekOpen = "<｜tool▁call▁begin｜>";
constexpr std::string_view kDeepseekClose = "<｜tool▁call▁end｜>";
constexpr std::string_view kDeepseekSeparator = "<｜tool▁sep｜>";
constexpr std::array<std::string_view, 2> kDeepseekSection = {"<｜tool▁calls▁begin｜>",
                                                              "<｜tool▁calls▁end｜>"};

constexpr ToolFormat kToolFormats[] = {
    {.name = "qwen3_xml",
     .aliases = "qwen3_coder",
     .evidence = {"<function=", "<parameter="},
     .body = Body::kParameters,
     .open = {"<tool_call>", "<function="},
     .close = "</tool_call>",
     .section = {},
     .name_begin = "<function=",
     .name_end = ">",
     .key_begin = "<parameter=",
     .key_end = ">",
     .value_end = "</parameter>",
     .body_end = "</function>",
     .value_newlines = true,
     .write_begin = "<tool_call>\n<function={NAME}>\n",
     .write_end = "</function>\n</tool_call>",
     .write_between = "\n"},
    {.name = "glm",
     .aliases = "glm45 glm47 ling3 ring",
     .evidence = {"<arg_key>", "<arg_value>"},
     .body = Body::kParameters,
     .open = {"<tool_call>", ""},
     .close = "</tool_call>",
     .section = {},
     .key_begin = "<arg_key>",
     .key_end = "</arg_key>",
     .value_begin = "<arg_value>",
     .value_end = "</arg_value>",
     .write_begin = "<tool_call>{NAME}\n",
     .write_end = "</tool_call>",
     .write_between = "\n"},
    {.name = "kimi",
     .aliases = "kimi_k2",
     .evidence = {"<|tool_call_begin|>", "<|tool_call_argument_begin|>"},
     .body = Body::kJsonArguments,
     .open = {"<|tool_call_begin|>", ""},
     .close = "<|tool_call_end|>",
     .section = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
     .name_prefix = "functions.",
     .name_end = "<|tool_call_argument_begin|>",
     .id_in_header = true,
     .write_begin = "<|tool_call_begin|>functions.{NAME}:{N}<|tool_call_argument_begin|>",
     .write_end = "<|tool_call_end|>"},
    {.name = "deepseek_v3",
     .aliases = "deepseekv3",
     .evidence = {kDeepseekOpen, "```json"},
     .body = Body::kJsonArguments,
     .open = {kDeepseekOpen, ""},
     .close = kDeepseekClose,
     .section = kDeepseekSection,
     .name_prefix = "function<｜tool▁sep｜>",
     .name_end = "```json",
     .name_tag = kDeepseekSeparator,
     .write_begin = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{NAME}\n```json\n",
     .write_end = "\n```<｜tool▁call▁end｜>",
     .write_between = "\n"},
    {.name = "deepseek_v31",
     .aliases = "deepseekv31 deepseekv32",
     .evidence = {kDeepseekOpen, kDeepseekSeparator},
     .body = Body::kJsonArguments,
     .open = {kDeepseekOpen, ""},
     .close = kDeepseekClose,
     .section = kDeepseekSection,
     .name_end = kDeepseekSeparator,
     .write_begin = "<｜tool▁call▁begin｜>{NAME}<｜tool▁sep｜>",
     .write_end = "<｜tool▁call▁end｜>"},
    {.name = "hermes",
     .aliases = "qwen qwen25 qwen2_5 ling2",
     .evidence = {"<tool_call>", ""},
     .body = Body::kJsonCall,
     .open = {"<tool_call>", ""},
     .close = "</tool_call>",
     .section = {},
     .write_begin = "<tool_call>\n{\"name\": \"{NAME}\", \"arguments\": ",
     .write_end = "}\n</tool_call>",
     .write_between = "\n"},
};

}  // namespace

std::span<const ToolFormat> ToolFormats() { return kToolFormats; }

}  // namespace braid
