// A model's config.json. Keys are read from `text_config` if there is one, then from the root.
// Every key belongs to one of three classes: read by the family, known to be harmless, or refused,
// because an unknown key may change the mathematics. Getters never fail: they note the problem and
// return a value in range, so that Finish() lists all problems at once. One thread.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace braid {

struct IntRange {
  int64_t low = 0;
  int64_t high = 0;
};

struct NumberRange {
  double low = 0;
  double high = 0;
};

class HfConfig {
 public:
  // Reads `directory`/config.json, at most 1 MiB.
  static Result<HfConfig> Read(const std::string& directory);
  // `source` names the text in messages.
  static Result<HfConfig> Parse(std::string_view text, const std::string& source);

  const std::string& architecture() const { return architecture_; }

  // A key may be a path, "rope_parameters.rope_theta". Null counts as absent.
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  // Required values, and values with a default for when the key is absent.
  int32_t Int(std::string_view key, IntRange range);
  int32_t IntOr(std::string_view key, IntRange range, int32_t otherwise);
  double Number(std::string_view key, NumberRange range);
  double NumberOr(std::string_view key, NumberRange range, double otherwise);
  bool BoolOr(std::string_view key, bool otherwise);
  // One of `allowed`, whose first is the default.
  std::string Word(std::string_view key, std::initializer_list<std::string_view> allowed);
  // `count` words, each one of `allowed`; empty when the key is absent.
  std::vector<std::string> Words(std::string_view key, int64_t count,
                                 std::initializer_list<std::string_view> allowed);
  // Empty when the key is absent.
  std::vector<int32_t> Ints(std::string_view key, IntRange range);

  // The key's object, whose members the caller judges; null when absent or not an object.
  const json::object* Object(std::string_view key);

  // At least `count` numbers, null counting as 0; empty when the key is absent.
  std::vector<double> Numbers(std::string_view key, int64_t count, NumberRange range);

  // The key must be absent, null, false, 0 or empty; `meaning` says what it would ask for.
  void MustBeNeutral(std::string_view key, std::string_view meaning);
  // Keys without effect here, whatever their values.
  void Ignore(std::initializer_list<std::string_view> keys);
  // Notes a problem of a key that its own range does not show.
  void Fail(std::string_view key, const std::string& problem);

  // All problems so far, and every key that is neither used nor harmless.
  Status Finish() const;

 private:
  const json::value* Find(std::string_view key) const;
  const json::value* Use(std::string_view key);  // Find, and the key counts as understood
  int32_t IntOf(std::string_view key, const json::value& value, IntRange range);
  double NumberOf(std::string_view key, const json::value& value, NumberRange range);
  void Wrong(std::string_view key, const json::value& found, const std::string& right);
  void FindUnknown(const json::object& object, const std::string& path,
                   std::vector<std::string>& problems) const;

  std::string source_;
  json::object root_;
  std::string architecture_;
  std::set<std::string, std::less<>> used_;
  std::vector<std::string> problems_;
  std::string first_field_;
};

}  // namespace braid
