#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "lopt/learner/transport/mpi_transport.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/temp_directory.h"

namespace lopt {

TEST_CASE("A launcher that started more processes than the job has is an error") {
  const TempDirectory directory;
  const std::string out = directory.path() + "/run";
  struct Launcher {
    std::string environment, wanted;
  };
  for (const Launcher& launcher :
       {Launcher{"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE says"},
        Launcher{"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=1",
                 "SLURM_STEP_NUM_TASKS says"},
        Launcher{"SLURM_STEP_ID=0 SLURM_NTASKS=3 SLURM_PROCID=1", "SLURM_NTASKS says"},
        Launcher{"RANK=0 WORLD_SIZE=4", "this is one of 4 processes"}}) {
    for (const std::string command : {"meta-train --preset smoke", "train train.json"}) {
      INFO(launcher.environment, " ", command);
      const FinishedProcess finished =
          RunProcess({"/bin/sh", "-c",
                      "cd '" + directory.path() + "' && exec env " + launcher.environment + " '" +
                          BuildPath("lopt") + "' " + command + " --out '" + out + "'"});
      CHECK(finished.exit_code == 1);
      // Where lopt has no MPI of its own, another's launcher is refused for that.
      const bool mpi = !MpiLibrary().empty() || !launcher.environment.starts_with("OMPI_");
      CHECK(finished.errors.find(mpi ? "would make a run of its own"
                                     : "but it was built without MPI") != std::string::npos);
      if (mpi) CHECK(finished.errors.find(launcher.wanted) != std::string::npos);
      CHECK_FALSE(std::filesystem::exists(out));
    }
  }
  // A batch script is one process of Slurm's, whatever it asked for.
  const FinishedProcess batch =
      RunProcess({"/usr/bin/env", "SLURM_NTASKS=3", "SLURM_PROCID=0", BuildPath("lopt"),
                  "meta-train", "--preset", "smoke", "--threads", "1", "--out", out});
  CHECK(batch.exit_code == 0);
}

}  // namespace lopt
