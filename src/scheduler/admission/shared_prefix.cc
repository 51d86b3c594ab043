// One prefill for a prompt that several requests share: a request that waits and begins as one that
// runs follows it, and is not admitted before the blocks that both need are published. It then
// takes them over like any other prefix. A follower holds no blocks; others are admitted past it as
// long as a slot stays free for it. Engine thread.
//
// Nobody waits in vain or for ever: a leader runs and comes before its followers, so it is served
// no later than they would be, and of the same priority only those that came earlier can lead. It
// is no farther back than where the follower could start on its own. When it ends or loses its
// blocks, its followers stand in the queue again.
#include <algorithm>

#include "scheduler/admission/admission_control.h"

namespace braid {
namespace {

// How many tokens two sequences begin with alike, of the first `limit`.
int32_t CommonTokens(const Sequence& a, const Sequence& b, int32_t limit) {
  const int32_t prompts = std::min({a.prompt_tokens(), b.prompt_tokens(), limit});
  const auto begin = a.request.prompt.begin();
  const auto end = begin + prompts;
  auto count =
      static_cast<int32_t>(std::mismatch(begin, end, b.request.prompt.begin()).first - begin);
  if (count < prompts) return count;
  while (count < limit && a.token(count) == b.token(count)) ++count;
  return count;
}

}  // namespace

// How many of the tokens of `s` the leader is about to publish so that `s` can go on from there; 0
// when no more than is there already, or when the leader is behind.
int32_t AdmissionControl::Promised(const Sequence& leader, const Sequence& s,
                                   const PrefixMatch& match) const {
  // What it came with is all that it has in whole blocks before they are published. What comes from
  // another engine has one state, at its end.
  const int32_t last = leader.receives ? leader.arriving : leader.prefill_end;
  const int32_t end = last / kBlockTokens * kBlockTokens;
  const int32_t there = leader.blocks.published();
  if (!leader.reuses || there >= end) return 0;
  const bool space = leader.request.tenant == s.request.tenant &&
                     leader.request.cache_salt == s.request.cache_salt;
  if (!space) return 0;
  const int32_t limit = std::min({end, s.known_tokens() - 1, s.reuse_limit()});
  const int32_t tokens = CommonTokens(leader, s, limit) / kBlockTokens * kBlockTokens;
  // What comes to the leader from a tier need not be read twice.
  const int32_t at = std::max(leader.planned, leader.arriving);
  const bool brings = leader.arriving > 0 && tokens >= leader.arriving;
  if (tokens <= std::max(match.tokens, there) || tokens < match.stored + !brings) return 0;
  if (at < match.tokens) return 0;
  // Its next row leaves a state where it is told to, those in flight where the last of them ends.
  const int32_t planned = std::min(at, leader.prefill_end);
  const bool passed = has_state_ && tokens < planned / kBlockTokens * kBlockTokens;
  return passed ? 0 : tokens;
}

// The sequence of the rank that has most to give beyond what is `stored`.
AdmissionControl::Leader AdmissionControl::FindLeader(const Sequence& s, const DpRank& rank,
                                                      const PrefixMatch& match) const {
  Leader best;
  if (!MayReuse(s) || s.receives) return best;
  for (Sequence* running : rank.running) {
    if (!ByPriority{}(running, &s)) break;
    const int32_t tokens = Promised(*running, s, match);
    if (tokens > best.tokens) best = {running, tokens};
  }
  return best;
}

// Sets the sequence aside if somebody is about to publish more of it than is `stored`.
bool AdmissionControl::FollowAnyone(Sequence& s, DpRankId rank, const PrefixMatch& match) {
  const Leader leader = FindLeader(s, ranks_[rank], match);
  if (leader.sequence == nullptr) return false;
  queue_.SetAside(s);
  s.leader = leader.sequence;
  s.awaited = leader.tokens;
  leader.sequence->followers.push_back(&s);
  ++gates_[rank].following;
  return true;
}

void AdmissionControl::Unfollow(Sequence& s) {
  std::erase(s.leader->followers, &s);
  --gates_[s.leader->dp_rank].following;
  s.leader = nullptr;
  s.awaited = 0;
  queue_.PutBack(s);
}

// Those that wait for no more than `published` tokens can be admitted.
void AdmissionControl::WakeFollowers(Sequence& leader, int32_t published) {
  for (size_t i = leader.followers.size(); i-- > 0;) {
    if (leader.followers[i]->awaited <= published) Unfollow(*leader.followers[i]);
  }
}

}  // namespace braid
