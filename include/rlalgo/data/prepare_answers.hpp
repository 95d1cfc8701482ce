// Rows → token ids of a whole `datasets` entry, chunk by chunk and on several threads, in bounded memory.
//
// A chunk of rows is parsed, transformed and tokenized in pieces by a pool of threads and appended to an AnswerSet in
// the order of the rows, so that the result does not depend on the number of threads. What stays in memory is one chunk
// and the entries; token ids lie in the set's arena (id_arena.hpp). A C++ program passes any RowTransform: it is called
// from several threads at a time.
//
// Errors: [rlalgo.data.8] a column mixes kinds; [rlalgo.data.26] no row is left; those of the transform, of
// json_rows.hpp and of preference_tokens.hpp, the first one in the order of the rows of a chunk.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/digest.hpp>
#include <rlalgo/data/answer_set.hpp>
#include <rlalgo/data/json_rows.hpp>
#include <rlalgo/data/preference_tokens.hpp>
#include <rlalgo/data/split.hpp>
#include <rlalgo/data/transform.hpp>
#include <rlalgo/os/thread_pool.hpp>

namespace rlalgo::data {

// 128 bits of what a row says, to find rows that say the same.
using RowDigest = std::array<std::uint64_t, 2>;

[[nodiscard]] RowDigest digest_of(const Json& row, bool desirable);

// Gives up to `limit` further rows; false: there are no more.
using RowChunks = std::function<bool(std::size_t limit, std::vector<Record>& out)>;

struct PrepareConfig {
  TokenizeConfig tokens = {};
  bool digests = false;           // one per example, for deduplication
  int threads = 0;                // 0: as many as the machine has processors
  std::size_t chunk_rows = 4096;  //
  std::string name = "datasets";  // the setting the rows come from, for errors
  std::function<void(std::int64_t rows)> progress = {};
};

struct PreparedRows {
  TokenizeCounts counts;
  std::vector<RowDigest> digests;  // [examples] or empty
};

namespace detail {

struct Piece {
  AnswerSet answers;
  TokenizeCounts counts;
  std::vector<RowDigest> digests;
  std::exception_ptr error;
};

class AnswerMaker {
 public:
  AnswerMaker(const PrepareConfig& config, const RowTransform& transform, const TextTools& tools);

  void add(std::vector<Record>& records, AnswerSet& out, PreparedRows& done);

 private:
  static constexpr std::size_t piece_rows = 64;

  // Calls `work` for every record; raises the first error in the order of the records.
  template <class Work>
  void in_pieces(std::vector<Record>& records, std::vector<Piece>& pieces, const Work& work) {
    pool_.run(static_cast<std::uint32_t>(pieces.size()), [&](std::uint32_t task, int) {
      const std::size_t end = std::min(records.size(), (task + 1) * piece_rows);
      try {
        for (std::size_t i = task * piece_rows; i < end; ++i) work(pieces[task], i, records[i]);
      } catch (...) {
        pieces[task].error = std::current_exception();
      }
    });
    for (const Piece& piece : pieces)
      if (piece.error) std::rethrow_exception(piece.error);
  }

  void make(Piece& piece, std::int64_t number, Record& record) const;

  const PrepareConfig& config_;
  const RowTransform& transform_;
  PreferenceTokenizer tokenizer_;
  std::size_t unit_;
  os::ThreadPool pool_;
  ColumnKinds kinds_;
};

}  // namespace detail

// Appends the answers of all rows to `out`.
PreparedRows prepare_answers(const RowChunks& rows, const RowTransform& transform, const PrepareConfig& config,
                             const TextTools& tools, AnswerSet& out);

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/prepare_answers_impl.hpp>
#endif
