# The commands of this repository. `make demo` and `make test` set up all they need, and say what they install.

# One profile and one choice of targets for everything but the demo, so that nothing is compiled twice: what tests need of
# a dependency, they would otherwise have it compiled with once more.
CARGO_FLAGS := --release --locked
BUILD_ALL := cargo build $(CARGO_FLAGS) --workspace --bins --tests
BENCH ?=

.PHONY: help demo test check bench soak build setup

help:
	@echo "make demo            build weft, start a node, deploy functions, call them, train with four workers, stop"
	@echo "make test            everything that must hold: formatting, lints, dependencies, all tests"
	@echo "make bench           all benchmarks, or one of them: make bench BENCH=cold_start"
	@echo "make soak            the tests that repeat, a thousand times"

setup:
	@scripts/setup.sh build

build: setup
	cargo build $(CARGO_FLAGS) -p weft

demo: build
	@scripts/demo.sh target/release/weft

check:
	@scripts/setup.sh test
	cargo fmt --all --check
	scripts/check-dependencies.sh
	cargo clippy $(CARGO_FLAGS) --workspace --all-targets -- --deny warnings

test: check
	$(BUILD_ALL)
	cargo test $(CARGO_FLAGS) --workspace

bench:
	@scripts/setup.sh test >&2
	@$(BUILD_ALL)
	@target/release/bench $(BENCH)

soak:
	@scripts/setup.sh test
	$(BUILD_ALL)
	WEFT_SOAK=1000 cargo test $(CARGO_FLAGS) --workspace --test end_to_end -- --test-threads 1 hostile soak
	WEFT_SOAK=100 cargo test $(CARGO_FLAGS) --workspace --test fuzz
	WEFT_SOAK=10 cargo test $(CARGO_FLAGS) --workspace --test params -- crashes
	WEFT_SOAK=100 cargo test $(CARGO_FLAGS) --workspace --test data fuzz
