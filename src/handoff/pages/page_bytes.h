// The bytes of pages where the transport reads and writes them: the pages themselves, or copies of
// them. The partners' thread makes all calls; `Done` is called on it, inside the call or inside
// Progress.
#pragma once

#include <cstddef>
#include <functional>

#include "base/result.h"
#include "handoff/pages/engine_pages.h"

namespace braid::handoff {

class PageBytes {
 public:
  using Done = std::function<void(const Status&)>;
  virtual ~PageBytes() = default;

  // Whether they are copies: a page is read until its Fetch is done, and written from its Store on.
  // Otherwise the transport itself reads and writes the page.
  virtual bool copies() const = 0;
  // As many bytes as the page has; null: there is no room until some are given back.
  virtual std::byte* Take(const Page& page) = 0;
  virtual void Free(std::byte* bytes) = 0;
  // From the page to its bytes, and back. Copies are made in the order of the calls.
  virtual void Fetch(const Page& page, std::byte* bytes, Done done) = 0;
  virtual void Store(const Page& page, std::byte* bytes, Done done) = 0;
  virtual void Progress() = 0;
  // Returns when all copies are done; none begins afterwards.
  virtual void Finish() = 0;
};

// The pages themselves, which the host addresses.
class PagesInPlace final : public PageBytes {
 public:
  bool copies() const override { return false; }
  std::byte* Take(const Page& page) override { return page.data; }
  void Free(std::byte*) override {}
  void Fetch(const Page&, std::byte*, Done done) override { done({}); }
  void Store(const Page&, std::byte*, Done done) override { done({}); }
  void Progress() override {}
  void Finish() override {}
};

}  // namespace braid::handoff
