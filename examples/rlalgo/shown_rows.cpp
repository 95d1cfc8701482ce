#include "shown_rows.hpp"

#include <unistd.h>

#include <iostream>
#include <span>
#include <string>

#include <rlalgo/core/printable.hpp>
#include <rlalgo/run/terminal.hpp>

namespace rlalgo::cli {

namespace {

class RowPrinter {
 public:
  RowPrinter(const assembly::Overview& overview, RowText how)
      : overview_(overview), how_(how), colours_(run::shows_colours(STDOUT_FILENO)) {}

  void print(const assembly::ShownRow& row) const {
    std::size_t trained = 0;
    for (const std::uint8_t carries : row.loss) trained += carries;
    std::cout << "\n"
              << painted(row.title + ", " + std::to_string(row.ids.size()) + " tokens, " + std::to_string(trained) +
                             " with loss",
                         "1")
              << "\n";
    for (std::size_t begin = 0; begin < row.ids.size();) {
      const bool carries = carries_loss(row, begin);
      std::size_t end = begin + 1;
      while (end < row.ids.size() && carries_loss(row, end) == carries) ++end;
      print_stretch(row, begin, end, carries);
      begin = end;
    }
    std::cout << (row.then.empty() ? "" : painted(" … " + row.then, "36")) << "\n";
  }

 private:
  [[nodiscard]] static bool carries_loss(const assembly::ShownRow& row, std::size_t at) {
    return at < row.loss.size() && row.loss[at] != 0;
  }

  // Tokens that all carry loss, or all do not.
  void print_stretch(const assembly::ShownRow& row, std::size_t begin, std::size_t end, bool carries) const {
    const auto ids = std::span(row.ids).subspan(begin, end - begin);
    std::string text;
    if (how_ == RowText::whole) text = core::printable(overview_.decode(ids), "\n\t");
    for (std::size_t i = 0; how_ == RowText::tokens && i < ids.size(); ++i)
      text += core::printable(overview_.decode(ids.subspan(i, 1)), "\t") + "(" + std::to_string(ids[i]) + ") ";
    if (colours_)
      std::cout << painted(text, !carries ? "90" : row.desirable ? "32;4" : "31;4");
    else
      std::cout << (carries ? "⟦" : "") << text << (carries ? "⟧" : "");
  }

  [[nodiscard]] std::string painted(const std::string& text, const char* code) const {
    return colours_ ? "\033[" + std::string(code) + "m" + text + "\033[0m" : text;
  }

  const assembly::Overview& overview_;
  RowText how_;
  bool colours_;
};

}  // namespace

void print_rows(const assembly::Overview& overview, std::size_t rows, RowText how) {
  if (!overview.samples) return;
  const RowPrinter printer(overview, how);
  for (const assembly::ShownRow& row : overview.samples(rows)) printer.print(row);
}

}  // namespace rlalgo::cli
