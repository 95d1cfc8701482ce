// Definitions of wire_tensor.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/core/base64.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/serve/detail/json_value.hpp>
#include <rlalgo/serve/refusal.hpp>
#include <rlalgo/serve/wire_tensor.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::serve {

namespace detail {

inline std::optional<at::ScalarType> floating_type(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "float32" || name == "float") return at::kFloat;
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "float16" || name == "half") return at::kHalf;
  return std::nullopt;
}

}  // namespace detail

RLALGO_INLINE model::NamedTensor read_wire_tensor(const Json& object, const std::string& place) {
  Fields fields(object, place);
  const std::string name = fields.required_text("name"), type = fields.required_text("dtype"),
                    sent_as = fields.text("wire_dtype").value_or("");
  return read_wire_tensor(WireTensor{name, type, sent_as, fields.required("shape"), fields.required("data")}, place);
}

RLALGO_INLINE at::ScalarType wire_type(const std::string& name, const std::string& place) {
  const auto type = detail::floating_type(name);
  if (!type)
    refuse_request(400, 19,
                   {.what = "a tensor has a type that is not read",
                    .found = name,
                    .expected = "float32, bfloat16 or float16",
                    .where = place},
                   place);
  return *type;
}

RLALGO_INLINE std::vector<std::int64_t> wire_shape(const Json& list, const std::string& place) {
  if (!list.is_array()) detail::refuse_type(place + ".shape", list, "a list of numbers");
  constexpr std::int64_t most = std::int64_t{1} << 32U;
  std::vector<std::int64_t> shape;
  std::int64_t count = 1;
  for (const Json& one : list) {
    const auto size = detail::whole(one);
    if (!size || *size < 0 || *size > most || (count > 0 && *size > most / count))
      refuse_request(400, 19,
                     {.what = "a tensor has no such shape",
                      .found = detail::quoted(list),
                      .expected = "sizes of at least 0",
                      .where = place},
                     place);
    shape.push_back(*size);
    count *= *size;
  }
  return shape;
}

RLALGO_INLINE model::NamedTensor read_wire_tensor(const WireTensor& wire, const std::string& place) {
  const std::string& name = wire.name;
  const std::string named = place + ", " + name;
  const auto refuse = [&](const std::string& what, const std::string& found, const std::string& expected) {
    refuse_request(400, 19, {.what = what, .found = found, .expected = expected, .where = named}, place);
  };
  const at::ScalarType type = wire_type(wire.type, named);
  const std::vector<std::int64_t> shape = wire_shape(wire.shape, place);
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  if (!wire.data.is_string()) detail::refuse_type(place + ".data", wire.data, "base64");
  const auto bytes = core::from_base64(wire.data.get_ref<const std::string&>());
  if (!bytes) refuse("a tensor's data is no base64", "another character", "A–Z, a–z, 0–9, + and /");
  const auto elements = static_cast<std::size_t>(count);
  at::ScalarType sent = at::kFloat;
  if (!wire.sent_as.empty())
    sent = wire_type(wire.sent_as, named);
  else if (bytes->size() == elements * 2)
    sent = at::kHalf;
  const std::size_t expected = elements * (sent == at::kFloat ? 4 : 2);
  if (bytes->size() != expected)
    refuse("a tensor has another number of bytes than its shape", std::to_string(bytes->size()),
           std::to_string(elements) + " elements of 2 or 4 bytes");
  tensor::Tensor out = tensor::empty(shape, at::TensorOptions().dtype(sent));
  if (expected > 0) std::memcpy(out.mutable_data_ptr(), bytes->data(), expected);
  return {name, out.to(type).to(at::kFloat)};
}

}  // namespace rlalgo::serve
