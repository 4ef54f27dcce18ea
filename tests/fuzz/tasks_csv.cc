// Images as CSV: the options that go with them, a test and a training file.
#include <fmt/format.h>

#include "lopt/base/options.h"
#include "lopt/tasks/data/csv_images.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

void ReadCsv(std::string_view input) {
  const std::vector<std::string> parts = SplitParts(input, 3);
  const std::string directory = FreshDirectory();
  if (!parts[1].empty()) PutFile(directory, "test.csv", parts[1]);
  PutFile(directory, "train.csv", parts[2]);
  ReadCsvImages(directory, ReadOptions<CsvOptions>(Config::Parse(parts[0], "options")));
}

std::vector<std::string> CsvSeeds() {
  std::string rows;
  for (int i = 0; i < 10; ++i) rows += fmt::format("0,1,2,3,{}\n", i);
  return {JoinParts({"{}", "", rows}),
          JoinParts({R"({"csv_shape": [1, 4, 1], "csv_white": 3})", "3,2,1,0,255\r\n", rows})};
}

const AddFuzzTarget csv_target({"tasks_csv", ReadCsv, CsvSeeds});

}  // namespace
}  // namespace lopt
