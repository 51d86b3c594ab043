// Which of the mistakes of kernels.toml is made; sources with mistakes in them ask. One thread.
#pragma once

namespace braid {

constexpr int kNoMistake = -1;
void Plant(int mistake);
bool Planted(int mistake);

}  // namespace braid
