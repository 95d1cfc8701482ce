// Rows as a model sees them, on standard output: what carries loss is coloured on a terminal, and between ⟦ and ⟧ elsewhere.
#pragma once

#include <cstddef>

#include <rlalgo/assembly/overview.hpp>

namespace rlalgo::cli {

// whole: the text, special tokens shown; tokens: each token with its id.
enum class RowText { whole, tokens };

void print_rows(const assembly::Overview& overview, std::size_t rows, RowText how);

}  // namespace rlalgo::cli
