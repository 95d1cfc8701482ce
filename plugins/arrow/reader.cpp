// Reads Parquet and Arrow files (IPC streams, as Hugging Face `datasets` writes them, and IPC files) through Apache Arrow,
// row by row in bounded memory: of Parquet a page of each column and a batch of rows, of Arrow one record batch. Checksums
// of pages are verified. An Arrow stream must end with its end mark: a file that was cut between two batches is damaged.
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <arrow/util/config.h>
#include <arrow/util/utf8.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>

#include <rlalgo/data/columnar_plugin.hpp>

#include "json_text.hpp"

namespace rlalgo::plugin {
namespace {

using data::ColumnarProblem;

struct Problem {
  data::ColumnarProblemKind kind;
  std::string text;
  std::string column = {};
  std::int64_t row = -1;
};

// A text of a fixed size, cut between two characters of UTF-8.
template <std::size_t n>
void copy_text(char (&out)[n], const std::string& text) {
  std::size_t size = std::min(text.size(), n - 1);
  while (size < text.size() && size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U) --size;
  std::memcpy(out, text.data(), size);
  out[size] = '\0';
}

void tell(const Problem& from, ColumnarProblem* to) {
  to->kind = from.kind;
  to->row = from.row;
  copy_text(to->column, from.column);
  copy_text(to->text, from.text);
}

bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// What Arrow says, sorted by what can be done about it.
[[noreturn]] void raise_status(const arrow::Status& status) {
  const std::string text = status.message();
  if (holds(text, "encrypt") || holds(text, "decrypt")) throw Problem{data::columnar_encrypted, text};
  if (status.IsOutOfMemory() || status.IsCapacityError()) throw Problem{data::columnar_too_large, text};
  if (status.IsNotImplemented()) throw Problem{data::columnar_unsupported, text};
  throw Problem{data::columnar_damaged, text};
}

template <class T>
T value_of(arrow::Result<T> result) {
  if (!result.ok()) raise_status(result.status());
  return std::move(result).ValueUnsafe();
}

void require(const arrow::Status& status) {
  if (!status.ok()) raise_status(status);
}

// The memory that open files may take: a page, or a batch of rows, that is beyond it is refused. Arrow's own threads may give
// back a buffer after its file is closed, so the pool is never destroyed.
arrow::MemoryPool* memory() {
  constexpr std::int64_t limit = std::int64_t{4} << 30;
  static auto* const pool = new arrow::CappedMemoryPool(arrow::default_memory_pool(), limit);
  return pool;
}
constexpr std::int64_t batch_rows = 256;
constexpr std::int64_t buffer_bytes = std::int64_t{1} << 20;

class Source {
 public:
  virtual ~Source() = default;
  virtual std::shared_ptr<arrow::RecordBatch> next() = 0;
  // Rows that can be passed over without reading them, at most `rows`; only before the first next().
  virtual std::int64_t leap(std::int64_t) { return 0; }
};

// Indices of `names` in `schema`, in the order of the file; all of those with a JSON form where there are no names.
std::vector<int> chosen_columns(const arrow::Schema& schema, const std::vector<std::string>* names) {
  std::vector<int> out;
  if (names != nullptr)
    for (const std::string& name : *names)
      if (schema.GetAllFieldIndices(name).empty()) {
        std::string all;
        for (const std::string& known : schema.field_names()) all += (all.empty() ? "" : ", ") + known;
        throw Problem{data::columnar_no_column, "columns " + all, name};
      }
  std::map<std::string, bool> seen;
  for (int i = 0; i < schema.num_fields(); ++i) {
    const std::string& name = schema.field(i)->name();
    if (names != nullptr && std::find(names->begin(), names->end(), name) == names->end()) continue;
    if (!seen.emplace(name, true).second) throw Problem{data::columnar_bad_value, "two columns of that name", name};
    if (!arrow::util::ValidateUTF8(name)) throw Problem{data::columnar_bad_value, "a name that is no UTF-8", "?"};
    if (has_json_form(*schema.field(i)->type())) out.push_back(i);
  }
  return out;
}

class ParquetSource final : public Source {
 public:
  ParquetSource(std::shared_ptr<arrow::io::RandomAccessFile> file, arrow::MemoryPool* pool,
                const std::vector<std::string>* names) {
    parquet::ReaderProperties properties(pool);
    properties.enable_buffered_stream();
    properties.set_buffer_size(buffer_bytes);
    properties.set_page_checksum_verification(true);
    parquet::ArrowReaderProperties arrow_properties(false);
    arrow_properties.set_batch_size(batch_rows);
    arrow_properties.set_pre_buffer(false);
    arrow_properties.set_arrow_extensions_enabled(true);
    parquet::arrow::FileReaderBuilder builder;
    require(builder.Open(std::move(file), properties));
    builder.memory_pool(pool)->properties(arrow_properties);
    reader_ = value_of(builder.Build());
    require(reader_->GetSchema(&schema));
    // A column of the schema is one leaf of Parquet, or several.
    const std::vector<int> chosen = chosen_columns(*schema, names);
    const parquet::SchemaDescriptor& leaves = *reader_->parquet_reader()->metadata()->schema();
    for (int leaf = 0; leaf < leaves.num_columns(); ++leaf) {
      const parquet::schema::Node* top = leaves.GetColumnRoot(leaf);
      const int field = leaves.group_node()->FieldIndex(*top);
      if (std::find(chosen.begin(), chosen.end(), field) != chosen.end()) leaves_.push_back(leaf);
    }
    for (int group = 0; group < reader_->num_row_groups(); ++group) groups_.push_back(group);
  }

  std::shared_ptr<arrow::RecordBatch> next() override {
    if (leaves_.empty()) return rows_of_nothing();
    if (!batches_) batches_ = value_of(reader_->GetRecordBatchReader(groups_, leaves_));
    std::shared_ptr<arrow::RecordBatch> batch;
    require(batches_->ReadNext(&batch));
    return batch;
  }

  std::int64_t leap(std::int64_t rows) override {
    std::int64_t passed = 0;
    const auto metadata = reader_->parquet_reader()->metadata();
    while (!groups_.empty()) {
      const std::int64_t size = metadata->RowGroup(groups_.front())->num_rows();
      if (size < 0 || size > rows - passed) break;
      passed += size;
      groups_.erase(groups_.begin());
    }
    return passed;
  }

  std::shared_ptr<arrow::Schema> schema;

 private:
  // Rows of which no column has a JSON form.
  std::shared_ptr<arrow::RecordBatch> rows_of_nothing() {
    if (groups_.empty()) return nullptr;
    const std::int64_t rows = reader_->parquet_reader()->metadata()->RowGroup(groups_.front())->num_rows();
    groups_.erase(groups_.begin());
    return arrow::RecordBatch::Make(arrow::schema({}), rows, arrow::ArrayVector());
  }

  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<int> groups_, leaves_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
};

class IpcFileSource final : public Source {
 public:
  IpcFileSource(std::shared_ptr<arrow::io::RandomAccessFile> file, const arrow::ipc::IpcReadOptions& options)
      : reader_(value_of(arrow::ipc::RecordBatchFileReader::Open(std::move(file), options))) {}
  std::shared_ptr<arrow::RecordBatch> next() override {
    if (at_ == reader_->num_record_batches()) return nullptr;
    return value_of(reader_->ReadRecordBatch(at_++));
  }
  [[nodiscard]] std::shared_ptr<arrow::Schema> schema() const { return reader_->schema(); }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  int at_ = 0;
};

class IpcStreamSource final : public Source {
 public:
  IpcStreamSource(std::shared_ptr<arrow::io::RandomAccessFile> file, const arrow::ipc::IpcReadOptions& options)
      : file_(file), reader_(value_of(arrow::ipc::RecordBatchStreamReader::Open(file.get(), options))) {}
  std::shared_ptr<arrow::RecordBatch> next() override {
    std::shared_ptr<arrow::RecordBatch> batch;
    require(reader_->ReadNext(&batch));
    if (!batch) require_end_mark();
    return batch;
  }
  [[nodiscard]] std::shared_ptr<arrow::Schema> schema() const { return reader_->schema(); }

 private:
  // Four zero bytes come last of what was read; Arrow takes a file that just ends for a whole one.
  void require_end_mark() {
    const std::int64_t at = value_of(file_->Tell());
    char last[4] = {1, 1, 1, 1};
    if (at >= 4) (void)value_of(file_->ReadAt(at - 4, 4, last));
    if (std::string_view(last, 4) != std::string_view("\0\0\0\0", 4))
      throw Problem{data::columnar_damaged, "the stream has no end mark: it was cut, or is still being written"};
  }

  std::shared_ptr<arrow::io::RandomAccessFile> file_;
  std::shared_ptr<arrow::RecordBatchReader> reader_;
};

class Reader {
 public:
  explicit Reader(const data::ColumnarRequest& request) : cells_(request.row_limit), limit_(request.row_limit) {
    std::vector<std::string> names;
    for (std::int64_t i = 0; i < request.number_columns; ++i) names.emplace_back(request.columns[i]);
    const std::vector<std::string>* wanted = request.columns != nullptr ? &names : nullptr;
    auto opened = arrow::io::ReadableFile::Open(request.path, memory());
    if (!opened.ok()) throw Problem{data::columnar_unreadable, opened.status().message()};
    const std::shared_ptr<arrow::io::RandomAccessFile> file = std::move(opened).ValueUnsafe();
    char head[8] = {};
    const std::int64_t size = value_of(file->ReadAt(0, 8, head));
    require(file->Seek(0));  // a stream is read from where the file stands
    const std::string_view magic(head, static_cast<std::size_t>(size));
    if (magic.starts_with("PARE")) throw Problem{data::columnar_encrypted, "the file has an encrypted footer"};
    std::shared_ptr<arrow::Schema> schema;
    if (magic.starts_with("PAR1")) {
      auto source = std::make_unique<ParquetSource>(file, memory(), wanted);
      schema = source->schema;
      source_ = std::move(source);
    } else if (magic.starts_with("ARROW1") || magic.starts_with(std::string_view("\xff\xff\xff\xff", 4))) {
      arrow::ipc::IpcReadOptions options;
      options.memory_pool = memory();
      options.use_threads = false;
      if (magic[0] == 'A') {
        auto source = std::make_unique<IpcFileSource>(file, options);
        schema = source->schema();
        source_ = std::move(source);
      } else {
        auto source = std::make_unique<IpcStreamSource>(file, options);
        schema = source->schema();
        source_ = std::move(source);
      }
      validate_ = true;
      for (const int column : chosen_columns(*schema, wanted)) chosen_.push_back(schema->field(column)->name());
    } else {
      throw Problem{data::columnar_no_such_format, size == 0 ? "an empty file" : "other bytes"};
    }
    for (const auto& field : schema->fields())
      if (!wanted || std::find(names.begin(), names.end(), field->name()) != names.end())
        note_left_out(field->name(), *field->type(), left_out_);
  }

  bool next(data::ColumnarText& row) {
    if (!advance()) return false;
    text_ = "{";
    for (int i = 0; i < batch_->num_columns(); ++i) {
      const std::string& name = batch_->schema()->field(i)->name();
      if (text_.size() > 1) text_ += ',';
      append_text(text_, name);
      text_ += ':';
      try {
        cells_.append(*batch_->column(i), at_, text_);
      } catch (const BadCell& bad) {
        throw Problem{
            bad.kind == BadCell::Kind::large ? data::columnar_too_large : data::columnar_bad_value,
            bad.kind == BadCell::Kind::json ? "a value of the type json that is no JSON: " + bad.found : bad.found,
            name, row_};
      }
      if (cells_.take_not_finite()) left_out_.emplace(name, "NaN");
    }
    text_ += '}';
    if (static_cast<std::int64_t>(text_.size()) > limit_)
      throw Problem{data::columnar_too_large, std::to_string(text_.size()) + " bytes", "", row_};
    ++at_;
    ++row_;
    row = {text_.data(), static_cast<std::int64_t>(text_.size())};
    return true;
  }

  std::int64_t skip(std::int64_t rows) {
    std::int64_t passed = 0;
    if (!begun_) passed = source_->leap(rows);
    row_ += passed;
    while (passed < rows && advance()) {
      const std::int64_t step = std::min(rows - passed, batch_->num_rows() - at_);
      at_ += step;
      row_ += step;
      passed += step;
    }
    return passed;
  }

  data::ColumnarText left_out() {
    text_ = "{";
    for (const auto& [name, type] : left_out_) {
      if (text_.size() > 1) text_ += ',';
      append_text(text_, name);
      text_ += ':';
      append_text(text_, type);
    }
    text_ += '}';
    return {text_.data(), static_cast<std::int64_t>(text_.size())};
  }

 private:
  // Whether there is a row at at_ of batch_.
  bool advance() {
    begun_ = true;
    while (!batch_ || at_ == batch_->num_rows()) {
      batch_ = source_->next();
      at_ = 0;
      if (!batch_) return false;
      if (!validate_) continue;
      require(batch_->ValidateFull());
      std::vector<int> kept;
      for (const std::string& name : chosen_) kept.push_back(batch_->schema()->GetFieldIndex(name));
      batch_ = value_of(batch_->SelectColumns(kept));
    }
    return true;
  }

  CellWriter cells_;
  std::int64_t limit_;
  std::unique_ptr<Source> source_;
  std::vector<std::string> chosen_;              // of an Arrow file
  std::map<std::string, std::string> left_out_;  // name → type
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::int64_t at_ = 0, row_ = 0;  // of the batch, of the file
  bool begun_ = false, validate_ = false;
  std::string text_;
};

// Nothing that is thrown crosses to the program.
template <class Result>
Result guarded(ColumnarProblem* problem, Result failed, const std::function<Result()>& call) {
  try {
    return call();
  } catch (const Problem& found) {
    tell(found, problem);
  } catch (const parquet::ParquetException& error) {
    const std::string text = error.what();
    tell({holds(text, "ncrypt") || holds(text, "ecrypt") ? data::columnar_encrypted : data::columnar_damaged, text},
         problem);
  } catch (const std::bad_alloc&) {
    tell({data::columnar_too_large, "more than the memory"}, problem);
  } catch (const std::exception& error) {
    tell({data::columnar_damaged, error.what()}, problem);
  }
  return failed;
}

void* open(const data::ColumnarRequest* request, ColumnarProblem* problem) {
  return guarded<void*>(problem, nullptr, [&]() -> void* {
    arrow::util::InitializeUTF8();
    return new Reader(*request);
  });
}
int next(void* handle, data::ColumnarText* row, ColumnarProblem* problem) {
  return guarded<int>(problem, -1, [&] { return static_cast<Reader*>(handle)->next(*row) ? 1 : 0; });
}
std::int64_t skip(void* handle, std::int64_t rows, ColumnarProblem* problem) {
  return guarded<std::int64_t>(problem, -1, [&] { return static_cast<Reader*>(handle)->skip(rows); });
}
data::ColumnarText left_out(void* handle) { return static_cast<Reader*>(handle)->left_out(); }
void close(void* handle) { delete static_cast<Reader*>(handle); }

}  // namespace
}  // namespace rlalgo::plugin

extern "C" __attribute__((visibility("default"))) const rlalgo::data::ColumnarPlugin* rlalgo_columnar_plugin() {
  using namespace rlalgo::plugin;
  static const rlalgo::data::ColumnarPlugin table = {
      rlalgo::data::columnar_plugin_version, "Arrow " ARROW_VERSION_STRING, open, next, skip, left_out, close};
  return &table;
}
