# LibTorch, for torch tasks. From here on LOPT_TORCH is ON or OFF.
include(${CMAKE_CURRENT_LIST_DIR}/auto_option.cmake)
lopt_auto_option(LOPT_TORCH "The LibTorch module (torch tasks): ON, OFF, or AUTO: where LibTorch is found" "Build the LibTorch module (torch tasks)")
if(LOPT_TORCH)
  find_package(Torch QUIET)
  lopt_settle(LOPT_TORCH Torch_FOUND "LibTorch (libtorch-dev) is not found; CMAKE_PREFIX_PATH names one"
    "LibTorch not found: torch tasks are left out (CMAKE_PREFIX_PATH names another LibTorch)")
endif()
