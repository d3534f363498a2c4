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

# The same under AddressSanitizer and UBSan; the clients that run in Node, and
# the plugins that seam check must catch, have their own process or crash on
# purpose.
test-asan: setup
	@cmake --preset asan >/dev/null
	@cmake --build build/asan -j $(JOBS)
	@ctest --test-dir build/asan --output-on-failure -j 2 -E '^(node_|check_)'

# What has threads under ThreadSanitizer.
test-tsan: setup
	@cmake --preset tsan >/dev/null
	@cmake --build build/tsan -j $(JOBS) --target threaded_tests
	@ctest --test-dir build/tsan --output-on-failure -j 2 -L threads

lint:
	@scripts/setup dev
	@cmake --preset release >/dev/null
	@scripts/lint

fuzz:
	@scripts/setup dev
	@scripts/fuzz

clean:
	rm -rf build
