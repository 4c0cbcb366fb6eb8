# The commands of this repository. `make demo` and `make test` set up all they need, and say what they install.

# One profile and one choice of features for everything, so that nothing is compiled twice. Cargo chooses the features of a
# dependency by what is asked for: all packages (`--workspace`), and with what only tests need as soon as one test is among
# the targets. So the binary is asked for together with one small test. `scripts/check-build.sh` watches over this.
CARGO_FLAGS := --release --locked
BUILD_WEFT := cargo build $(CARGO_FLAGS) --workspace --bin weft --test refused
BUILD_ALL := cargo build $(CARGO_FLAGS) --workspace --bins --tests --examples
BENCH ?=
# What to fuzz, all if empty, and for how long each.
FUZZ ?=
SECONDS ?= 10

.PHONY: help demo test check bench soak fuzz asan loom build debug-info setup

help:
	@echo "make demo            build weft, start a node, deploy functions, call them, train with four workers, stop"
	@echo "make test            everything that must hold: formatting, lints, dependencies, all tests"
	@echo "make debug-info      weft with its debug information in a file of its own, in target/debug-info"
	@echo "make bench           all benchmarks, or one of them: make bench BENCH=cold_start"
	@echo "make fuzz            coverage-guided fuzzing of all that reads bytes: make fuzz FUZZ=csv SECONDS=600"
	@echo "make asan            gpu-bridge under AddressSanitizer"
	@echo "make loom            the threads of gpu-bridge in all orders in which they can meet; part of make test"
	@echo "make soak            the tests that repeat, a thousand times, and all abuse"

setup:
	@scripts/setup.sh build

build: setup
	$(BUILD_WEFT)

# The same binary, and beside it the files and lines that its backtraces can name.
debug-info: setup
	$(BUILD_WEFT) --config 'profile.release.package.weft.strip="none"'
	@scripts/split-debug-info.sh target/release/weft target/debug-info

demo: build
	@scripts/demo.sh target/release/weft

check:
	@scripts/setup.sh test
	cargo fmt --all --check
	scripts/check-dependencies.sh
	scripts/check-layers.sh
	cargo clippy $(CARGO_FLAGS) --workspace --all-targets --features weft-fuzz/coverage -- --deny warnings

test: check
	$(BUILD_ALL)
	scripts/check-build.sh "$(BUILD_ALL)" "$(BUILD_WEFT)" "cargo test --no-run $(CARGO_FLAGS) --workspace"
	cargo test $(CARGO_FLAGS) --workspace
	$(MAKE) loom

bench:
	@scripts/setup.sh test >&2
	@$(BUILD_ALL)
	@target/release/bench $(BENCH)

# The crates that are fuzzed are compiled once more, with counters; what they depend on is not.
fuzz: setup
	RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/fuzz/rustc-with-coverage.sh cargo build $(CARGO_FLAGS) --workspace \
		--bin weft-fuzz --test refused --features weft-fuzz/coverage
	target/release/weft-fuzz --seconds $(SECONDS) $(FUZZ)

# Every access of the kernels and of the threads that run them, on the cores. What leaks is not asked: drivers keep things.
asan: setup
	RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/gpu-bridge/rustc-with-asan.sh ASAN_OPTIONS=detect_leaks=0 cargo test $(CARGO_FLAGS) \
		--workspace --test conformance --test autograd --test codec --test shapes --test fuzz -- --skip gpu --skip hardware --skip immediates

# All orders in which the threads of a crew, of calls that share cores, and of whoever cancels them can meet.
loom:
	cargo test $(CARGO_FLAGS) --manifest-path gpu-bridge/loom/Cargo.toml --target-dir target/loom

soak:
	@scripts/setup.sh test
	$(BUILD_ALL)
	WEFT_SOAK=1000 cargo test $(CARGO_FLAGS) --workspace --test end_to_end -- --test-threads 1 hostile soak
	WEFT_SOAK=5 cargo test $(CARGO_FLAGS) --workspace --test end_to_end -- --test-threads 1 jobs::combinations jobs::channels
	WEFT_SOAK=100 cargo test $(CARGO_FLAGS) --workspace --test fuzz
	WEFT_SOAK=20 cargo test $(CARGO_FLAGS) --workspace --test stopping -- any_operation
	WEFT_SOAK=10 cargo test $(CARGO_FLAGS) --workspace --test params -- crashes
	WEFT_SOAK=100 cargo test $(CARGO_FLAGS) --workspace --test data fuzz
