// Book-keeping of candidate choices.
#include "ops/op.h"

#include <utility>

namespace braid::ops {

void OpChoices::Note(std::string_view op, std::string_view taken,
                     std::vector<std::string> refused) {
  for (const Choice& choice : choices) {
    if (choice.op == op && choice.taken == taken) return;
  }
  choices.push_back({std::string(op), std::string(taken), std::move(refused)});
}

}  // namespace braid::ops
