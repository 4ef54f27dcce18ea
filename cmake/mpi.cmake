# Jobs of several processes over MPI: MPICH where there are several; MPI_C_COMPILER or MPI_HOME choose another. From here on LOPT_MPI is ON or OFF.
include(${CMAKE_CURRENT_LIST_DIR}/auto_option.cmake)
lopt_auto_option(LOPT_MPI "Meta-training over several processes, with MPI: ON, OFF, or AUTO: where MPI is found"
  "Meta-training over several processes, where MPI is found")
if(LOPT_MPI)
  enable_language(C)
  if(NOT MPI_C_COMPILER AND NOT MPI_HOME)
    find_program(MPI_C_COMPILER NAMES mpicc.mpich mpicc)
    find_program(MPIEXEC_EXECUTABLE NAMES mpiexec.mpich mpiexec)
  endif()
  find_package(MPI COMPONENTS C QUIET)
  lopt_settle(LOPT_MPI MPI_C_FOUND "MPI (libmpich-dev) is not found; MPI_C_COMPILER or MPI_HOME names one"
    "MPI not found: jobs of several processes are left out")
endif()
