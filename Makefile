# Thin front of CMake.  make run and make test install what a fresh Debian 12
# lacks, build, and go.
.PHONY: setup build run test test-asan test-tsan lint fuzz clean

PRESET ?= release
JOBS   ?= $(shell nproc)

setup:
	@scripts/setup

build: setup
	@cmake --preset release >/dev/null
	@cmake --build build -j $(JOBS)

run: build
	@exec build/seam serve -c conf/nano.json

test: build
	@scripts/setup node
	@ctest --test-dir build --output-on-failure -j 2

# The same tests under sanitizers.
test-asan test-tsan: test-%: setup
	@cmake --preset $* >/dev/null
	@cmake --build build/$* -j $(JOBS)
	@ctest --test-dir build/$* --output-on-failure -j 2

lint:
	@scripts/setup dev
	@scripts/lint

fuzz:
	@scripts/setup dev
	@scripts/fuzz

clean:
	rm -rf build
