// What a verb says beside its results: one line each on standard error, coloured on a terminal (NO_COLOR: not).
#pragma once

#include <string>

namespace rlalgo::cli {

void note(const std::string& text);     // note: …
void warning(const std::string& text);  // warning: …
void fail(const std::string& text);     // error: …

}  // namespace rlalgo::cli
