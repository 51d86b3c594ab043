// Strong ids: two kinds of id never mix, and an id is never a pointer. -1 is "none".
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

namespace braid {

template <class Tag, class Rep = int32_t>
struct StrongId {
  Rep value = -1;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  constexpr bool valid() const { return value >= 0; }
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;
};

// Ids 0, 1, …, count - 1, to iterate over.
template <class Id>
class IdRange {
 public:
  explicit constexpr IdRange(size_t count) : count_(count) {}
  struct Iterator {
    using value_type = Id;
    using difference_type = std::ptrdiff_t;
    using pointer = const Id*;
    using reference = Id;
    using iterator_category = std::input_iterator_tag;
    size_t at;
    constexpr Id operator*() const { return Id(static_cast<decltype(Id::value)>(at)); }
    constexpr Iterator& operator++() {
      ++at;
      return *this;
    }
    constexpr Iterator operator++(int) { return {at++}; }
    constexpr bool operator==(const Iterator&) const = default;
  };
  constexpr Iterator begin() const { return {0}; }
  constexpr Iterator end() const { return {count_}; }

 private:
  size_t count_;
};

// A container of what an id counts: indexed by that kind of id and no other.
template <class Id, class T, class Container = std::vector<T>>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(size_t size) : items_(size) {}

  T& operator[](Id id) { return items_[static_cast<size_t>(id.value)]; }
  const T& operator[](Id id) const { return items_[static_cast<size_t>(id.value)]; }
  // The new item's id.
  template <class... Args>
  Id emplace_back(Args&&... args) {
    items_.emplace_back(std::forward<Args>(args)...);
    return Id(static_cast<decltype(Id::value)>(items_.size()) - 1);
  }

  IdRange<Id> ids() const { return IdRange<Id>(items_.size()); }
  size_t size() const { return items_.size(); }
  bool contains(Id id) const { return id.valid() && static_cast<size_t>(id.value) < size(); }
  void reserve(size_t size) { items_.reserve(size); }
  void resize(size_t size) { items_.resize(size); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  T& front() { return items_.front(); }

 private:
  Container items_;
};

using RequestId = StrongId<struct RequestTag, int64_t>;  // made by the server, unique per process
using SlotId = StrongId<struct SlotTag>;                 // a running sequence's row in the executor
using BlockId = StrongId<struct BlockTag>;    // a block of one cache group; 0 is the sink
using GroupId = StrongId<struct GroupTag>;    // index into the cache geometry's groups
using DpRankId = StrongId<struct DpRankTag>;  // a data-parallel rank
using StepId = StrongId<struct StepTag, int64_t>;
using MoveId = StrongId<struct MoveTag, int64_t>;  // a move of pages; made by the scheduler
using TokenId = int32_t;                           // a vocabulary index; arithmetic is useful

}  // namespace braid

template <class Tag, class Rep>
struct std::hash<braid::StrongId<Tag, Rep>> {
  size_t operator()(braid::StrongId<Tag, Rep> id) const { return std::hash<Rep>{}(id.value); }
};
