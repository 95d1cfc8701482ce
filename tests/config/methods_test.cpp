#include <support/catch.hpp>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <rlalgo/config/methods.hpp>

using namespace rlalgo::config;
namespace fs = std::filesystem;

namespace {

const fs::path root = fs::path(rlalgo::support::test_dir).parent_path();

// Every row of every table that has a door and a page.
template <class Visit>
void each_documented(Visit&& visit) {
  for (const Recipe& row : recipes())
    if (row.supported) visit(row);
  for (const PolicyObjective& row : policy_objectives()) visit(row);
  for (const MatchingMode& row : matching_modes()) visit(row);
  for (const RatioLevel& row : ratio_levels())
    if (!row.door.empty()) visit(row);
  for (const Estimator& row : estimators())
    if (!row.door.empty()) visit(row);
}

template <class Row>
void check_names(const std::vector<Row>& rows) {
  std::set<std::string_view> names;
  for (const Row& row : rows) {
    INFO(row.name);
    CHECK(names.insert(row.name).second);
    CHECK(find_row(rows, row.name) == &row);
  }
  CHECK(find_row(rows, "no such name") == nullptr);
}

}  // namespace

TEST_CASE("no name is in a table twice, and a name finds its row") {
  check_names(recipes());
  check_names(policy_objectives());
  check_names(ratio_levels());
  check_names(estimators());
  check_names(aggregations());
  check_names(pair_objectives());
  check_names(matching_modes());
  check_names(matching_estimators());
  check_names(poolings());
  check_names(preference_losses());
}

TEST_CASE("every row has its door and its page, and every door and page has a row") {
  std::set<std::string> doors, pages;
  each_documented([&](const auto& row) {
    INFO(row.name);
    CHECK(fs::is_regular_file(root / "include/rlalgo" / row.door));
    CHECK(fs::is_regular_file(root / "docs/algorithms" / row.page));
    CHECK_FALSE(row.summary.empty());
    doors.emplace(row.door);
    pages.emplace(row.page);
  });
  std::set<std::string> door_files, page_files;
  for (const auto& entry : fs::directory_iterator(root / "include/rlalgo"))
    if (entry.is_regular_file() && entry.path().filename() != "rlalgo.hpp")
      door_files.insert(entry.path().filename().string());
  for (const auto& entry : fs::directory_iterator(root / "docs/algorithms"))
    page_files.insert(entry.path().filename().string());
  CHECK(doors == door_files);
  CHECK(pages == page_files);
}

TEST_CASE("every recipe that the file format has is run") {
  const Names names = names_of(recipes());
  CHECK(names.known == names.supported);
}

TEST_CASE("losses of preference recipes: the first is the default") {
  const auto names = [](const char* rl) { return names_of(losses_of(*find_row(recipes(), rl))).known; };
  CHECK(names("kto") == std::vector<std::string>{"kto", "apo_zero_unpaired"});
  CHECK(names("cpo") == std::vector<std::string>{"sigmoid", "hinge", "ipo", "simpo", "alphapo"});
  CHECK(names("simpo") == std::vector<std::string>{"simpo", "alphapo"});
  CHECK(names("dpo").empty());
}
