#include <support/catch.hpp>

#include <rlalgo/data/document_store.hpp>

using namespace rlalgo::data;

TEST_CASE("rows of equal documents are equal, and documents come back in the order of rows") {
  const Document a{.row = 0, .ids = {1, 2, 3}, .loss_mask = {1, 1, 1}}, b{.row = 1, .ids = {1, 2}, .loss_mask = {1, 1}};
  DocumentStore store;
  const Json first = store.put(a), second = store.put(b), again = store.put(a);
  CHECK(first == again);
  CHECK(first != second);
  Table table;
  table.append(Json(second), {});
  table.append(Json(first), {});
  const std::vector<Document> out = store.of(table);
  REQUIRE(out.size() == 2);
  CHECK(out[0].ids == b.ids);
  CHECK(out[1].ids == a.ids);
  CHECK(out[1].row == 1);
}

TEST_CASE("an identity tells ids, masks, the length of a prompt, where texts begin, and order") {
  const Document plain{.row = 0, .ids = {1, 2, 3}, .loss_mask = {1, 1, 1}};
  const std::string before = identity_of({plain});
  CHECK(identity_of({plain}) == before);
  Document changed = plain;
  changed.ids[0] = 4;
  CHECK(identity_of({changed}) != before);
  changed = plain;
  changed.loss_mask[0] = 0;
  CHECK(identity_of({changed}) != before);
  changed = plain;
  changed.prompt_length = 1;
  CHECK(identity_of({changed}) != before);
  changed = plain;
  changed.texts = {0, 2};
  CHECK(identity_of({changed}) != before);
  changed = plain;
  changed.row = 7;
  CHECK(identity_of({changed}) == before);
}
