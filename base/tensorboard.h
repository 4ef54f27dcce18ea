#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/layout.h"
#include "lopt/base/metrics.h"
#include "lopt/base/pictures.h"

namespace lopt {

// Names of the directory's event files that a TensorBoardWriter wrote, in the order in which
// TensorBoard reads them. Throws Error if it cannot be listed.
std::vector<std::string> EventFiles(const std::string& directory);

// A node of a graph that TensorBoard shows: an operation or a tensor.
struct GraphNode {
  std::string name;                      // distinct within the graph; "a/b" is in the box "a"
  std::string op;                        // what kind of node it is, such as "aten::mm"
  std::vector<std::string> inputs = {};  // names of nodes
  std::optional<Shape> shape = {};       // of what comes out, where that is one tensor

  bool operator==(const GraphNode& other) const = default;
};

// TensorBoard event files, `<dir>/events.out.tfevents.<seconds>.lopt`: a record is length, masked
// crc32c of it, the Event message, masked crc32c of that.
class TensorBoardWriter {
 public:
  // A new file that starts with the version record; its name sorts after those of the older ones,
  // so TensorBoard shows a resumed run as one. `wall_time_seconds` is that of the first record.
  // Throws Error if it cannot be opened.
  TensorBoardWriter(const std::string& directory, double wall_time_seconds);
  ~TensorBoardWriter();
  // Scalars, by their tags.
  void Write(int64_t step, double wall_time_seconds, const Metrics& metrics);
  // A picture, as PNG.
  void WriteImage(int64_t step, double wall_time_seconds, const std::string& tag,
                  const Bitmap& bitmap);
  // The graph of the run, for TensorBoard's tab of that name; it shows the last one. Throws Error
  // if two nodes have one name, or an input is none of them.
  void WriteGraph(double wall_time_seconds, const std::vector<GraphNode>& nodes);
  // Hands what was written to the system; throws Error if that fails (a full disk).
  void Flush();
  // Forgets what was not handed over.
  void Drop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lopt
