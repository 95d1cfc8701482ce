#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/data/answer_file.hpp>
#include <rlalgo/data/prepare_answers.hpp>
#include <rlalgo/data/row_stream.hpp>

using namespace rlalgo::data;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using rlalgo::support::ScratchDirectory;

namespace {

// One id per byte; the end text is "!".
TextTools bytes() {
  TextTools t;
  t.encode = [](const std::string& text, bool) { return std::vector<TokenId>(text.begin(), text.end()); };
  t.decode = [](std::span<const TokenId> ids) { return std::string(ids.begin(), ids.end()); };
  t.render = [](const Json& messages, bool) { return messages.dump(); };
  t.eos = '!';
  t.eos_text = "!";
  return t;
}

std::string pairs(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    Json row = {{"prompt", "q" + std::to_string(i)}, {"chosen", std::string(static_cast<std::size_t>(i % 9 + 1), 'a')}};
    row["rejected"] = i % 5 == 0 ? row["chosen"] : Json("b");
    out += row.dump() + "\n";
  }
  return out;
}

struct Made {
  AnswerSet answers;
  PreparedRows rows;
};

Made make(
    const std::string& file, PrepareConfig config, const RowTransform& transform = [](Json&, const std::string&) {},
    ArenaConfig arena = {}) {
  DatasetSource source;
  source.path = file;
  RowStream stream(source);
  const bool unpaired = config.tokens.family == PreferenceFamily::unpaired;
  Made out{AnswerSet(unpaired ? 1 : 2, std::make_shared<IdArena>(arena)), {}};
  out.rows = prepare_answers([&](std::size_t n, std::vector<Record>& to) { return stream.next(n, to); }, transform,
                             config, bytes(), out.answers);
  return out;
}

}  // namespace

TEST_CASE("threads, chunks and the arena on disk change nothing") {
  const ScratchDirectory scratch;
  const std::string file = scratch.write("rows.jsonl", pairs(700));
  const Made one = make(file, {.digests = true, .threads = 1, .chunk_rows = 10000});
  CHECK(one.answers.examples() == 700);
  CHECK(one.rows.counts.rows == 700);
  CHECK(one.rows.counts.identical >= 140);
  CHECK(one.rows.digests.size() == 700);
  CHECK(one.answers.row(2 * 699) == 699);
  std::int64_t told = 0;
  const Made many =
      make(file, {.digests = true, .threads = 4, .chunk_rows = 130, .progress = [&](std::int64_t n) { told = n; }},
           [](Json&, const std::string&) {}, {.directory = scratch.path(), .memory_bytes = 100});
  CHECK(many.answers.arena()->on_disk());
  CHECK(identity_of(many.answers) == identity_of(one.answers));
  CHECK(many.rows.digests == one.rows.digests);
  CHECK(many.rows.counts.identical == one.rows.counts.identical);
  CHECK(many.answers.row(2 * 699) == 699);
  CHECK(told == 700);
}

TEST_CASE("a functor of the user rewrites rows; the error of the first bad row is raised") {
  const ScratchDirectory scratch;
  const std::string file = scratch.write("rows.jsonl", R"({"q": "x", "good": "y", "bad": "z"})"
                                                       "\n");
  const RowTransform rename = [](Json& row, const std::string&) {
    row = Json{{"prompt", row["q"]}, {"chosen", row["good"]}, {"rejected", row["bad"]}};
  };
  CHECK(make(file, {}, rename).answers.answer(1).ids == std::vector<TokenId>{'x', 'z', '!'});
  std::string rows = pairs(300);
  rows += "{\"prompt\": \"\", \"chosen\": \"a\", \"rejected\": \"b\"}\n" + pairs(200) + "{\"prompt\": 1}\n";
  const std::string bad = scratch.write("bad.jsonl", rows);
  for (const int threads : {1, 4})
    CHECK(lacks(raised_by([&] { (void)make(bad, {.threads = threads, .chunk_rows = 400}); }),
                {"data.23: ", "\"prompt\"", "bad.jsonl:301"}) == "");
  CHECK(lacks(raised_by([&] { (void)make(bad, {.chunk_rows = 4000}); }), {"data.8: ", "\"prompt\"", "bad.jsonl:502"}) ==
        "");
}

TEST_CASE("rows that are all too long are data.26") {
  const ScratchDirectory scratch;
  const std::string file = scratch.write("rows.jsonl", pairs(3));
  CHECK(lacks(raised_by([&] { (void)make(file, {.tokens = {.max_length = 2}, .name = "datasets[3]"}); }),
              {"data.26: ", "3 rows", "datasets[3]"}) == "");
}

TEST_CASE("digests tell rows apart by what they say, and labels") {
  const Json a = {{"x", 1}, {"y", "z"}}, b = {{"y", "z"}, {"x", 1}}, c = {{"y", "z"}, {"x", 2}};
  CHECK(digest_of(a, true) == digest_of(b, true));
  CHECK(digest_of(a, true) != digest_of(c, true));
  CHECK(digest_of(a, true) != digest_of(a, false));
}
