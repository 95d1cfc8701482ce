// The only file that is compiled with a path of this clone, so that every other object serves all clones.
namespace rlalgo::support {
extern const char* const test_dir;
const char* const test_dir = RLALGO_TEST_DIR;
}  // namespace rlalgo::support
