// Definitions of quantised_files.hpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/model/quantised_files.hpp>
#include <rlalgo/model/quantised_weight.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::model {

RLALGO_INLINE QuantisedFiles::QuantisedFiles(const CheckpointFiles& files) : files_(files) {
  const auto without = [](const std::string& name, std::string_view end) {
    return name.substr(0, name.size() - end.size());
  };
  for (const auto& [name, place] : files.places()) {
    for (const WeightCode code : {WeightCode::nf4, WeightCode::fp4}) {
      const std::string end = ".quant_state.bitsandbytes__" + std::string(name_of(code));
      if (name.ends_with(end)) states_[without(name, end)] = {code, name};
    }
    if (name.ends_with(".SCB")) states_[without(name, "SCB") + "weight"] = {WeightCode::int8, name};
  }
  for (const auto& [weight, state] : states_)
    if (!files.contains(weight)) fail(weight, "no " + weight + " beside " + state.object, weight);
}

RLALGO_INLINE std::set<std::string> QuantisedFiles::parts(const std::string& weight) const {
  std::set<std::string> out;
  for (const char* end : {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"})
    if (files_.contains(weight + end)) out.insert(weight + end);
  const std::string format = weight.substr(0, weight.rfind('.')) + ".weight_format";
  if (files_.contains(format)) out.insert(format);
  out.insert(states_.at(weight).object);
  return out;
}

RLALGO_INLINE void QuantisedFiles::fail(const std::string& weight, const std::string& found,
                                        const std::string& expected) const {
  const auto place = files_.places().find(weight);
  core::raise(
      "model", 49,
      {.what = "a weight that bitsandbytes quantised cannot be read",
       .found = found,
       .expected = expected,
       .where = (place == files_.places().end() ? "" : place->second.file->path().string() + ", ") + "tensor " + weight,
       .remedy = "save the model with bitsandbytes again, or take its unquantised checkpoint"});
}

RLALGO_INLINE Tensor QuantisedFiles::numbers(const std::string& weight, const std::string& part, at::ScalarType type,
                                             std::int64_t count) const {
  const std::string name = weight + part;
  if (!files_.contains(name)) fail(weight, "no " + name, name);
  Tensor out = files_.read(name);
  const bool floats = type == at::kFloat && (out.scalar_type() == at::kHalf || out.scalar_type() == at::kBFloat16);
  if (floats) out = out.to(at::kFloat);
  if (out.scalar_type() != type || out.numel() != count)
    fail(
        weight,
        std::string(c10::toString(out.scalar_type())) + " with " + std::to_string(out.numel()) + " elements in " + name,
        std::string(c10::toString(type)) + " with " + std::to_string(count));
  return out.reshape({-1}).contiguous();
}

RLALGO_INLINE QuantisedWeight QuantisedFiles::read(const std::string& weight, const std::vector<std::int64_t>& shape,
                                                   at::ScalarType compute) const {
  const State& state = states_.at(weight);
  const auto place = files_.places().at(weight);
  if (shape.size() != 2) fail(weight, "a quantised tensor", "a whole one where config.json has " + Json(shape).dump());
  const std::int64_t rows = shape[0], columns = shape[1], n = rows * columns;
  if (state.code == WeightCode::int8) {
    const std::string path = weight.substr(0, weight.rfind('.'));
    if (place.entry->shape != shape || place.entry->dtype != at::kChar)
      fail(weight, std::string(c10::toString(place.entry->dtype)) + " " + Json(place.entry->shape).dump(),
           "int8 " + Json(shape).dump() + " by config.json");
    if (const std::string format = path + ".weight_format"; files_.contains(format))
      if (const Tensor kind = files_.read(format); kind.numel() != 1 || kind.to(at::kLong).item<std::int64_t>() != 0)
        fail(weight, "another weight_format than 0", "codes by rows");
    const Tensor scales = numbers(path, ".SCB", at::kFloat, rows);
    return {state.code, rows, columns, 64, files_.read(weight).contiguous(), scales, {}, compute};
  }
  const Tensor object = files_.read(state.object).contiguous();
  if (object.scalar_type() != at::kByte) fail(weight, "no bytes in " + state.object, "a JSON object");
  const std::string text(reinterpret_cast<const char*>(object.const_data_ptr()),
                         static_cast<std::size_t>(object.numel()));
  const auto [json, problem] = core::read_json<Json>(text);
  if (!problem.text.empty() || !json.is_object())
    fail(weight, problem.text.empty() ? text : problem.text, "a JSON object");
  const auto whole = [&](const char* key, std::int64_t least) {
    const auto at = json.find(key);
    if (at == json.end() || !at->is_number_integer() || at->template get<std::int64_t>() < least)
      fail(weight, std::string(key) + " " + (at == json.end() ? "missing" : at->dump()), "a whole number");
    return at->template get<std::int64_t>();
  };
  const std::int64_t block = whole("blocksize", 2);
  if (block % 2 != 0) fail(weight, "blocksize " + std::to_string(block), "an even one");
  if (json.value("quant_type", Json()) != Json(std::string(name_of(state.code))))
    fail(weight, "quant_type " + json.value("quant_type", Json()).dump(), std::string(name_of(state.code)));
  if (json.value("shape", Json()) != Json(shape))
    fail(weight, "shape " + json.value("shape", Json()).dump(), Json(shape).dump() + " by config.json");
  const Tensor stored = files_.read(weight).contiguous().reshape({-1}), codes = stored.view(at::kByte);
  if (codes.numel() != (n + 1) / 2)
    fail(weight, std::to_string(codes.numel()) + " bytes", std::to_string((n + 1) / 2) + " for " + Json(shape).dump());
  const Tensor map = numbers(weight, ".quant_map", at::kFloat, 16);
  const auto values = values_of(state.code);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!(std::abs(map.const_data_ptr<float>()[i] - values[i]) <= 1e-6F))
      fail(weight, std::to_string(map.const_data_ptr<float>()[i]) + " as number " + std::to_string(i) + " of quant_map",
           std::to_string(values[i]));
  const std::int64_t blocks = (n + block - 1) / block;
  QuantisedWeight::Nested nested;
  if (!files_.contains(weight + ".nested_absmax"))
    return {state.code, rows, columns, block, codes, numbers(weight, ".absmax", at::kFloat, blocks), {}, compute};
  nested.group = whole("nested_blocksize", 1);
  nested.scales = numbers(weight, ".nested_absmax", at::kFloat, (blocks + nested.group - 1) / nested.group);
  nested.values = numbers(weight, ".nested_quant_map", at::kFloat, 256);
  const auto offset = json.find("nested_offset");
  if (offset == json.end() || !offset->is_number()) fail(weight, "no nested_offset", "a number");
  nested.offset = static_cast<float>(offset->template get<double>());
  return {state.code,        rows,   columns, block, codes, numbers(weight, ".absmax", at::kByte, blocks),
          std::move(nested), compute};
}

}  // namespace rlalgo::model
