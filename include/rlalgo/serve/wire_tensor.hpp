// A tensor as /http_update_weights/ brings it: {"name", "dtype": "torch.bfloat16", "shape": [2, 2], "data": base64}.
//
// Bytes are little endian, in C order. Which numbers they are follows from their count: 4 bytes an element are float32;
// 2 are float16 whatever "dtype" says, as axolotl's clients send bfloat16 weights, unless "wire_dtype": "bfloat16" says
// that they are what they seem. The values are then rounded to "dtype", with or without "torch." before it.
//
// Errors (status 400): [rlalgo.serve.19] bytes that are no base64, of another count than the shape asks for, or of no
// known type; those of fields.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/serve/fields.hpp>

namespace rlalgo::serve {

[[nodiscard]] model::NamedTensor read_wire_tensor(const Json& object, const std::string& place);

// The parts that say what is sent: "torch.bfloat16" or "bfloat16", and [2, 2].
[[nodiscard]] at::ScalarType wire_type(const std::string& name, const std::string& place);
[[nodiscard]] std::vector<std::int64_t> wire_shape(const Json& list, const std::string& place);

// The same of parts that lie apart; nothing of them is copied but the bytes. `sent_as`: the type of the bytes; empty:
// it follows from their count.
struct WireTensor {
  std::string name, type, sent_as;
  const Json& shape;
  const Json& data;
};
[[nodiscard]] model::NamedTensor read_wire_tensor(const WireTensor& tensor, const std::string& place);

}  // namespace rlalgo::serve

#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/wire_tensor_impl.hpp>
#endif
