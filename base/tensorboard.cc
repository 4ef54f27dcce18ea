#include "lopt/base/tensorboard.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <set>

#include "lopt/base/error.h"
#include "lopt/base/event_records.h"
#include "lopt/base/file.h"
#include "lopt/base/output_file.h"
#include "lopt/base/png.h"
#include "tensorboard_event.pb.h"

namespace lopt {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr std::string_view kOwnEnd = ".lopt";
constexpr char kShapes[] = "_output_shapes";  // of what comes out of a node
constexpr char kFileVersion[] = "brain.Event:2";

// The number after the prefix; 0 if there is none.
int64_t SecondsOf(std::string_view name) {
  int64_t seconds = 0;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), seconds);
  return seconds;
}

// A name that sorts after those of `older`, whatever the clock says: TensorBoard reads the files of
// a directory in the order of their names and never goes back.
std::string NextName(const std::vector<std::string>& older, double wall_time_seconds) {
  int64_t seconds = static_cast<int64_t>(std::floor(wall_time_seconds));
  if (!older.empty()) {
    seconds = std::max(seconds, SecondsOf(older.back()) + 1);
  }
  return fmt::format("{}{:010}{}", kPrefix, seconds, kOwnEnd);
}

// Of any program, in the order of their names.
std::vector<std::string> AllEventFiles(const std::string& directory) {
  std::vector<std::string> names;
  std::ranges::copy_if(ListDirectory(directory), std::back_inserter(names),
                       [](const std::string& name) { return name.starts_with(kPrefix); });
  return names;
}

}  // namespace

std::vector<std::string> EventFiles(const std::string& directory) {
  std::vector<std::string> names = AllEventFiles(directory);
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(kOwnEnd); });
  return names;
}

struct TensorBoardWriter::Impl {
  explicit Impl(const std::string& path) : file(path, OpenFor::kReplace) {}

  OutputFile file;

  void Write(const tensorboard::Event& event) {
    file.Write(EventRecord(event.SerializeAsString()));
  }
};

TensorBoardWriter::TensorBoardWriter(const std::string& directory, double wall_time_seconds)
    : impl_(std::make_unique<Impl>(directory + "/" +
                                   NextName(AllEventFiles(directory), wall_time_seconds))) {
  tensorboard::Event version;
  version.set_wall_time(wall_time_seconds);
  version.set_file_version(kFileVersion);
  impl_->Write(version);
}

TensorBoardWriter::~TensorBoardWriter() = default;

void TensorBoardWriter::Write(int64_t step, double wall_time_seconds, const Metrics& metrics) {
  tensorboard::Event event;
  event.set_wall_time(wall_time_seconds);
  event.set_step(step);
  for (const auto& [name, value] : metrics) {
    tensorboard::Summary::Value* entry = event.mutable_summary()->add_value();
    entry->set_tag(name);
    entry->set_simple_value(static_cast<float>(value));
  }
  impl_->Write(event);
}

void TensorBoardWriter::WriteImage(int64_t step, double wall_time_seconds, const std::string& tag,
                                   const Bitmap& bitmap) {
  tensorboard::Event event;
  event.set_wall_time(wall_time_seconds);
  event.set_step(step);
  tensorboard::Summary::Value* entry = event.mutable_summary()->add_value();
  entry->set_tag(tag);
  tensorboard::Summary::Image* image = entry->mutable_image();
  image->set_height(static_cast<int32_t>(bitmap.height));
  image->set_width(static_cast<int32_t>(bitmap.width));
  image->set_colorspace(static_cast<int32_t>(bitmap.channels));
  image->set_encoded_image_string(EncodePng(bitmap));
  impl_->Write(event);
}

void TensorBoardWriter::WriteGraph(double wall_time_seconds, const std::vector<GraphNode>& nodes) {
  std::set<std::string> names;
  for (const GraphNode& node : nodes) {
    Require(names.insert(node.name).second, "TensorBoard: two nodes of a graph have the name '{}'",
            node.name);
  }
  tensorboard::GraphDef graph;
  for (const GraphNode& node : nodes) {
    tensorboard::Node* entry = graph.add_node();
    entry->set_name(node.name);
    entry->set_op(node.op);
    for (const std::string& input : node.inputs) {
      Require(names.contains(input), "TensorBoard: '{}', an input of '{}', is no node of the graph",
              input, node.name);
      entry->add_input(input);
    }
    if (!node.shape) continue;
    tensorboard::Shape* shape = (*entry->mutable_attr())[kShapes].mutable_list()->add_shape();
    for (const int64_t size : *node.shape) shape->add_dim()->set_size(size);
  }
  tensorboard::Event event;
  event.set_wall_time(wall_time_seconds);
  event.set_graph_def(graph.SerializeAsString());
  impl_->Write(event);
}

void TensorBoardWriter::Flush() { impl_->file.Flush(); }
void TensorBoardWriter::Drop() { impl_->file.Drop(); }

}  // namespace lopt
