#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/data/preference_transform.hpp>
#include <rlalgo/data/unread_columns.hpp>

using namespace rlalgo::data;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

std::string unread(const std::vector<std::string>& rows, const std::string& type = "",
                   PreferenceFamily family = PreferenceFamily::pairs) {
  const Render render = [](const Json& messages, bool, const TemplateColumns&) { return messages.dump(); };
  UnreadColumns columns(make_preference_transform(type.empty() ? Json() : Json(type), family, {}, render), family);
  const auto file = std::make_shared<const std::string>("rows.jsonl");
  std::size_t at = 0;
  const RowChunks chunks = columns.watch([&](std::size_t, std::vector<Record>& out) {
    out.clear();
    if (at == rows.size()) return false;
    out.push_back({Json(), rows[at], {file, static_cast<std::int64_t>(at + 1), -1}});
    ++at;
    return true;
  });
  std::vector<Record> some;
  while (chunks(1, some)) CHECK(some.size() == 1);
  return columns.found();
}

const std::string pair = R"("prompt": "p", "chosen": "c", "rejected": "r")";

}  // namespace

TEST_CASE("columns that change neither prompt nor answers are named with their first row") {
  CHECK(unread({"{" + pair + "}"}).empty());
  CHECK(unread({"{" + pair + R"(, "system": null, "margin": 1})", "{" + pair + R"(, "system": "s", "label": true})"}) ==
        "margin (rows.jsonl:1), system (rows.jsonl:2), label (rows.jsonl:2)");
  CHECK(unread({"{" + pair + R"(, "tools": [{"name": "f"}], "chat_template_kwargs": {"a": 1}, "extra": [], "x": ""})"})
            .empty());
  CHECK(unread({R"({"chosen": "ab", "rejected": "ac"})"}).empty());
}

TEST_CASE("a format's own columns are read") {
  const std::string intel = R"({"system": "s", "question": "q", "chosen": "c", "rejected": "r", "input": "i"})";
  CHECK(unread({intel}, "chatml.intel") == "input (rows.jsonl:1)");
  CHECK(unread({R"({"question": "q", "chosen": "c", "rejected": "r"})", intel}, "chatml.intel") ==
        "input (rows.jsonl:2)");
}

TEST_CASE("unpaired data read a label; answers beside a completion are not read") {
  const std::string row = R"("prompt": "p", "completion": "c", "label": true)";
  CHECK(unread({"{" + row + "}"}, "", PreferenceFamily::unpaired).empty());
  CHECK(unread({"{" + row + R"(, "chosen": "x", "score": 2})"}, "", PreferenceFamily::unpaired) ==
        "chosen (rows.jsonl:1), score (rows.jsonl:1)");
  CHECK(unread({"{" + pair + "}"}, "", PreferenceFamily::unpaired).empty());
}

TEST_CASE("images are refused where there are some") {
  const auto error = [](const std::string& cell) {
    return raised_by([&] { (void)unread({"{" + pair + "}", "{" + pair + ", " + cell + "}"}); });
  };
  CHECK(lacks(error(R"("images": ["a.png"])"), {"data.37", "images", "rows.jsonl:2"}) == "");
  CHECK(lacks(error(R"("image": {"path": "a.png"})"), {"data.37", "image", "rows.jsonl:2"}) == "");
  CHECK(unread({"{" + pair + R"(, "images": []})", "{" + pair + R"(, "image": null})"}).empty());
}

TEST_CASE("rows that cannot be read or transformed are somebody else's to refuse") {
  CHECK(unread({"{", "[1]", R"({"chosen": "c"})"}, "chatml.intel").empty());
}
