// Biases of a router's selection by which tokens choose some experts more often than others: as by
// Zipf's law, in an order of experts that each layer has of its own. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/spec.h"

namespace braid {

// The share of tokens that choose the expert of each place, so many different ones a token: drawn
// one after the other, with odds of (place + 1)^-skew.
std::vector<double> ChosenShares(int32_t experts, int32_t top_k, double skew);

// The bias of each expert for these shares, if the router's logits are of deviation `spread`.
std::vector<float> BiasOfShares(const std::vector<double>& shares, double spread);

// By the tensor's name. kInvalid unless every router has a bias, which is of sigmoid scores, and
// chooses among all experts.
Result<std::map<std::string, std::vector<float>>> SkewedBiases(const ModelSpec& spec, double skew,
                                                               uint64_t seed);

}  // namespace braid
