// An optimizer's state by name: whether what a checkpoint has is what the optimizer is made of.
#pragma once

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::optim::detail {

using NamedTensors = std::vector<std::pair<std::string, tensor::Tensor>>;

inline std::string described(const std::string& name, const tensor::Tensor& tensor) {
  std::ostringstream out;
  out << name << ' ' << tensor.sizes() << ' ' << tensor.scalar_type();
  return out.str();
}

// Raises [rlalgo.optim.1] unless `given` has the tensors of `own`, and no other, in shape and dtype.
inline void require_same_tensors(const NamedTensors& own, const std::map<std::string, tensor::Tensor>& given) {
  const auto misfit = [](const std::string& found, const std::string& expected) {
    core::raise("optim", 1,
                {.what = "the optimizer state does not fit the parameters",
                 .found = found,
                 .expected = expected,
                 .remedy = "resume with the model and the optimizer that the run was started with"});
  };
  for (const auto& [name, target] : own) {
    const auto found = given.find(name);
    if (found == given.end()) misfit("no tensor " + name, described(name, target));
    if (found->second.sizes() != target.sizes() || found->second.scalar_type() != target.scalar_type())
      misfit(described(name, found->second), described(name, target));
  }
  for (const auto& one : given)
    if (std::none_of(own.begin(), own.end(), [&](const auto& entry) { return entry.first == one.first; }))
      misfit("tensor " + one.first + " of no trained parameter", std::to_string(own.size()) + " tensors");
}

// Copies `given` into the tensors of `own`, which it must fit.
inline void load_tensors(const NamedTensors& own, const std::map<std::string, tensor::Tensor>& given) {
  require_same_tensors(own, given);
  for (const auto& [name, target] : own) target.copy_(given.at(name));
}

}  // namespace rlalgo::optim::detail
