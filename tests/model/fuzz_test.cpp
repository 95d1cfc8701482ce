// Damaged files: every input is read or refused by a numbered error, quickly and in little memory.
//
// The inputs: support/damage.hpp.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/safetensors.hpp>

#include <support/catch.hpp>
#include <support/damage.hpp>

using namespace rlalgo;

namespace {

constexpr std::uint64_t default_inputs = 20'000;
#ifdef __SANITIZE_ADDRESS__
constexpr long most_kilobytes = 600'000;  // freed memory is kept for a while to find its uses
#else
constexpr long most_kilobytes = 200'000;
#endif

// A file that exists in memory only.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) { REQUIRE(descriptor_ >= 0); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }
  [[nodiscard]] std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
  void assign(const std::string& bytes) const {
    REQUIRE(::ftruncate(descriptor_, static_cast<off_t>(bytes.size())) == 0);
    REQUIRE(::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }

 private:
  int descriptor_;
};

using support::Draw;

std::string damaged(std::string text, Draw& draw) {
  static const std::vector<std::string> pieces = support::json_pieces({"\"F64\""});
  return support::damaged_json(std::move(text), draw, pieces);
}

// True when `call` returns or raises a numbered error.
template <class Call>
bool survives(Call&& call, std::uint64_t& accepted) {
  try {
    call();
    ++accepted;
    return true;
  } catch (const core::Error&) {
    return true;
  } catch (const std::exception& error) {
    UNSCOPED_INFO(error.what());
    return false;
  }
}

long peak_kilobytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

}  // namespace

TEST_CASE("damaged safetensors files are read or refused") {
  const MemoryFile stored;
  const auto [first, inputs] = support::fuzz_inputs(default_inputs);
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"c":{"dtype":"I64","shape":[0,7],"data_offsets":[32,32]}})";
  const long before = peak_kilobytes();
  std::uint64_t accepted = 0, failed = 0;
  for (std::uint64_t i = first; i < first + inputs; ++i) {
    Draw draw(20, i);
    const std::string text = draw.below(20) == 0 ? header : damaged(header, draw);
    std::uint64_t length = text.size();
    if (draw.below(8) == 0) length = draw.below(3) == 0 ? ~std::uint64_t{0} >> draw.below(60) : draw.below(600);
    std::string file;
    for (unsigned b = 0; b < 8; ++b) file += static_cast<char>(length >> (8 * b));
    file += text + std::string(draw.below(6) == 0 ? draw.below(64) : 32, '\1');
    if (draw.below(50) == 0) file.resize(draw.below(12));
    stored.assign(file);
    const bool good = survives(
        [&] {
          const model::SafetensorsFile opened(stored.path());
          for (const auto& [name, entry] : opened.entries()) (void)opened.read(name);
        },
        accepted);
    if (!good && ++failed < 5) FAIL_CHECK("input " << i << ": " << text);
  }
  CHECK(failed == 0);
  CHECK(accepted > inputs / 50);  // the undamaged ones
  CHECK(accepted < inputs / 2);
  CHECK(peak_kilobytes() - before < most_kilobytes);
}

TEST_CASE("damaged configurations of models and adapters are read or refused") {
  const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden";
  std::vector<std::string> texts;
  for (const char* name : {"llama3_rope", "mistral", "smollm3", "qwen2_window", "qwen3_yarn"}) {
    std::ifstream in(golden / "model" / name / "config.json");
    texts.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  std::ifstream in(golden / "adapter/patterns/adapter_config.json");
  texts.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  const long before = peak_kilobytes();
  const auto [first, inputs] = support::fuzz_inputs(default_inputs);
  std::uint64_t accepted = 0, failed = 0;
  for (std::uint64_t i = first; i < first + inputs; ++i) {
    Draw draw(20, std::uint64_t{1} << 40U | i);
    const std::uint64_t which = draw.below(texts.size());
    const std::string text = damaged(texts[which], draw);
    const auto json = model::Json::parse(text, nullptr, false);
    if (!json.is_object()) continue;
    const bool good = survives(
        [&] {
          if (which + 1 < texts.size())
            (void)model::parse_hf_config(json, "config.json");
          else
            (void)model::parse_adapter_config(json, "adapter_config.json");
        },
        accepted);
    if (!good && ++failed < 5) FAIL_CHECK("input " << i << ": " << text);
  }
  CHECK(failed == 0);
  CHECK(accepted > inputs / 40);
  CHECK(peak_kilobytes() - before < most_kilobytes);
}
