// Files of tests/configs, embedded by src/model/module.cmake.
#include "model/families/published.h"

namespace braid {

extern const std::string_view kConfig_deepseek_v3, kConfig_kimi_linear_48b_a3b, kConfig_ling_2_6_1t,
    kConfig_ling_2_6_flash, kConfig_ling_3_flash, kConfig_ling_3_tiny, kConfig_qwen3_5_35b_a3b,
    kConfig_qwen3_5_397b_a17b, kConfig_qwen3_next_80b_a3b;

namespace {

constexpr PublishedConfig kPublished[] = {
    {"qwen3_5_35b_a3b", &kConfig_qwen3_5_35b_a3b},
    {"qwen3_5_397b_a17b", &kConfig_qwen3_5_397b_a17b},
    {"qwen3_next_80b_a3b", &kConfig_qwen3_next_80b_a3b},
    {"kimi_linear_48b_a3b", &kConfig_kimi_linear_48b_a3b},
    {"ling_2_6_1t", &kConfig_ling_2_6_1t},
    {"ling_2_6_flash", &kConfig_ling_2_6_flash},
    {"ling_3_tiny", &kConfig_ling_3_tiny},
    {"ling_3_flash", &kConfig_ling_3_flash},
    {"deepseek_v3", &kConfig_deepseek_v3},
};

}  // namespace

std::span<const PublishedConfig> PublishedConfigs() { return kPublished; }

}  // namespace braid
