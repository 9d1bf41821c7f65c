# `make demo` runs one real trial; `make test` passes every test. Everything else is for maintainers.

SHELL := /bin/bash
TARGET := x86_64-unknown-linux-gnu

.PHONY: help demo test build static test-long lint docs interrupts bench-overhead bench-audit bench-load mutants fuzz clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build ## build, run one real trial on the stand-in engine, show what came out
	@PATH="$(CURDIR)/dist:$$PATH" dist/controller run --config recipes/trials/demo.yaml --result dist/demo-result.json
	@echo && dist/controller explain dist/demo-result.json

test: ## set up what the tests need, run them all, count the skips
	@tests/run

test-long: ## everything that outgrows its share of CI
	@tests/run --long

build: static ## dist/agent (static), dist/controller, dist/tokenspeed (the stand-in, static)
	@cargo build --locked --profile agent -p controller
	@mkdir -p dist
	@install -m 0755 target/$(TARGET)/agent/agent target/$(TARGET)/agent/tokenspeed target/agent/controller dist/

static: ## the two static binaries alone
	@cargo agent-static --locked
	@cargo engine-static --locked

lint: ## format, clippy, licences and sources
	@tests/lint

docs: ## the code's documentation
	@RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --workspace --no-deps --document-private-items

interrupts: build ## every signal in every phase, and random instants: what is left (tables for docs/interrupts.md)
	@TS_TEST_DIST=$(CURDIR)/dist cargo run --locked -q -p tests --example interrupts

bench-overhead: build ## delays, CPU and memory beside the original script and class, as ratios
	@tests/bench/overhead

bench-audit: ## judging a 300 MB export beside json.load and beside reading it
	@cargo run --locked --release -q -p proto --example bench_audit

mutants: ## does a test notice when a rule is bent? (cargo-mutants; resumable; PKG=proto|agent|controller)
	@tests/mutants $(or $(PKG),proto)

fuzz: ## every fuzz target for SECS seconds each (600)
	@tests/fuzz/run $(or $(SECS),600)

bench-load: build ## the load client beside the real bench tool and a raw reader of the same sockets
	@tests/bench/load

clean: ## what was built
	@cargo clean
	@rm -rf dist .venvs
