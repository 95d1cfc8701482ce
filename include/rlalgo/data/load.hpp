// Loads the rows of one `datasets` entry into memory, columns unified. data/dataset_files.hpp says which files these
// are, data/row_stream.hpp which of their rows a `split` expression takes.
//
// Errors: those of the two headers.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <rlalgo/data/row_stream.hpp>
#include <rlalgo/data/table.hpp>

namespace rlalgo::data {

// The rows that `source` names; at least one.
[[nodiscard]] inline Table load(const DatasetSource& source) {
  constexpr std::size_t chunk = 1024;
  Table out;
  RowStream rows(source);
  for (std::vector<Record> records; rows.next(chunk, records);)
    for (Record& record : records) {
      parse(record);
      out.append(std::move(record.value), std::move(record.origin));
    }
  out.unify_columns();
  return out;
}

}  // namespace rlalgo::data
