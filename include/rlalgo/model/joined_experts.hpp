// Files that have one tensor for the maps of all experts, and the tensors of each expert that this library has.
//
//   transformers 5, as its modules have them   P mlp.experts.gate_up_proj [E, 2I, H], the rows of gate, then those of up
//                                              P mlp.experts.down_proj [E, H, I]
//   gpt-oss                                    P mlp.experts.gate_up_proj [E, H, 2I], a column of gate and one of up in turn
//                                              P mlp.experts.down_proj [E, I, H]; both with …_bias [E, 2I], [E, H]
//   gpt-oss in MXFP4                           …_blocks [E, R, C/32, 16] and …_scales [E, R, C/32] of bytes for a matrix [R, C], which is
//                                              [2I, H] or [H, I]: nibble n of block b stands for the element 32b + n, the low
//                                              one of a byte first; element = F[nibble] · 2^(scale − 127)
//
// with P model.layers.N., and F = 0, ½, 1, 1½, 2, 3, 4, 6, and the same below zero (the format E2M1).
// Source: OCP Microscaling Formats 1.0, sections 5.3.3 and 6.3; gpt-oss, arXiv 2508.10925, section 2.1; transformers 5.23
// (integrations/mxfp4.py). Elements are exact in bfloat16.
//
// Errors: [rlalgo.model.21] a tensor of a wrong shape.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

// A tensor of one expert that is a part of what files have.
struct ExpertPart {
  std::string name;                  // here
  std::vector<std::string> sources;  // names in the files: one, or blocks and scales
  std::vector<std::int64_t> shape;
  at::ScalarType dtype;
  std::function<Tensor()> make;  // perhaps a view of the file's memory
};

// What such files are asked for.
struct JoinedSource {
  std::function<bool(const std::string&)> contains;
  std::function<Tensor(const std::string&)> map;  // in the memory of the file
};

// The parts of every joined tensor that the files have. `where` names them in errors.
[[nodiscard]] std::vector<ExpertPart> parts_of_joined(const DecoderConfig& config, const JoinedSource& files,
                                                      const std::string& where);

// Names that other programs give to a router beside joined experts → those here.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> renamed_routers(const DecoderConfig& config);

// Expert e of blocks [E, R, G, 16] and scales [E, R, G]: [R, 32·G] float32.
[[nodiscard]] Tensor from_mxfp4(const Tensor& blocks, const Tensor& scales, std::int64_t expert);

// The shape of a joined tensor of that name, of 0 dimensions where the name is not that of one.
[[nodiscard]] std::vector<std::int64_t> joined_shape(const DecoderConfig& config, const std::string& name);

// `tensors` with those of each expert in the place of joined ones.
[[nodiscard]] std::vector<NamedTensor> without_joined_experts(const DecoderConfig& config,
                                                              const std::vector<NamedTensor>& tensors);

// `tensors` as files have them: where a family's files join experts (ExpertSpec::joined_files), one tensor stands for the maps of all;
// where not all of them are there, they stay as they are.
[[nodiscard]] PendingTensors with_joined_experts(const DecoderConfig& config, PendingTensors tensors);

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/joined_experts_impl.hpp>
#endif
