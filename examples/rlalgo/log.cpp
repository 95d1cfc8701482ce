#include "log.hpp"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
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

// What is quoted in a text may come from anybody.
void note(const std::string& text) { logger().info("{}", core::printable(text)); }
void warning(const std::string& text) { logger().warn("{}", core::printable(text)); }
void fail(const std::string& text) { logger().error("{}", core::printable(text)); }

}  // namespace rlalgo::cli
