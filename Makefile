# The two commands are `make serve` and `make test`; `make help` lists all.
# Everything below build/ and .venv is made here and may be deleted at any time.
MODEL ?= models/braid-tiny
HOST ?= 127.0.0.1
PORT ?= 8000
SETUP ?= yes
GOLDEN_PYTHON ?= python3
FUZZ_SECONDS ?= 60
ABUSE_SECONDS ?= 60
MUTATION_ARGS ?= --seed 1 --per-module 30
BENCH_ARGS ?= --input-tokens 512 --output-tokens 128 --sequences 8

# make test LONG=yes: cases that take long as well.
LONG ?=

# make test ISA=avx2: every command of braid uses that instruction set at most.
ISA ?=
MASKED := $(if $(ISA),BRAID_ISA=$(ISA))

SHELL := /bin/bash
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
BRAID := build/release/braid

.DEFAULT_GOAL := help
.PHONY: help serve test test-clients test-dist build dist setup setup-test setup-clients \
  setup-dist setup-fuzz bench format tidy docs mutants mutation asan tsan fuzz abuse golden web \
  clean

help:  ## this list
	@echo "make serve    install what is missing, build, serve MODEL ($(MODEL)) at HOST:PORT"
	@echo "make test     install what is missing, build, run the tests, one summary"
	@echo "                   LONG=yes: also the cases that take minutes each"
	@echo "make test-clients  the same for tests with other people's clients, as SDKs and lm-eval"
	@echo "                   ISA=base|avx2|avx512|amx masks the instruction set of both"
	@echo "make build    build the release preset: $(BRAID)"
	@echo "make dist     build/dist/braid-*.tar.gz: one binary that needs the C library only"
	@echo "make test-dist  run it in bare roots of Debian 12 and 13 (as root, with debootstrap)"
	@echo "make setup    install what building needs (Debian 12; SETUP=no skips it everywhere)"
	@echo "make bench    measure MODEL offline (BENCH_ARGS, see braid bench offline --help)"
	@echo "make format   clang-format all C++ files, rustfmt the Rust crate"
	@echo "make tidy     check layers, lengths, words and the other house rules"
	@echo "make docs     write the tables of docs/api.md from those that the server enforces"
	@echo "make mutants  plant each known bug and see that the simulation finds it"
	@echo "make mutation plant random one-line mutants, count those that a test sees (MUTATION_ARGS)"
	@echo "make asan     the suite under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make tsan     the suite under ThreadSanitizer"
	@echo "make fuzz     each fuzz target for FUZZ_SECONDS ($(FUZZ_SECONDS)), with Debian's clang 19"
	@echo "make abuse    attack a server for ABUSE_SECONDS ($(ABUSE_SECONDS)) beside a bystander"
	@echo "make golden   export the golden values again (GOLDEN_PYTHON with torch, transformers)"
	@echo "make web      bundle the page again (needs node and npm)"
	@echo "make clean    delete build/"

setup:
ifneq ($(SETUP),no)
	@scripts/setup.sh build
endif

setup-test:
ifneq ($(SETUP),no)
	@scripts/setup.sh build test
endif

setup-clients:
ifneq ($(SETUP),no)
	@scripts/setup.sh build clients
endif

setup-dist:
ifneq ($(SETUP),no)
	@scripts/setup.sh build dist
endif

setup-fuzz:
ifneq ($(SETUP),no)
	@scripts/setup.sh build fuzz
endif

build: setup
	@test -f build/release/build.ninja || cmake --preset release > /dev/null
	@cmake --build --preset release --target braid

dist: setup
	@test -f build/release/build.ninja || cmake --preset release > /dev/null
	@cmake --build --preset release --target dist

serve: build
	@exec $(BRAID) serve $(MODEL) --host $(HOST) --port $(PORT)

test: setup-test
	@$(MASKED) python3 tests/run_all.py --preset release $(if $(LONG),--long)

test-clients: setup-clients
	@$(MASKED) python3 tests/run_all.py --preset release clients

test-dist: setup-dist dist
	@python3 tests/dist/roots.py

mutants: setup-test
	@test -f build/release/build.ninja || cmake --preset release > /dev/null
	@cmake --build --preset release --target mutant_test > /dev/null
	@build/release/tests/simulation/mutant_test

mutation: setup-test
	@python3 tests/mutation/mutation.py $(MUTATION_ARGS)

SANITIZED := equality unit simulation golden cli groups device http client abuse

asan: setup-test
	@python3 tests/run_all.py --preset dev $(SANITIZED)

tsan: setup-test
	@python3 tests/run_all.py --preset tsan $(SANITIZED)

abuse: setup-test build
	@.venv/bin/python tests/abuse/abuse.py --seconds $(ABUSE_SECONDS)

fuzz: setup-fuzz
	@test -f build/fuzz/build.ninja || cmake --preset fuzz > /dev/null
	@cmake --build --preset fuzz
	@python3 tests/fuzz/run.py --seconds $(FUZZ_SECONDS)

bench: build
	@$(BRAID) bench offline $(MODEL) $(BENCH_ARGS)

format:
	@git ls-files -z '*.h' '*.cc' | xargs -0 $$(command -v clang-format-19 || echo clang-format) -i
	@cargo fmt --manifest-path rust/Cargo.toml

tidy:
	@python3 tests/tidy/tidy.py
	@python3 tests/tidy/tidy_test.py

docs:
	@cmake --build --preset release --target server_test
	@BRAID_WRITE_DOCS=1 build/release/server_test --gtest_filter='ApiDocument.*'

golden:
	@$(GOLDEN_PYTHON) tests/golden/export.py
	@$(GOLDEN_PYTHON) tests/golden/export_text.py
	@$(GOLDEN_PYTHON) tests/golden/export_tiktoken.py

web:
	@cd web && npm ci --no-audit --no-fund && npm run build

clean:
	rm -rf build
