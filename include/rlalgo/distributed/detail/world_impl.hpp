// Definitions of world.hpp.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/metrics.hpp>
#include <rlalgo/distributed/world.hpp>

namespace rlalgo::distributed {

namespace detail {

template <class T>
std::string bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

template <class T>
std::vector<T> numbers_of(const std::string& bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

template <class F>
void combine(World& world, const std::string& operation, std::span<double> values, const F& join) {
  if (world.size() == 1) return;
  const std::vector<std::string> parts = world.gather(operation, bytes_of<double>(values));
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const std::vector<double> part = numbers_of<double>(parts[r]);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = r == 0 ? part.at(i) : join(values[i], part.at(i));
  }
}

}  // namespace detail

RLALGO_INLINE std::string to_bytes(std::span<const float> values) { return detail::bytes_of(values); }
RLALGO_INLINE std::string to_bytes(std::span<const double> values) { return detail::bytes_of(values); }
RLALGO_INLINE std::vector<float> floats_of(const std::string& bytes) { return detail::numbers_of<float>(bytes); }
RLALGO_INLINE std::vector<double> doubles_of(const std::string& bytes) { return detail::numbers_of<double>(bytes); }

RLALGO_INLINE void World::sum(std::span<double> values) {
  detail::combine(*this, "sum", values, [](double a, double b) { return a + b; });
}
RLALGO_INLINE void World::minimum(std::span<double> values) {
  detail::combine(*this, "minimum", values, [](double a, double b) { return std::fmin(a, b); });
}
RLALGO_INLINE void World::maximum(std::span<double> values) {
  detail::combine(*this, "maximum", values, [](double a, double b) { return std::fmax(a, b); });
}

RLALGO_INLINE std::string World::broadcast(const std::string& operation, std::string bytes, int root) {
  return std::move(
      gather(operation, rank() == root ? std::move(bytes) : std::string()).at(static_cast<std::size_t>(root)));
}

RLALGO_INLINE void World::barrier(const std::string& operation) { (void)gather(operation, {}); }

RLALGO_INLINE core::Metrics World::merged(const core::Metrics& metrics) {
  if (size() == 1) return metrics;
  using Kind = core::Metrics::Kind;
  nlohmann::json own = nlohmann::json::array();
  if (leads_group())
    for (const core::Metrics::Entry& e : metrics.entries())
      own.push_back({e.name, static_cast<int>(e.kind), e.value, e.weight});
  const std::vector<std::uint8_t> packed = nlohmann::json::to_cbor(own);  // keeps NaN and infinities
  core::Metrics out;
  for (const std::string& bytes : gather("metrics", {packed.begin(), packed.end()}))
    for (const nlohmann::json& e : nlohmann::json::from_cbor(bytes))
      out.add({e.at(0).get<std::string>(), static_cast<Kind>(e.at(1).get<int>()), e.at(2).get<double>(),
               e.at(3).get<double>()});
  return out;
}

}  // namespace rlalgo::distributed
