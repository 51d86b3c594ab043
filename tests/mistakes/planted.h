// Which mistake of a table is planted, by its row; the copies that plant.py makes ask. One thread.
#pragma once

namespace braid {

constexpr int kNoMistake = -1;
void Plant(int mistake);
bool Planted(int mistake);

}  // namespace braid
