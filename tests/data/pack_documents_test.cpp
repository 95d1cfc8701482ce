#include <rlalgo/data/pack_documents.hpp>

#include <support/catch.hpp>

using namespace rlalgo::data;

namespace {

using Ids = std::vector<TokenId>;
using Mask = std::vector<std::uint8_t>;
using Begins = std::vector<std::int64_t>;

Document text(const Ids& ids) { return {.row = 7, .ids = ids, .loss_mask = Mask(ids.size(), 1)}; }

}  // namespace

TEST_CASE("texts in chunks of equal length, an end between them") {
  const auto chunks = pack_documents({text({1, 2, 3}), text({4}), text({}), text({5, 6, 7, 8, 9, 0}), text({1})},
                                     {.length = 5, .separator = 0});
  REQUIRE(chunks.size() == 3);
  CHECK(chunks[0].ids == Ids{1, 2, 3, 0, 4});
  CHECK(chunks[1].ids == Ids{0, 5, 6, 7, 8});
  CHECK(chunks[2].ids == Ids{9, 0, 1, 0});  // the third text brought its end; the last chunk is not padded
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    CHECK(chunks[i].row == static_cast<std::int64_t>(i));
    CHECK(chunks[i].loss_mask == Mask(chunks[i].ids.size(), 1));
    CHECK(chunks[i].texts.empty());
    CHECK_FALSE(chunks[i].prompt_length);
  }
}

TEST_CASE("texts of a chunk that do not see each other have no predictor of their first token") {
  const auto chunks = pack_documents({text({1, 2, 3}), text({4}), text({5, 6, 7, 8, 9}), text({1})},
                                     {.length = 6, .separator = 0, .apart = true});
  REQUIRE(chunks.size() == 3);
  CHECK(chunks[0].ids == Ids{1, 2, 3, 0, 4, 0});
  CHECK(chunks[0].texts == Begins{0, 4});
  CHECK(chunks[0].loss_mask == Mask{0, 1, 1, 1, 0, 1});
  CHECK(chunks[1].ids == Ids{5, 6, 7, 8, 9, 0});
  CHECK(chunks[1].texts == Begins{0});
  CHECK(chunks[2].texts == Begins{0});
  const auto cut = pack_documents({text({1, 2, 3, 4, 5})}, {.length = 4, .separator = 0, .apart = true});
  REQUIRE(cut.size() == 2);
  CHECK(cut[1].ids == Ids{5, 0});  // the rest begins anew
  CHECK(cut[1].texts == Begins{0});
  CHECK(cut[1].loss_mask == Mask{0, 1});
}

TEST_CASE("a text keeps what it does not train") {
  Document half = text({1, 2, 3});
  half.loss_mask = {0, 0, 1};
  CHECK(pack_documents({half}, {.length = 8, .separator = 0}).front().loss_mask == Mask{0, 0, 1, 1});
  CHECK(pack_documents({}, {}).empty());
  CHECK(pack_documents({text({})}, {}).empty());
}
