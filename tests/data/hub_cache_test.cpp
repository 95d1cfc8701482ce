#include <support/scratch.hpp>

#include <rlalgo/data/hub_cache.hpp>

using namespace rlalgo::data;
using rlalgo::support::ScopedVariable;
using rlalgo::support::ScratchDirectory;

TEST_CASE("an id has at most one slash and nothing of a path") {
  CHECK(is_hub_id("openai/gsm8k"));
  CHECK(is_hub_id("gpt2"));
  CHECK_FALSE(is_hub_id("./data/x.jsonl"));
  CHECK_FALSE(is_hub_id("/data"));
  CHECK_FALSE(is_hub_id("a/b/c"));
  CHECK_FALSE(is_hub_id("a/../b"));
  CHECK_FALSE(is_hub_id("a/"));
  CHECK_FALSE(is_hub_id(""));
}

TEST_CASE("a snapshot is found through refs, by commit, or because it is the only one") {
  const ScratchDirectory scratch;
  const ScopedVariable cache("HF_HUB_CACHE", scratch.path().string());
  scratch.write("datasets--owner--rows/snapshots/c1/train.jsonl", "{}\n");
  CHECK(find_in_hub_cache(HubKind::datasets, "owner/rows") == scratch.path() / "datasets--owner--rows/snapshots/c1");
  scratch.write("datasets--owner--rows/snapshots/c2/train.jsonl", "{}\n");
  CHECK_FALSE(find_in_hub_cache(HubKind::datasets, "owner/rows"));  // two, and nothing says which
  scratch.write("datasets--owner--rows/refs/main", "c2\n");
  CHECK(find_in_hub_cache(HubKind::datasets, "owner/rows") == scratch.path() / "datasets--owner--rows/snapshots/c2");
  CHECK(find_in_hub_cache(HubKind::datasets, "owner/rows", "c1") ==
        scratch.path() / "datasets--owner--rows/snapshots/c1");
  CHECK_FALSE(find_in_hub_cache(HubKind::datasets, "owner/rows", "v9"));
  CHECK_FALSE(find_in_hub_cache(HubKind::models, "owner/rows"));
}

TEST_CASE("the cache directory follows HF_HUB_CACHE, then HF_HOME") {
  const ScopedVariable home("HF_HOME", "/somewhere");
  {
    const ScopedVariable none("HF_HUB_CACHE", "");
    CHECK(hub_cache_directory() == "/somewhere/hub");
  }
  const ScopedVariable cache("HF_HUB_CACHE", "/elsewhere");
  CHECK(hub_cache_directory() == "/elsewhere");
}
