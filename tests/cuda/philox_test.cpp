// The generator of the kernels against core/philox.hpp.
#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/cuda/philox.cuh>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;
namespace core = rlalgo::core;

struct Name {
  std::uint64_t seed, step, index;
  std::uint32_t stream;
};

__global__ void words(const Name* names, std::uint32_t* out, double* uniform) {
  const Name& name = names[threadIdx.x];
  const cuda::PhiloxWords found = cuda::philox(name.seed, name.stream, name.step, name.index);
  for (int w = 0; w < 4; ++w) out[threadIdx.x * 4 + static_cast<unsigned>(w)] = found.word[w];
  uniform[threadIdx.x] = cuda::philox_uniform(name.seed, name.stream, name.step, name.index);
}

}  // namespace

TEST_CASE("Words are those of the host's generator, whatever they are named by") {
  std::vector<Name> names;
  for (std::uint64_t i = 0; i < 32; ++i)
    names.push_back({i * 0x9E3779B97F4A7C15ULL, i % 3 << 33U | i, i * 0xC2B2AE3D27D4EB4FULL,
                     i % 2 == 0 ? cuda::sampling_stream : cuda::dropout_stream});
  const Memory<Name> there(names);
  const Memory<std::uint32_t> out(32 * 4);
  const Memory<double> uniform(32);
  must_work(cuda::launch(words, dim3(1), dim3(32), nullptr, there.data(), out.data(), uniform.data()));
  const auto found = out.values();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const core::PhiloxKey key{names[i].seed, i % 2 == 0 ? core::Stream::sampling : core::Stream::dropout};
    const core::PhiloxBlock expected = core::philox(key, names[i].step, names[i].index);
    for (std::size_t w = 0; w < 4; ++w) CHECK(found[i * 4 + w] == expected[w]);
    CHECK(uniform.values()[i] == core::uniform(key, names[i].step, names[i].index));
  }
}
