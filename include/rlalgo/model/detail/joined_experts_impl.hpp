// Definitions of joined_experts.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/detail/expert_maps.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/joined_experts.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::model {

namespace detail {

inline std::string expert_path(const std::string& prefix, const ExpertSpec& e, std::int64_t expert,
                               std::string_view map) {
  return prefix + std::string(e.block) + ".experts." + std::to_string(expert) + "." + std::string(map);
}

[[noreturn]] inline void raise_joined(const std::string& name, const std::vector<std::int64_t>& found,
                                      const std::vector<std::int64_t>& expected, const std::string& where) {
  core::raise("model", 21,
              {.what = "a tensor has a wrong shape",
               .found = Json(found).dump(),
               .expected = Json(expected).dump() + " by config.json",
               .where = where + ", tensor " + name,
               .remedy = "config.json and the weights do not belong together"});
}

}  // namespace detail

RLALGO_INLINE Tensor from_mxfp4(const Tensor& blocks, const Tensor& scales, std::int64_t expert) {
  static constexpr std::array<float, 16> elements = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                                     -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
  const Tensor bytes = blocks.select(0, expert).contiguous(), powers = scales.select(0, expert).contiguous();
  const std::int64_t rows = bytes.size(0), groups = bytes.size(1), half = bytes.size(2);
  Tensor out = tensor::empty({rows, groups * half * 2}, at::TensorOptions().dtype(at::kFloat));
  const auto* from = bytes.const_data_ptr<std::uint8_t>();
  const auto* power = powers.const_data_ptr<std::uint8_t>();
  auto* to = out.mutable_data_ptr<float>();
  for (std::int64_t group = 0; group < rows * groups; ++group)
    for (std::int64_t i = 0; i < half; ++i, ++from)
      for (const unsigned nibble : {*from & 0x0FU, unsigned{*from} >> 4U})
        *to++ = std::ldexp(elements[nibble], static_cast<int>(power[group]) - 127);
  return out;
}

RLALGO_INLINE std::vector<ExpertPart> parts_of_joined(const DecoderConfig& config, const JoinedSource& files,
                                                      const std::string& where) {
  std::vector<ExpertPart> out;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const ExpertSpec& e = config.spec(layer).experts;
    if (e.count == 0) continue;
    const std::string prefix = layer_prefix(static_cast<std::size_t>(layer)), base = prefix + "mlp.experts.";
    for (const detail::ExpertMap& map : detail::expert_maps(e, config.hidden_size)) {
      const std::string joined = base + std::string(map.joined);
      const auto add = [&](std::string_view end, std::vector<std::string> sources, at::ScalarType dtype,
                           std::vector<std::int64_t> shape, const std::function<Tensor(std::int64_t)>& of_expert) {
        for (std::int64_t i = 0; i < e.count; ++i)
          out.push_back({.name = detail::expert_path(prefix, e, i, map.name) + std::string(end),
                         .sources = sources,
                         .shape = shape,
                         .dtype = dtype,
                         .make = [of_expert, i, rows = map.rows] { return detail::rows_of(of_expert(i), rows); }});
      };
      const auto mapped = [&](const std::string& name, const std::vector<std::int64_t>& expected) {
        const Tensor found = files.map(name);
        if (found.sizes().vec() != expected) detail::raise_joined(name, found.sizes().vec(), expected, where);
        return found;
      };
      const std::vector<std::int64_t> shape = {map.rows.count, map.columns};
      if (files.contains(joined)) {
        const Tensor all = e.joined_files ? mapped(joined, {e.count, map.columns, map.all_rows}).transpose(1, 2)
                                          : mapped(joined, {e.count, map.all_rows, map.columns});
        add(".weight", {joined}, all.scalar_type(), shape, [all](std::int64_t i) { return all.select(0, i); });
      } else if (e.joined_files && files.contains(joined + "_blocks") && files.contains(joined + "_scales")) {
        if (map.columns % 32 != 0)
          detail::raise_joined(joined + "_blocks", {map.columns}, {map.columns / 32 * 32}, where);
        const std::int64_t groups = map.columns / 32;
        const Tensor blocks = mapped(joined + "_blocks", {e.count, map.all_rows, groups, 16}),
                     scales = mapped(joined + "_scales", {e.count, map.all_rows, groups});
        add(".weight", {joined + "_blocks", joined + "_scales"}, at::kBFloat16, shape,
            [blocks, scales](std::int64_t i) { return from_mxfp4(blocks, scales, i); });
      }
      if (e.bias && files.contains(joined + "_bias")) {
        const Tensor all = mapped(joined + "_bias", {e.count, map.all_rows});
        add(".bias", {joined + "_bias"}, all.scalar_type(), {map.rows.count},
            [all](std::int64_t i) { return all.select(0, i); });
      }
    }
  }
  return out;
}

RLALGO_INLINE std::vector<std::pair<std::string, std::string>> renamed_routers(const DecoderConfig& config) {
  std::vector<std::pair<std::string, std::string>> out;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const ExpertSpec& e = config.spec(layer).experts;
    const std::string prefix = layer_prefix(static_cast<std::size_t>(layer));
    if (e.count > 0 && e.block != "mlp")
      out.emplace_back(prefix + "mlp.gate.weight",
                       prefix + std::string(e.block) + "." + std::string(e.router) + ".weight");
  }
  return out;
}

RLALGO_INLINE std::vector<std::int64_t> joined_shape(const DecoderConfig& config, const std::string& name) {
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const ExpertSpec& e = config.spec(layer).experts;
    const std::string base = layer_prefix(static_cast<std::size_t>(layer)) + "mlp.experts.";
    if (e.count == 0 || !name.starts_with(base)) continue;
    for (const detail::ExpertMap& map : detail::expert_maps(e, config.hidden_size)) {
      const std::string joined = base + std::string(map.joined);
      if (name == joined && e.joined_files) return {e.count, map.columns, map.all_rows};
      if (name == joined) return {e.count, map.all_rows, map.columns};
      if (name == joined + "_bias" && e.bias) return {e.count, map.all_rows};
    }
  }
  return {};
}

RLALGO_INLINE std::vector<NamedTensor> without_joined_experts(const DecoderConfig& config,
                                                              const std::vector<NamedTensor>& tensors) {
  std::map<std::string, Tensor> joined;
  std::vector<NamedTensor> out;
  for (const auto& [name, value] : tensors)
    if (joined_shape(config, name).empty())
      out.emplace_back(name, value);
    else
      joined.emplace(name, value);
  if (joined.empty()) return out;
  const JoinedSource source{[&](const std::string& name) { return joined.contains(name); },
                            [&](const std::string& name) { return joined.at(name); }};
  for (const ExpertPart& part : parts_of_joined(config, source, "the update"))
    out.emplace_back(part.name, part.make().contiguous());
  return out;
}

RLALGO_INLINE PendingTensors with_joined_experts(const DecoderConfig& config, PendingTensors tensors) {
  std::map<std::string, std::size_t> at;
  for (std::size_t i = 0; i < tensors.size(); ++i) at.emplace(tensors[i].name, i);
  std::vector<bool> gone(tensors.size(), false);
  std::map<std::size_t, PendingTensor> joined;  // in the place of the first of its parts
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const ExpertSpec& e = config.spec(layer).experts;
    if (e.count == 0 || !e.joined_files) continue;
    const std::string prefix = layer_prefix(static_cast<std::size_t>(layer));
    struct Piece {
      std::function<Tensor()> make;
      std::int64_t expert;
      detail::ExpertRows rows;
    };
    std::map<std::string, std::vector<Piece>> pieces;
    std::map<std::string, PendingTensor> made;
    std::map<std::string, std::vector<std::size_t>> places;
    std::map<std::string, std::int64_t> filled;  // rows of all experts
    for (const detail::ExpertMap& map : detail::expert_maps(e, config.hidden_size))
      for (const char* end : {".weight", ".bias"})
        for (std::int64_t i = 0; i < e.count; ++i) {
          const auto found = at.find(detail::expert_path(prefix, e, i, map.name) + end);
          if (found == at.end()) continue;
          const PendingTensor& part = tensors[found->second];
          const bool bias = end == std::string_view(".bias");
          const std::string name = prefix + "mlp.experts." + std::string(map.joined) + (bias ? "_bias" : "");
          places[name].push_back(found->second);
          filled[name] += map.rows.count;
          pieces[name].push_back({part.make, i, map.rows});
          const std::vector<std::int64_t> shape = bias ? std::vector<std::int64_t>{e.count, map.all_rows}
                                                       : std::vector<std::int64_t>{e.count, map.columns, map.all_rows};
          made.try_emplace(name, PendingTensor{name, part.dtype, shape, {}});
        }
    for (auto& [name, whole] : made) {
      if (filled[name] != e.count * whole.shape.back()) continue;
      for (const std::size_t place : places[name]) gone[place] = true;
      whole.make = [pieces = std::move(pieces[name]), shape = whole.shape, dtype = whole.dtype] {
        Tensor out = tensor::empty(shape, at::TensorOptions().dtype(dtype));
        const Tensor maps = shape.size() == 3 ? out.transpose(1, 2) : out;
        for (const Piece& one : pieces) detail::rows_of(maps.select(0, one.expert), one.rows).copy_(one.make());
        return out;
      };
      joined.emplace(*std::min_element(places[name].begin(), places[name].end()), std::move(whole));
    }
  }
  if (joined.empty()) return tensors;
  PendingTensors out;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (const auto whole = joined.find(i); whole != joined.end())
      out.push_back(std::move(whole->second));
    else if (!gone[i])
      out.push_back(std::move(tensors[i]));
  }
  return out;
}

}  // namespace rlalgo::model
