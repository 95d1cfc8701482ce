#include <support/catch.hpp>

#include <rlalgo/data/format_string.hpp>

using rlalgo::data::FormatString;

namespace {
std::string filled(const std::string& format) {
  return FormatString(format, {"prompt", "system"}, "prompt_format",
                      "here")([](const std::string& name) { return name == "prompt" ? "P {y}" : "S"; });
}
}  // namespace

TEST_CASE("fields are replaced, doubled braces are braces, inserted text is left alone") {
  CHECK(filled("a {prompt} b {system}{prompt}") == "a P {y} b SP {y}");
  CHECK(filled("{{{prompt}}} 100%") == "{P {y}} 100%");
  CHECK(filled("") == "");
  CHECK(FormatString("{prompt}", {"prompt", "system"}, "k", "w").uses("prompt"));
  CHECK_FALSE(FormatString("{prompt}", {"prompt", "system"}, "k", "w").uses("system"));
}

TEST_CASE("anything else in braces is data.20") {
  for (const char* format : {"{other}", "{}", "{prompt!r}", "{prompt:>5}", "{prompt", "prompt}"})
    CHECK_THROWS_WITH(filled(format), Catch::StartsWith("[rlalgo.data.20]") && Catch::Contains("prompt_format"));
}
