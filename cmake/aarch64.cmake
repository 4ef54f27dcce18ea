# A toolchain file for ARM's 64-bit processors, by Debian's cross compiler (g++-aarch64-linux-gnu) with arm64's development packages; qemu-user runs
# what is built. tools/aarch64_tests builds and runs them.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
# pkg-config of the host knows these directories of its own packages only.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
# Programs of the build are the host's: protoc and gRPC's plug-in.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
