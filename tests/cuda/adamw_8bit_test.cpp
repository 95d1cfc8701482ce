// AdamW with moments in 8 bits against the same arithmetic written one step after the other, to the bit. (tests/far holds it against the
// CPU's optimizer, with its codes; here codes are others.)
#include <algorithm>
#include <numeric>

#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/adamw_8bit.cuh>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;

// 256 rising numbers from −1, or from 0, to 1, closer to each other near 0.
std::vector<float> codes(bool sign) {
  std::vector<float> out;
  for (int i = 0; i < 256; ++i) {
    const float x = sign ? (static_cast<float>(i) - 128.0F) / 127.0F : static_cast<float>(i) / 255.0F;
    out.push_back(std::clamp(x * std::fabs(x) * std::fabs(x), -1.0F, 1.0F));
  }
  return out;
}
std::vector<float> halves(const std::vector<float>& values) {
  std::vector<float> out;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) out.push_back((values[i] + values[i + 1]) / 2.0F);
  out.push_back(NAN);
  return out;
}

struct Parameter {
  std::int64_t elements = 0, block = 0;
  std::int32_t number = 0;
  float kept = 1.0F, deviation = 1.0F;
};

float quantised(const std::vector<float>& bounds, const std::vector<float>& x, std::vector<std::uint8_t>& out,
                std::size_t at) {
  float most = 0.0F;
  for (const float one : x) most = std::max(most, std::fabs(one));
  const float inverse = 1.0F / most;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float scaled = most == 0.0F ? 0.0F : std::isinf(inverse) ? x[i] / most : x[i] * inverse;
    out[at + i] =
        static_cast<std::uint8_t>(std::lower_bound(bounds.begin(), bounds.end() - 1, scaled) - bounds.begin());
  }
  return most;
}

// Two updates; `divisor` 0: none; `skip`: the second one.
template <class T>
void check(const std::vector<Parameter>& parameters, bool separate, float divisor, bool skip) {
  CAPTURE(parameters.size(), separate, divisor, skip, sizeof(T));
  std::size_t blocks = 0;
  for (const Parameter& p : parameters)
    blocks = std::max(blocks, static_cast<std::size_t>(p.block + (p.elements + 255) / 256));
  const auto m_values = codes(true), v_values = codes(false), m_bounds = halves(m_values), v_bounds = halves(v_values);
  std::vector<float> tables;
  for (const auto* one : {&m_values, &v_values, &m_bounds, &v_bounds})
    tables.insert(tables.end(), one->begin(), one->end());
  const std::vector<float> sizes = {-0.01F, -0.02F, -0.5F}, roots = {0.03F, 0.04F, 0.9F};
  std::vector<std::uint8_t> m(blocks * 256, 7), v(blocks * 256, 9);
  std::vector<float> m_scale(blocks, 0.0F), v_scale(blocks, 0.0F);
  const Memory<std::uint8_t> m_there(m), v_there(v);
  const Memory<float> m_scale_there(m_scale), v_scale_there(v_scale), tables_there(tables), sizes_there(sizes),
      roots_there(roots), divisor_there(std::vector<float>{divisor}), no_skip(std::vector<float>{0.0F}),
      skipped(std::vector<float>{1.0F});
  constexpr float beta1 = 0.9F, rest1 = 0.1F, beta2 = 0.99F, rest2 = 0.01F, epsilon = 1e-8F;
  struct Held {
    Memory<T> gradient, value;
    Memory<float> master;
  };
  std::vector<std::unique_ptr<Held>> held;
  std::vector<std::vector<float>> masters;
  std::vector<std::vector<T>> gradients;
  for (const Parameter& p : parameters) {
    const auto n = static_cast<std::size_t>(p.elements);
    gradients.push_back(normal<T>(n, 3 + static_cast<unsigned>(p.number), p.deviation));
    masters.push_back(normal<float>(n, 17));
    held.push_back(
        std::make_unique<Held>(Held{Memory<T>(gradients.back(), 1), Memory<T>(n, 1), Memory<float>(masters.back())}));
  }
  for (int step = 0; step < 2; ++step) {
    const bool stays = skip && step == 1;
    cuda::AdamW8bit a{.m = m_there.data(),
                      .v = v_there.data(),
                      .m_scale = m_scale_there.data(),
                      .v_scale = v_scale_there.data(),
                      .sizes = sizes_there.data(),
                      .roots = roots_there.data(),
                      .tables = tables_there.data(),
                      .divisor = divisor == 0.0F ? nullptr : divisor_there.data(),
                      .skip = stays       ? skipped.data()
                              : step == 0 ? nullptr
                                          : no_skip.data(),
                      .beta1 = beta1,
                      .rest1 = rest1,
                      .beta2 = beta2,
                      .rest2 = rest2,
                      .epsilon = epsilon,
                      .element = element_of<T>};
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& p = parameters[i];
      a.items[i] = {.gradient = held[i]->gradient.data(),
                    .master = held[i]->master.data(),
                    .value = separate ? held[i]->value.data() : nullptr,
                    .elements = p.elements,
                    .block = p.block,
                    .number = p.number,
                    .kept = p.kept};
      a.first[i] = a.blocks;
      a.blocks += static_cast<std::int32_t>((p.elements + 255) / 256);
      ++a.count;
    }
    must_work(cuda::adamw_8bit(a, nullptr));
    if (stays) continue;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      for (std::int64_t begin = 0; begin < parameters[i].elements; begin += 256) {
        const Parameter& p = parameters[i];
        const auto block = static_cast<std::size_t>(p.block + begin / 256), number = static_cast<std::size_t>(p.number);
        std::vector<float> new_m, new_v;
        for (std::int64_t e = begin; e < std::min(begin + 256, p.elements); ++e) {
          const std::size_t at = block * 256 + static_cast<std::size_t>(e - begin);
          auto g = static_cast<float>(wide(gradients[i][static_cast<std::size_t>(e)]));
          if (divisor != 0.0F) g /= divisor;
          new_m.push_back(m_values[m[at]] * m_scale[block] * beta1 + rest1 * g);
          new_v.push_back(v_values[v[at]] * v_scale[block] * beta2 + rest2 * g * g);
          float& w = masters[i][static_cast<std::size_t>(e)];
          w = w * p.kept + sizes[number] * new_m.back() / (std::sqrt(new_v.back()) / roots[number] + epsilon);
        }
        m_scale[block] = quantised(m_bounds, new_m, m, block * 256);
        v_scale[block] = quantised(v_bounds, new_v, v, block * 256);
      }
  }
  CHECK(same_bits(m_there.values(), m));  // and codes of other parameters stay
  CHECK(same_bits(v_there.values(), v));
  CHECK(same_bits(m_scale_there.values(), m_scale));
  CHECK(same_bits(v_scale_there.values(), v_scale));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    CHECK(same_bits(held[i]->master.values(), masters[i]));
    std::vector<T> rounded;
    for (const float w : masters[i]) rounded.push_back(as<T>(w));
    if (separate) CHECK(same_bits(held[i]->value.values(), rounded));
  }
}

}  // namespace

TEST_CASE("An update of several parameters is that of each block by itself") {
  in_orders([] {
    const std::vector<Parameter> some = {{.elements = 300, .block = 5, .number = 1, .kept = 0.9F},
                                         {.elements = 256, .block = 0, .number = 0},
                                         {.elements = 1, .block = 2, .number = 2, .kept = 0.5F},
                                         {.elements = 2600, .block = 7, .number = 2, .deviation = 1e-21F}};
    check<float>(some, false, 0.0F, false);
    check<Bfloat16>(some, true, 3.0F, false);
    check<float>({{.elements = 255}}, true, 1.5F, true);
    check<float>({}, false, 0.0F, false);
  });
}

TEST_CASE("As many parameters as a launch takes are found, and gradients of 0 are 0") {
  std::vector<Parameter> many;
  for (int i = 0; i < cuda::adamw_8bit_most; ++i)
    many.push_back(
        {.elements = i % 3 == 0 ? 257 : 100, .block = 2 * i, .number = i % 3, .deviation = i == 4 ? 0.0F : 1.0F});
  check<Bfloat16>(many, true, 0.0F, false);
}
