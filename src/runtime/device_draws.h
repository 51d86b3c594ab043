// Which distributions of a step a device samples and describes by itself, and how its records
// become choices and log-probabilities. The others' logits come back to the host, which changes
// them (bias, penalties, masks) before it chooses.
#pragma once

#include "ops/vulkan/sample.h"
#include "runtime/batch_rows.h"
#include "runtime/sampler.h"
#include "runtime/slots.h"

namespace braid {

bool DeviceDraws(const Slot& slot, const BatchRows::Wanted& wanted);

// For the device; one that asks for nothing where the host draws.
ops::gpu::DeviceDraw DrawOf(const Slot& slot, const BatchRows::Wanted& wanted);

// Of a draft after the slot's first `length` tokens. Penalties, bias and masks have no say: they
// cost a draft that is wrong at most.
ops::gpu::DeviceDraw DraftDrawOf(const Slot& slot, int32_t length);

// The token that follows a position of the prompt, or -1.
TokenId FollowingToken(const Slot& slot, int32_t position);

// What Sampler::Describe and Sampler::Choose would say.
TokenLogprob DescriptionOf(const ops::gpu::DeviceDrawn& drawn, TokenId token, float logit,
                           int32_t top);
void TakeChoice(const ops::gpu::DeviceDrawn& drawn, const Slot& slot,
                const BatchRows::Wanted& wanted, Choice& choice);

}  // namespace braid
