// Weights that bitsandbytes has quantised, in the files of a checkpoint.
//
//   4 bits   P.weight [⌈n/2⌉, 1] codes, in bytes or in numbers of any dtype whose bytes they are; P.weight.absmax [blocks] scales;
//            P.weight.quant_map [16]; P.weight.quant_state.bitsandbytes__nf4 (or __fp4): bytes of a JSON object with quant_type,
//            blocksize, dtype, shape; nested: absmax in bytes, P.weight.nested_absmax, P.weight.nested_quant_map [256], and
//            nested_blocksize, nested_offset in the object
//   8 bits   P.weight [out, in] int8, P.SCB [out] scales, P.weight_format: 0, by rows
//
// Source: bitsandbytes 0.50, QuantState.as_dict(packed=True) and Linear8bitLt; quantised_weight.hpp says what they stand for.
//
// Errors: [rlalgo.model.49] such a tensor or its object is malformed, or they do not fit each other.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/model/quantised_weight.hpp>

namespace rlalgo::model {

class QuantisedFiles {
 public:
  // `files` must outlive this.
  explicit QuantisedFiles(const CheckpointFiles& files);

  [[nodiscard]] bool empty() const { return states_.empty(); }
  // Whether the weight of this name (P.weight) is quantised.
  [[nodiscard]] bool contains(const std::string& weight) const { return states_.contains(weight); }
  // Names of the tensors beside the weight itself.
  [[nodiscard]] std::set<std::string> parts(const std::string& weight) const;
  // Of `shape` [out, in] by config.json, on the CPU.
  [[nodiscard]] QuantisedWeight read(const std::string& weight, const std::vector<std::int64_t>& shape,
                                     at::ScalarType compute) const;

 private:
  struct State {
    WeightCode code;
    std::string object;  // name of the tensor with the JSON; of 8 bits the scales'
  };

  [[noreturn]] void fail(const std::string& weight, const std::string& found, const std::string& expected) const;
  [[nodiscard]] Tensor numbers(const std::string& weight, const std::string& part, at::ScalarType type,
                               std::int64_t count) const;

  const CheckpointFiles& files_;
  std::map<std::string, State> states_;  // by the name of the weight
};

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/quantised_files_impl.hpp>
#endif
