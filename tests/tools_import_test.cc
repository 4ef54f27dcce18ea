// Fixtures of the weights in mlp_lopt_steps.safetensors, written by flax 0.12.8 on jax 0.10.2:
//   theta = {f"mlp/~/linear_{l}": {n: jnp.asarray(tensors[f"theta/mlp/linear_{l}/{n}"])
//            for n in "wb"} for l in range(3)}
// haiku_theta.msgpack, with the fields of google/learned_optimization's ParameterCheckpoint:
//   serialization.to_bytes(ParameterCheckpoint(params=theta, gen_id="run 1", step=500))
// haiku_learner_state.msgpack, with those of its GradientLearnerState, arrays in chunks of 1 KiB:
//   serialization.MAX_CHUNK_SIZE = 1024
//   serialization.to_bytes(GradientLearnerState(theta_opt_state=OptaxState(params=theta,
//   state=None,
//       optax_opt_state=optax.adam(1e-3).init(theta), iteration=jnp.asarray(7, jnp.int32))))
// haiku_rnn_mlp_theta.msgpack, by flax 0.12.12: serialization.to_bytes of the initial theta, with
// noise added, of
//   RNNMLPLOpt(hidden_size=3, hidden_layer=1, from_mlp_size=2, from_lstm_size=4, lstm_to_ff=3,
//              lstm_hidden_size=2)
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/file.h"
#include "lopt/base/npz.h"
#include "lopt/base/safetensors.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/rnn/rnn_mlp_lopt.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tools/import/flax_msgpack.h"
#include "lopt/tools/import/haiku_params.h"
#include "tests/golden_dir.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/skip.h"
#include "tests/temp_directory.h"
#include "tests/text_parts.h"

namespace lopt {
namespace {

using Json = nlohmann::json;

// Of these files' own directory: the fixtures and the trace that their weights are from.
std::string Fixture(const std::string& file) { return SourcePath("tests/golden/" + file); }

NamedArrays GoldenTheta() {
  return ReadArrayFile(Fixture("mlp_lopt_steps.safetensors")).arrays.Extract("theta/");
}

const Layout& MlpLayout() {
  static const Layout layout = MLPLOpt().theta_layout();
  return layout;
}

const Layout kSmall({{"log_lr", {1}}, {"net/w", {2, 3}}});

FoundArray Found(const std::string& path, const Shape& shape,
                 const std::string& dtype = "float32") {
  return {.path = path,
          .dtype = dtype,
          .shape = shape,
          .values = dtype == "float32" ? Array(DType::kFloat32, shape) : Array()};
}

template <class Call>
std::string ErrorOf(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

std::string FindError(const std::vector<FoundArray>& arrays, const std::string& key = "") {
  return ErrorOf([&] { FindTensors(arrays, kSmall, key, "x"); });
}

// An array as flax writes it.
Json Ext(const Json& content, uint64_t type = 1) {
  return Json::binary(Json::to_msgpack(content), type);
}

Json Floats(const Json& shape, const std::vector<float>& values,
            const std::string& dtype = "float32") {
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  return Ext({shape, dtype,
              Json::binary(std::vector<uint8_t>(bytes, bytes + values.size() * sizeof(float)))});
}

std::vector<std::byte> Bytes(const Json& json) {
  const std::vector<uint8_t> bytes = Json::to_msgpack(json);
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  return {begin, begin + bytes.size()};
}

std::string MsgpackError(const Json& json) {
  return ErrorOf([&] { ParseFlaxMsgpack(Bytes(json), "x"); });
}

FinishedProcess Import(std::vector<std::string> words) {
  words.insert(words.begin(), {BuildPath("lopt"), "import"});
  return RunProcess(words);
}

}  // namespace

TEST_CASE("A golden theta that flax saved is found, bit for bit") {
  const std::string path = Fixture("haiku_theta.msgpack");
  CHECK(FindTensors(ReadHaikuParams(path), MlpLayout(), "", path) == GoldenTheta());
}

TEST_CASE("A golden learner state holds theta and its moments, and a key chooses") {
  const std::string path = Fixture("haiku_learner_state.msgpack");
  const std::vector<FoundArray> arrays = ReadHaikuParams(path);
  CHECK(arrays.size() == 20);
  CHECK(FindTensors(arrays, MlpLayout(), "theta_opt_state/params", path) == GoldenTheta());
  CHECK(ErrorOf([&] { FindTensors(arrays, MlpLayout(), "", path); }) ==
        path +
            ": the tensors wanted are there 3 times; --key chooses one of: "
            "theta_opt_state/optax_opt_state/0/mu, theta_opt_state/optax_opt_state/0/nu, "
            "theta_opt_state/params");
}

TEST_CASE("Golden weights in an npz file are found under the usual spellings of their keys") {
  const TempDirectory directory;
  const std::string path = directory / "x.npz";
  for (const char* spelling :
       {"mlp/~/linear_{}/{}", "mlp/linear_{}/{}", "mlp/~/linear_{}//{}", "mlp/~/linear_{}:{}",
        "params/mlp/~/linear_{}/{}", "a/b:mlp/~/linear_{}:{}"}) {
    CAPTURE(spelling);
    NamedArrays arrays;
    arrays.Set("step", Array(DType::kInt64, {}));
    for (const auto& [name, array] : GoldenTheta()) {
      const std::string layer(1, name.at(11));
      arrays.Set(fmt::format(fmt::runtime(spelling), layer, name.substr(13)), array);
    }
    WriteNpz(path, arrays);
    CHECK(FindTensors(ReadHaikuParams(path), MlpLayout(), "", path) == GoldenTheta());
  }
}

TEST_CASE("Scalars are taken where a tensor has one element") {
  std::vector<FoundArray> arrays = {Found("log_lr", {}), Found("net/w", {2, 3})};
  arrays[0].values.As<float>()[0] = 3;
  CHECK(FindTensors(arrays, kSmall, "", "x").At("log_lr") ==
        Array::Of<float>({1}, std::vector<float>{3}));
}

TEST_CASE("Tensors that are missing or of other shapes are an Error that lists wanted and found") {
  const std::string start =
      "x: the tensors wanted are not there; wanted: log_lr [1], net/w [2, 3]; found: ";
  CHECK(FindError({}) == start + "no arrays");
  CHECK(FindError({Found("net/w", {2, 3}), Found("step", {}, "int64")}) ==
        start + "net/w float32 [2, 3], step int64 []");
  CHECK(FindError({Found("a/log_lr", {}), Found("b/net/w", {2, 3})}) ==
        start + "a/log_lr float32 [], b/net/w float32 [2, 3]");
  CHECK(FindError({Found("log_lr", {1}), Found("net/w", {3, 2})}) ==
        start + "log_lr float32 [1], net/w float32 [3, 2]");
  const std::vector<FoundArray> many(50, Found("a", {}));
  CHECK(FindError(many).ends_with(", a float32 [], and 10 more"));
}

TEST_CASE("Keys that do not lead to the tensors are an Error") {
  const std::vector<FoundArray> arrays = {Found("log_lr", {}), Found("net/w", {2, 3}),
                                          Found("mu/log_lr", {}), Found("mu/net/w", {2, 2})};
  const std::string lists =
      "log_lr [1], net/w [2, 3]; found: log_lr float32 [], net/w float32 [2, 3], mu/log_lr "
      "float32 [], mu/net/w float32 [2, 2]";
  CHECK(FindError(arrays) == "no Error");
  CHECK(FindError(arrays, ".") == "no Error");
  CHECK(FindError(arrays, "nu") == "x: below 'nu' is no tensor of: " + lists);
  CHECK(FindError(arrays, "mu") == "x: below 'mu' the tensors do not fit; wanted: " + lists);
}

TEST_CASE("Weights that the optimizer does not have are an Error") {
  CHECK(FindError({Found("a/log_lr", {}), Found("a/net/b", {3}), Found("a/net/w", {2, 3})}) ==
        "x: a/net/b [3] is not one of the tensors wanted: log_lr [1], net/w [2, 3]");
}

TEST_CASE("Weights that are not float32 are an Error") {
  for (const std::string dtype : {"float64", "bfloat16", "int32"}) {
    CHECK(FindError({Found("log_lr", {}), Found("net/w", {2, 3}, dtype)}) ==
          "x: net/w is " + dtype +
              "; weights are float32, convert them with astype(numpy.float32)");
  }
}

TEST_CASE("Two arrays of one path are an Error") {
  const TempDirectory directory;
  const std::string path = directory / "x.npz";
  NamedArrays arrays;
  arrays.Set("mlp/~/w", Array(DType::kFloat32, {1}));
  arrays.Set("mlp/w", Array(DType::kFloat32, {1}));
  WriteNpz(path, arrays);
  CHECK(ErrorOf([&] { ReadHaikuParams(path); }) == path + ": two arrays are mlp/w");
}

TEST_CASE("The msgpack of flax holds arrays, scalars and other things") {
  const Json json = {{"a", Floats({2}, {1, 2})},
                     {"b", {{"c", Floats(Json::array(), {3})}}},
                     {"half", Ext({Json{1}, "bfloat16", Json::binary({1, 2})})},
                     {"scalar", Ext({Json::array(), "int64", Json::binary({1})}, 3)},
                     {"complex", Ext({1.0, 2.0}, 2)},
                     {"text", "a"},
                     {"list", {1, 2}},
                     {"none", nullptr}};
  const std::vector<FoundArray> found = ParseFlaxMsgpack(Bytes(json), "x");
  REQUIRE(found.size() == 4);
  CHECK(found[0].path == "a");
  CHECK(found[0].values == Array::Of<float>({2}, std::vector<float>{1, 2}));
  CHECK(found[1].path == "b/c");
  CHECK(found[1].values == Array::Of<float>({}, std::vector<float>{3}));
  CHECK(found[2].dtype == "bfloat16");
  CHECK(found[2].shape == Shape{1});
  CHECK(found[3].path == "scalar");
}

TEST_CASE("Damaged msgpack is an Error") {
  CHECK(MsgpackError(Json::array()) == "x: not the msgpack of flax: the top is not a dictionary");
  CHECK(MsgpackError({{"a", Floats({3}, {1, 2})}}) == "x: a: float32 of shape [3] has 8 bytes");
  CHECK(MsgpackError({{"a", Floats({1 << 30, 1 << 30, 1 << 30}, {1, 2})}}) ==
        "x: a: float32 of shape [1073741824, 1073741824, 1073741824] has 8 bytes");
  CHECK(MsgpackError({{"a", Floats({-1}, {1})}}) == "x: a: the shape is not a list of sizes");
  CHECK(MsgpackError({{"a", Ext({1, 2})}}) == "x: a: an array must be [shape, dtype, bytes]");
  CHECK(MsgpackError({{"a", {{"__msgpack_chunked_array__", true}}}}) ==
        "x: a: an array in chunks must have shape and chunks");
  CHECK(MsgpackError({{"a",
                       {{"__msgpack_chunked_array__", true},
                        {"shape", {{"0", 3}}},
                        {"chunks", {{"0", Floats({2}, {1, 2})}}}}}}) ==
        "x: a: float32 of shape [3] has 8 bytes");
  Json deep = 1;
  for (int i = 0; i < 65; ++i) deep = Json{{"a", deep}};
  CHECK(MsgpackError(deep) == "x: not the msgpack of flax: more than 64 levels of nesting");
  const std::vector<std::byte> bomb(1'000'000, std::byte{0x91});
  CHECK(ErrorOf([&] { ParseFlaxMsgpack(bomb, "x"); }) ==
        "x: not the msgpack of flax: more than 64 levels of nesting");
}

TEST_CASE("Every cut of a golden file of flax is an Error") {
  const std::vector<std::byte> bytes = ReadFile(Fixture("haiku_theta.msgpack"));
  for (size_t size = 0; size < bytes.size(); ++size) {
    CHECK(ErrorOf([&] { ParseFlaxMsgpack(std::span(bytes).first(size), "x"); }) != "no Error");
  }
}

TEST_CASE("The program imports golden weights and writes a theta file with all options") {
  const TempDirectory directory;
  const std::string out = directory / "theta.safetensors";
  const FinishedProcess finished =
      Import({Fixture("haiku_theta.msgpack"), "--out", out, "--learned-optimizer",
              R"({"type": "MLPLOpt", "step_mult": 0.01})"});
  CHECK(finished.errors.empty());
  CHECK(finished.exit_code == 0);
  CHECK(finished.output == out + ": 1762 numbers of a MLPLOpt\n");
  const ThetaFile read = ReadThetaFile(out);
  CHECK(read.learned_optimizer.Dump(-1) ==
        R"({"type":"MLPLOpt","hidden_size":32,"hidden_layers":2,"exp_mult":0.001,"step_mult":0.01,)"
        R"("progress_features":false,"schedule":"constant","relative_step":false,)"
        R"("relative_to_parameter":false,"normalizer_epsilon":1e-05,"precision":"fp32"})");
  CHECK(ReadArrayFile(out).arrays.Extract("theta/") == GoldenTheta());

  const FinishedProcess learner =
      Import({Fixture("haiku_learner_state.msgpack"), "--out", directory / "second.safetensors",
              "--key", "theta_opt_state/params"});
  CHECK(learner.exit_code == 0);
  CHECK(ReadArrayFile(directory / "second.safetensors").arrays.Extract("theta/") == GoldenTheta());
}

TEST_CASE("The published file of Celo2, whose tensors are in the order of strings, is imported") {
  const TempDirectory directory;
  const std::string out = directory / "theta.safetensors";
  const std::string file = GoldenPath("celo2_theta.state");
  for (const std::string type : {"Celo2", "Celo2Base"}) {
    const FinishedProcess finished = Import(
        {file, "--out", out, "--learned-optimizer", fmt::format(R"({{"type": "{}"}})", type)});
    CHECK(finished.errors.empty());
    CHECK(finished.output == fmt::format("{}: 347 numbers of a {}\n", out, type));
    const NamedArrays wanted =
        ReadArrayFile(GoldenPath("celo2_steps.safetensors")).arrays.Extract("theta/");
    CHECK(ReadArrayFile(out).arrays.Extract("theta/") == wanted);
  }
}

TEST_CASE("Weights of Celo and of other architectures are not imported as those of Celo2") {
  const TempDirectory directory;
  const std::string out = directory / "theta.safetensors";
  const auto errors = [&](const auto& change) {
    ArrayFile file;
    for (const auto& [name, array] :
         ReadArrayFile(GoldenPath("celo2_steps.safetensors")).arrays.Extract("theta/")) {
      file.arrays.Set("ff_mod_stack/~/" + name, array);
    }
    change(file.arrays);
    const std::string path = directory / "x.safetensors";
    WriteArrayFile(path, file);
    const std::string errors =
        Import({path, "--out", out, "--learned-optimizer", R"({"type": "Celo2"})"}).errors;
    REQUIRE(errors.starts_with("lopt: " + path + ": "));
    return errors.substr(("lopt: " + path + ": ").size());
  };
  CHECK(errors([](NamedArrays& arrays) {
          arrays.Set("ff_mod_stack/~/w0__0", Array(DType::kFloat32, {1, 1, 4}));
        }) ==
        "the weights are of Celo, not of Celo2: ff_mod_stack/w0__0 is [1, 1, 4]; a Celo2 has no "
        "leading axis and 8 hidden units: [1, 8]\n");
  const std::string wider = errors([](NamedArrays& arrays) {
    arrays.Set("ff_mod_stack/~/w1", Array(DType::kFloat32, {8, 16}));
  });
  CHECK(
      wider.starts_with("the tensors wanted are not there; wanted: w0__0 [1, 8], w0__1 [1, 8], "));
  CHECK(At(wider, "w1 [8, 8], ") < At(wider, "; found: "));
  CHECK(wider.find("ff_mod_stack/w1 float32 [8, 16]") != std::string::npos);
  const std::string more = errors([](NamedArrays& arrays) {
    arrays.Set("ff_mod_stack/~/w0__14", Array(DType::kFloat32, {3, 8}));
  });
  CHECK(more.starts_with("ff_mod_stack/w0__14 [3, 8] is not one of the tensors wanted: w0__0 "));
  CHECK_FALSE(std::filesystem::exists(out));
}

// A file with the weights of a golden trace, with haiku's "~" as the published files have it.
std::string CeloWeights(const TempDirectory& directory, const std::string& trace) {
  ArrayFile file;
  for (const auto& [name, array] : ReadArrayFile(GoldenPath(trace)).arrays.Extract("theta/")) {
    std::string own(name);
    if (own.starts_with("ff_mod_stack/")) own.insert(own.find('/') + 1, "~/");
    file.arrays.Set(own, array);
  }
  const std::string path = directory / trace;
  WriteArrayFile(path, file);
  return path;
}

FinishedProcess ImportAs(const std::string& type, const std::string& file, const std::string& out) {
  return Import(
      {file, "--out", out, "--learned-optimizer", fmt::format(R"({{"type": "{}"}})", type)});
}

TEST_CASE("Weights of Celo, CeloAdam and Sinv6 are imported, and the trees are told apart") {
  const TempDirectory directory;
  const std::string out = directory / "theta.safetensors";
  const std::string celo = CeloWeights(directory, "celo_steps_drawn.safetensors");
  const std::string adam = CeloWeights(directory, "celo_adam_steps_drawn.safetensors");
  for (const auto& [type, file, numbers] :
       {std::tuple("Celo", celo, 37089), std::tuple("CeloAdam", adam, 36865),
        std::tuple("Sinv6", adam, 36865)}) {
    const FinishedProcess finished = ImportAs(type, file, out);
    CHECK(finished.errors == "");
    CHECK(finished.output == fmt::format("{}: {} numbers of a {}\n", out, numbers, type));
    const std::string trace =
        file == celo ? "celo_steps_drawn.safetensors" : "celo_adam_steps_drawn.safetensors";
    CHECK(ReadArrayFile(out).arrays.Extract("theta/") ==
          ReadArrayFile(GoldenPath(trace)).arrays.Extract("theta/"));
  }
  const std::string other = directory / "other.safetensors";
  CHECK(ImportAs("CeloAdam", celo, other)
            .errors.starts_with("lopt: " + celo +
                                ": rnn_params/rnn_to_controls/b [1] is not one of the tensors "
                                "wanted: lstm_init_state/hidden [1, 64], "));
  CHECK(ImportAs("Celo", adam, other)
            .errors.starts_with("lopt: " + adam +
                                ": the tensors wanted are not there; wanted: "
                                "ff_mod_stack/w0__0 [1, 1, 4], "));
  CHECK(ImportAs("Celo2", celo, other).errors.find("the weights are of Celo, not of Celo2") !=
        std::string::npos);
}

TEST_CASE("The published files of Celo, CeloAdam and Sinv6 are imported") {
  const TempDirectory directory;
  const std::string out = directory / "theta.safetensors";
  for (const auto& [type, name] : {std::pair("Celo", "celo"), std::pair("CeloAdam", "celo_adam"),
                                   std::pair("Sinv6", "sinv6")}) {
    const std::string file = GoldenPath(fmt::format("../data/celo/{}.theta.state", name));
    if (!std::filesystem::exists(file)) {
      SkipTest("beside the directory LOPT_GOLDEN_DIR there is no data/celo/ with the weights");
      return;
    }
    CHECK(ImportAs(type, file, out).errors == "");
    CHECK(ReadArrayFile(out).arrays.Extract("theta/") ==
          ReadArrayFile(GoldenPath(fmt::format("{}_steps.safetensors", name)))
              .arrays.Extract("theta/"));
  }
}

const char* const kAdafac = R"({"type": "AdafacMLPLOpt", "hidden_size": 32, "step_mult": 0.01})";

NamedArrays AdafacTheta() {
  return ReadArrayFile(GoldenPath("adafac_mlp_steps_large.safetensors")).arrays.Extract("theta/");
}

TEST_CASE("Weights of AdafacMLPLOpt are imported from flax, as the JAX package has them") {
  const TempDirectory directory;
  Json params;
  for (const auto& [name, array] : AdafacTheta()) {
    const auto values = array.As<float>();
    const Json leaf = Floats(array.shape(), {values.begin(), values.end()});
    if (name.starts_with("nn/")) {
      params["nn"]["~"][name.substr(3)] = leaf;
    } else {
      params[name] = leaf;
    }
  }
  const std::vector<std::byte> bytes = Bytes({{"params", params}, {"gen_id", "x"}});
  const std::string path = directory / "params.msgpack";
  WriteTextFile(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const std::string out = directory / "theta.safetensors";
  const FinishedProcess finished = Import({path, "--out", out, "--learned-optimizer", kAdafac});
  CHECK(finished.errors.empty());
  CHECK(finished.output == out + ": 2409 numbers of a AdafacMLPLOpt\n");
  CHECK(ReadArrayFile(out).arrays.Extract("theta/") == AdafacTheta());
}

// The golden weights as PyLO has them: torch's names, [out, in], no decays.
NamedArrays PyloNetwork() {
  NamedArrays network;
  const std::vector<std::string> layers = {"input", "linear_0", "output"};
  for (size_t l = 0; l < layers.size(); ++l) {
    const Array w = AdafacTheta().At(fmt::format("nn/w{}", l));
    const int64_t in = w.shape()[0];
    const int64_t out = w.shape()[1];
    Array transposed(DType::kFloat32, {out, in});
    for (int64_t i = 0; i < in * out; ++i) {
      transposed.As<float>()[i % out * in + i / out] = w.As<float>()[i];
    }
    network.Set("network." + layers[l] + ".weight", transposed);
    network.Set("network." + layers[l] + ".bias", AdafacTheta().At(fmt::format("nn/b{}", l)));
  }
  return network;
}

std::string GoldenDecays() {
  Json decays;
  for (const char* name : {"momentum_decays", "rms_decays", "adafactor_decays"}) {
    const Array array = AdafacTheta().At(name);
    for (const float x : std::as_const(array).As<float>()) decays[name].push_back(x);
  }
  return decays.dump();
}

TEST_CASE("Weights of PyLO are transposed; their decays are given beside them or in the file") {
  const TempDirectory directory;
  const std::string path = directory / "model.safetensors";
  const std::string out = directory / "theta.safetensors";
  ArrayFile file;
  file.arrays = PyloNetwork();
  WriteArrayFile(path, file);
  const FinishedProcess finished =
      Import({path, "--out", out, "--learned-optimizer", kAdafac, "--decays", GoldenDecays()});
  CHECK(finished.errors.empty());
  CHECK(ReadArrayFile(out).arrays.Extract("theta/") == AdafacTheta());

  for (const char* name : {"momentum_decays", "rms_decays", "adafactor_decays"}) {
    file.arrays.Set(name, AdafacTheta().At(name));
  }
  WriteArrayFile(path, file);
  CHECK(Import({path, "--out", out, "--learned-optimizer", kAdafac}).errors.empty());
  CHECK(ReadArrayFile(out).arrays.Extract("theta/") == AdafacTheta());
  CHECK(Import({path, "--out", out, "--learned-optimizer", kAdafac, "--decays", GoldenDecays()})
            .errors ==
        "lopt: " + path + ": the file holds offsets of the decays; --decays would be others\n");
}

TEST_CASE("Weights of PyLO that do not fit are an Error that names the tensors") {
  const TempDirectory directory;
  const std::string path = directory / "model.safetensors";
  const std::string out = directory / "theta.safetensors";
  const auto errors = [&](const NamedArrays& arrays, const std::string& optimizer,
                          const std::string& decays) {
    ArrayFile file;
    file.arrays = arrays;
    WriteArrayFile(path, file);
    std::vector<std::string> words = {path, "--out", out, "--learned-optimizer", optimizer};
    if (!decays.empty()) words.insert(words.end(), {"--decays", decays});
    std::string text = Import(words).errors;
    const size_t at = text.find(path);
    if (at != std::string::npos) text.replace(at, path.size(), "FILE");
    return text;
  };
  const NamedArrays network = PyloNetwork();
  CHECK(errors(network, kAdafac, "") ==
        "lopt: FILE: PyLO's files do not hold the offsets of the decays, which are arguments of "
        "its optimizers: give them with --decays '{\"momentum_decays\": [...], \"rms_decays\": "
        "[...], \"adafactor_decays\": [...]}'\n");
  CHECK(errors(network, R"({"type": "MLPLOpt"})", GoldenDecays()) ==
        "lopt: --decays is for an AdafacMLPLOpt whose weights are in a file of PyLO; FILE is "
        "none\n");
  const std::string narrow = errors(network, R"({"type": "AdafacMLPLOpt"})", GoldenDecays());
  CHECK(
      narrow.starts_with("lopt: FILE: the tensors wanted are not there; wanted: nn/w0 [39, 4], "));
  CHECK(narrow.find("nn/w0 float32 [39, 32] (network.input.weight)") != std::string::npos);
  const std::string few =
      errors(network, kAdafac,
             R"({"momentum_decays": [0, 0], "rms_decays": [0], "adafactor_decays": [0, 0, 0]})");
  CHECK(few.find("; found: ") < few.find("momentum_decays float32 [2]"));
  NamedArrays more = network;
  more.Set("network.norm.weight", Array(DType::kFloat32, {32}));
  CHECK(errors(more, kAdafac, GoldenDecays()) ==
        "lopt: FILE: network.norm.weight [32] is not one of the tensors of PyLO's network, whose "
        "layers are: input, linear_0, output\n");
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("The program says what cannot be imported, and writes nothing") {
  const TempDirectory directory;
  const std::string out = directory / "theta.safetensors";
  const FinishedProcess usage = Import({"x.npz"});
  CHECK(usage.exit_code == 2);
  CHECK(usage.errors ==
        "lopt: The file to import or --out is missing; usage: lopt import FILE --out THETA "
        "[OPTIONS]\n");
  WriteTextFile(directory / "x.npz", "text");
  const FinishedProcess npz = Import({directory / "x.npz", "--out", out});
  CHECK(npz.exit_code == 1);
  CHECK(npz.errors ==
        "lopt: " + (directory / "x.npz") + ": not a zip archive, as an npz file is one\n");
  const std::string golden = Fixture("mlp_lopt_steps_large.safetensors");
  const FinishedProcess large = Import({golden, "--out", out});
  CHECK(large.exit_code == 1);
  CHECK(
      large.errors.starts_with("lopt: " + golden + ": the tensors wanted are not there; wanted: "));
  CHECK(Import({out, "--out", out}).errors ==
        "lopt: cannot read " + out + ": No such file or directory\n");
  WriteTextFile(out, "text");
  CHECK(Import({out, "--out", out}).errors == "lopt: " + out + ": --out is the file to import\n");
}

TEST_CASE("Files of lopt say themselves what optimizer their weights are of") {
  const TempDirectory directory;
  const std::string theta = directory / "theta.safetensors";
  const Config strong = Config::Parse(R"({"type": "MLPLOpt", "step_mult": 0.5})", "test");
  WriteThetaFile(theta, {.learned_optimizer = strong, .theta = MLPLOpt().InitTheta(Key{})});
  const std::string npz = directory / "theta.npz";
  REQUIRE(
      RunProcess({BuildPath("lopt"), "export", theta, "--format", "npz", "--out", npz}).exit_code ==
      0);
  const std::string out = directory / "out.safetensors";
  const auto step_mult = [&](const std::vector<std::string>& words) {
    const FinishedProcess finished = Import(words);
    CAPTURE(finished.errors);
    REQUIRE(finished.exit_code == 0);
    return Json::parse(ReadThetaFile(out).learned_optimizer.Dump()).at("step_mult").get<double>();
  };
  CHECK(step_mult({npz, "--out", out}) == 0.5);
  CHECK(step_mult({theta, "--out", out}) == 0.5);
  CHECK(step_mult({npz, "--out", out, "--learned-optimizer", R"({"type": "MLPLOpt"})"}) == 0.001);
}

TEST_CASE("A theta file of lopt passes the checks of a theta file before it is imported") {
  const TempDirectory directory;
  const std::string theta = directory / "theta.safetensors";
  const std::string out = directory / "out.safetensors";
  WriteThetaFile(theta, {.learned_optimizer = Config::Parse(R"({"type": "MLPLOpt"})", "test"),
                         .theta = MLPLOpt().InitTheta(Key{})});
  const ArrayFile intact = ReadArrayFile(theta);
  const auto errors = [&](const auto& change, const std::vector<std::string>& more = {}) {
    ArrayFile file = intact;
    change(file);
    WriteArrayFile(theta, file);
    std::vector<std::string> words = {theta, "--out", out};
    words.insert(words.end(), more.begin(), more.end());
    return Import(words).errors;
  };
  const auto damage = [](ArrayFile& file) {
    for (float& weight : file.arrays.At("theta/mlp/linear_0/w").As<float>()) weight += 1;
  };
  const std::string refused = "lopt: " + theta + ": the optimizer does not do what it did when ";
  CHECK(errors(damage).starts_with(refused));
  CHECK(errors(damage, {"--learned-optimizer", R"({"type": "MLPLOpt", "step_mult": 0.01})"})
            .starts_with(refused));
  const auto newer = [](ArrayFile& file) { file.metadata["format"] = "lopt theta 9"; };
  CHECK(errors(newer).starts_with("lopt: " + theta + ": the format is 'lopt theta 9'; "));
  CHECK_FALSE(std::filesystem::exists(out));
  CHECK(errors(damage, {"--despite-failed-check"}) == "");
  CHECK(std::filesystem::exists(out));
}

TEST_CASE("With other options a theta file of lopt keeps how its weights were made") {
  const TempDirectory directory;
  const std::string theta = directory / "theta.safetensors";
  const std::string out = directory / "out.safetensors";
  WriteThetaFile(theta, {.learned_optimizer = Config::Parse(R"({"type": "MLPLOpt"})", "test"),
                         .theta = MLPLOpt().InitTheta(Key{}),
                         .config = Config::Parse(R"({"a": 1})", "test"),
                         .seed = 3,
                         .meta_steps = 4,
                         .trained_horizon = 50,
                         .trained_range = {.shortest_training = 5, .longest_training = 50},
                         .chosen_on = "valid"});
  const std::string other = R"({"type": "MLPLOpt", "step_mult": 0.01})";
  CHECK(Import({theta, "--out", out, "--learned-optimizer", other}).errors == "");
  const ThetaFile before = ReadThetaFile(theta);
  const ThetaFile after = ReadThetaFile(out);
  CHECK(Json::parse(after.learned_optimizer.Dump()).at("step_mult").get<double>() == 0.01);
  CHECK(after.theta == before.theta);
  CHECK(after.config.Dump() == before.config.Dump());
  CHECK(after.seed == 3);
  CHECK(after.meta_steps == 4);
  CHECK(after.trained_horizon == 50);
  CHECK(after.trained_range == before.trained_range);
  CHECK(after.chosen_on == "valid");
}

TEST_CASE("A named pipe is not replaced") {
  const TempDirectory directory;
  const std::string pipe = directory / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(Import({Fixture("haiku_theta.msgpack"), "--out", pipe}).errors ==
        "lopt: cannot write " + pipe + ": it is a named pipe, wanted a file\n");
  CHECK(std::filesystem::is_fifo(pipe));
}

TEST_CASE("Weights that are not finite are not imported") {
  const TempDirectory directory;
  const std::string file = directory / "weights.npz";
  const std::string out = directory / "theta.safetensors";
  NamedArrays weights = GoldenTheta();
  for (auto& [name, array] : weights) {
    for (float& weight : array.As<float>()) weight = std::numeric_limits<float>::quiet_NaN();
  }
  WriteNpz(file, weights);
  const FinishedProcess finished = Import({file, "--out", out});
  CHECK(finished.exit_code == 1);
  CHECK(finished.errors.starts_with("lopt: " + out +
                                    ": weights must be finite numbers; theta/mlp/linear_0/"));
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("Weights of RNNMLPLOpt load from flax's msgpack, and others are named") {
  const std::string path = Fixture("haiku_rnn_mlp_theta.msgpack");
  const RNNMLPLOpt small({.hidden_size = 3,
                          .hidden_layers = 1,
                          .lstm_hidden_size = 2,
                          .lstm_to_ff = 3,
                          .from_mlp_size = 2,
                          .from_lstm_size = 4});
  const NamedArrays found = FindTensors(ReadHaikuParams(path), small.theta_layout(), "", path);
  const auto at = [&](const char* tensor, size_t i) { return found.At(tensor).As<float>()[i]; };
  CHECK(at("initial_from_lstm", 0) == doctest::Approx(-0.7350404));
  CHECK(at("lstm_init_state/cell", 1) == doctest::Approx(-0.19236828));
  CHECK(at("rnn_params/rnn/linear/w", 0) == doctest::Approx(-0.05944267));
  CHECK(at("ffmod_params/mlp/linear_1/b", 0) == doctest::Approx(-0.03498377));
  const std::string error =
      ErrorOf([&] { FindTensors(ReadHaikuParams(path), RNNMLPLOpt().theta_layout(), "", path); });
  CHECK(error.starts_with(path + ": the tensors wanted are not there; wanted: "));
  CHECK(error.find("rnn_params/rnn/linear/w [116, 256]") != std::string::npos);
  CHECK(error.find("rnn_params/rnn/linear/w float32 [26, 8]") != std::string::npos);

  const TempDirectory directory;
  const std::string out = directory / "theta.safetensors";
  const FinishedProcess finished =
      Import({path, "--out", out, "--learned-optimizer",
              R"({"type": "RNNMLPLOpt", "hidden_size": 3, "hidden_layers": 1, "lstm_to_ff": 3,
                  "lstm_hidden_size": 2, "from_mlp_size": 2, "from_lstm_size": 4})"});
  CHECK(finished.errors == "");
  CHECK(finished.output ==
        fmt::format("{}: {} numbers of a RNNMLPLOpt\n", out, small.theta_layout().size()));
  const Eigen::VectorXf theta = ReadThetaFile(out).theta;
  CHECK(theta[small.theta_layout().Find("initial_from_lstm").offset] ==
        doctest::Approx(-0.7350404));
}

}  // namespace lopt
