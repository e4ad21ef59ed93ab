# For 64-bit ARM on Debian: cmake --toolchain cmake/aarch64.cmake. Tests run under qemu-user.
# `scripts/test --full` unpacks arm64's libsodium into arm64/ of the build folder.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
list(PREPEND CMAKE_FIND_ROOT_PATH ${CMAKE_BINARY_DIR}/arm64)

# A test that needs what qemu-user lacks (namespaces, seccomp, pidfd) skips itself where the
# environment has RUNNING_UNDER_QEMU=1.
set(CMAKE_CROSSCOMPILING_EMULATOR /usr/bin/env RUNNING_UNDER_QEMU=1
                                  qemu-aarch64 -L /usr/aarch64-linux-gnu)
