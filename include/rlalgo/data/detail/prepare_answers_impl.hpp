// Definitions of prepare_answers.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/digest.hpp>
#include <rlalgo/core/located.hpp>
#include <rlalgo/data/answer_set.hpp>
#include <rlalgo/data/json_rows.hpp>
#include <rlalgo/data/preference_tokens.hpp>
#include <rlalgo/data/prepare_answers.hpp>
#include <rlalgo/data/split.hpp>
#include <rlalgo/data/transform.hpp>
#include <rlalgo/os/processors.hpp>
#include <rlalgo/os/thread_pool.hpp>

namespace rlalgo::data {

RLALGO_INLINE RowDigest digest_of(const Json& row, bool desirable) {
  const std::string text = detail::canonical_text(row) + (desirable ? "+" : "-");
  return {core::Digest().add(text).value(), core::Digest().add("second").add(text).value()};
}

namespace detail {

RLALGO_INLINE AnswerMaker::AnswerMaker(const PrepareConfig& config, const RowTransform& transform,
                                       const TextTools& tools)
    : config_(config),
      transform_(transform),
      tokenizer_(config.tokens, tools),
      unit_(config.tokens.family == PreferenceFamily::unpaired ? 1 : 2),
      pool_(config.threads > 0 ? config.threads : os::usable_processors()) {}

RLALGO_INLINE void AnswerMaker::add(std::vector<Record>& records, AnswerSet& out, PreparedRows& done) {
  const std::size_t count = (records.size() + piece_rows - 1) / piece_rows;
  std::vector<Piece> pieces(count);
  in_pieces(records, pieces, [&](Piece&, std::size_t, Record& record) { parse(record); });
  for (const Record& record : records) kinds_.check(record.value, record.origin);
  in_pieces(records, pieces, [&](Piece& piece, std::size_t i, Record& record) {
    if (i % piece_rows == 0) piece.answers = AnswerSet(unit_);
    make(piece, done.counts.rows + static_cast<std::int64_t>(i), record);
  });
  for (Piece& piece : pieces) {
    for (std::size_t e = 0; e < piece.answers.examples(); ++e) out.append(piece.answers, e);
    done.counts += piece.counts;
    done.digests.insert(done.digests.end(), piece.digests.begin(), piece.digests.end());
  }
}

RLALGO_INLINE void AnswerMaker::make(Piece& piece, std::int64_t number, Record& record) const {
  const std::string where = record.origin.text();
  core::located(where, [&] { transform_(record.value, where); });
  const std::size_t before = piece.answers.examples();
  if (!config_.digests) return tokenizer_.add(std::move(record.value), number, where, piece.answers, piece.counts);
  tokenizer_.add(record.value, number, where, piece.answers, piece.counts);
  for (std::size_t e = before; e < piece.answers.examples(); ++e)
    piece.digests.push_back(digest_of(record.value, unit_ == 1 && piece.answers.desirable(e)));
}

}  // namespace detail

RLALGO_INLINE PreparedRows prepare_answers(const RowChunks& rows, const RowTransform& transform,
                                           const PrepareConfig& config, const TextTools& tools, AnswerSet& out) {
  PreparedRows done;
  const std::size_t before = out.examples();
  detail::AnswerMaker maker(config, transform, tools);
  for (std::vector<Record> records; rows(config.chunk_rows, records);) {
    maker.add(records, out, done);
    if (config.progress) config.progress(done.counts.rows);
  }
  if (out.examples() == before) raise_nothing_left(done.counts.rows, config.name);
  return done;
}

}  // namespace rlalgo::data
