#include <rlalgo/distributed/nccl_library.hpp>

#include <string>

#include <rlalgo/core/error.hpp>

#include <support/catch.hpp>
#include <support/fake_nccl.hpp>

using namespace rlalgo;
using distributed::NcclLibrary;
using distributed::NcclPaths;
using support::Environment;

namespace {

// "" or the number of the error, with its text in `told`.
std::string refused(const NcclPaths& paths, std::string* told = nullptr) {
  try {
    (void)NcclLibrary::load(paths);
  } catch (const core::Error& error) {
    if (told != nullptr) *told = error.what();
    return error.room() + "." + std::to_string(error.number());
  }
  return {};
}

}  // namespace

TEST_CASE("both libraries are loaded at run time, and say what they are") {
  const auto library = support::fake_library();
  CHECK(library->version() == 22800);
  CHECK(library->devices() == 1);
  CHECK(library->uuid(0) == "00112233-4455-6677-8899-aabbccddeeff");
}

TEST_CASE("the environment names the libraries: our own variables, else vLLM's") {
  CHECK(distributed::nccl_paths_of_environment().nccl.empty());
  const Environment theirs("VLLM_NCCL_SO_PATH", support::fake_nccl);
  CHECK(distributed::nccl_paths_of_environment().nccl == support::fake_nccl);
  const Environment cudart("RLALGO_CUDART_LIBRARY", support::fake_nccl);
  CHECK(distributed::nccl_trouble().empty());
  {
    const Environment own("RLALGO_NCCL_LIBRARY", "/nowhere/libnccl.so.2");
    CHECK(distributed::nccl_paths_of_environment().nccl == "/nowhere/libnccl.so.2");
    CHECK(distributed::nccl_trouble().find("[rlalgo.distributed.15]") == 0);
  }
  const Environment none("FAKE_CUDA_DEVICES", "0");
  CHECK(distributed::nccl_trouble().find("[rlalgo.distributed.17]") == 0);
}

TEST_CASE("what is missing is said by number, and which file to name") {
  std::string told;
  CHECK(refused({.nccl = "/nowhere/libnccl.so.2", .cudart = support::fake_nccl}, &told) == "distributed.15");
  CHECK(told.find("/nowhere/libnccl.so.2") != std::string::npos);
  CHECK(told.find("RLALGO_NCCL_LIBRARY") != std::string::npos);
  CHECK(refused({.nccl = support::fake_nccl, .cudart = "/nowhere/libcudart.so"}, &told) == "distributed.15");
  CHECK(told.find("RLALGO_CUDART_LIBRARY") != std::string::npos);
  CHECK(refused({.nccl = support::fake_nccl, .cudart = "libc.so.6"}, &told) == "distributed.15");
  CHECK(told.find("cudaGetDeviceCount") != std::string::npos);
  {
    const Environment none("FAKE_CUDA_DEVICES", "0");
    CHECK(refused({.nccl = support::fake_nccl, .cudart = support::fake_nccl}, &told) == "distributed.17");
    CHECK(told.find("no CUDA-capable device is detected") != std::string::npos);
  }
  {
    const Environment old("FAKE_NCCL_VERSION", "21308");
    CHECK(refused({.nccl = support::fake_nccl, .cudart = support::fake_nccl}, &told) == "distributed.16");
    CHECK(told.find("found 2.13.8, expected 2.14.0 or later") != std::string::npos);
  }
  CHECK(refused({.nccl = "libc.so.6", .cudart = support::fake_nccl}, &told) == "distributed.16");
}
