// That it is what NCCL's and CUDA's headers say is shown by tests/cuda/nccl_headers_test.cpp, where these are.
#include <rlalgo/distributed/nccl_abi.hpp>

#include <cstddef>
#include <set>
#include <string>

#include <support/catch.hpp>

namespace abi = rlalgo::distributed::abi;

TEST_CASE("a configuration of NCCL 2.14 is laid out as that version reads it") {
  static_assert(offsetof(abi::Config, size) == 0 && offsetof(abi::Config, magic) == 8);
  static_assert(offsetof(abi::Config, version) == 12 && offsetof(abi::Config, blocking) == 16);
  const abi::Config config;
  CHECK(config.size == 24);
  CHECK(config.magic == 0xcafebeef);
  CHECK(config.version == 21400);
  CHECK(config.blocking == 0);
  CHECK(sizeof(abi::UniqueId) == 128);
}

TEST_CASE("every function of a table has a name of its own, in its library's style") {
  abi::Nccl nccl;
  abi::Cuda cuda;
  std::set<std::string> names;
  std::size_t pointers = 0;
  abi::each_function(nccl, [&](auto& function, const char* name) {
    CHECK(function == nullptr);
    CHECK(std::string(name).starts_with("nccl"));
    names.insert(name);
    pointers += sizeof function;
  });
  CHECK(pointers == sizeof nccl);
  abi::each_function(cuda, [&](auto& function, const char* name) {
    CHECK(std::string(name).starts_with("cuda"));
    names.insert(name);
    pointers += sizeof function;
  });
  CHECK(pointers == sizeof nccl + sizeof cuda);
  CHECK(names.size() * sizeof(void*) == pointers);
}
