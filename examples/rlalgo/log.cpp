#include "log.hpp"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/printable.hpp>
#include <rlalgo/run/terminal.hpp>

namespace rlalgo::cli {

namespace {

// %*: what stands before the colon.
class Word : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string_view word = message.level == spdlog::level::info   ? "note:"
                                  : message.level == spdlog::level::warn ? "warning:"
                                                                         : "error:";
    out.append(word.data(), word.data() + word.size());
  }
  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<Word>(); }
};

spdlog::logger& logger() {
  static spdlog::logger* const log = [] {
    const auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(
        run::shows_colours(STDERR_FILENO) ? spdlog::color_mode::always : spdlog::color_mode::never);
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<Word>('*').set_pattern("%^%*%$ %v");
    sink->set_formatter(std::move(formatter));
    return new spdlog::logger("rlalgo", sink);  // lives as long as the process: errors may come while it ends
  }();
  return *log;
}

}  // namespace

namespace {

// What is quoted in a text may come from anybody, and be of any length.
std::string shown(const std::string& text) {
  constexpr std::size_t most = 16000;  // bytes
  return core::printable(core::shortened(text, most));
}

}  // namespace

void note(const std::string& text) { logger().info("{}", shown(text)); }
void warning(const std::string& text) { logger().warn("{}", shown(text)); }
void fail(const std::string& text) { logger().error("{}", shown(text)); }

}  // namespace rlalgo::cli
