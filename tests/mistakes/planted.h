// Which mistake of a table is planted, by its row; the copies that plant.py makes ask.
#pragma once

namespace braid {

constexpr int kNoMistake = -1;

inline int planted_mistake = kNoMistake;  // set before the threads that ask start
inline void Plant(int mistake) { planted_mistake = mistake; }
inline bool Planted(int mistake) { return planted_mistake == mistake; }

}  // namespace braid
